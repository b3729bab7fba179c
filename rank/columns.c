/* SPDX-License-Identifier: MIT */
#include "rank/columns.h"

void columns_carve(struct columns *c, struct carve *from, int64_t n, int64_t width)
{
    size_t rows = (size_t)n, w = (size_t)width;

    c->width = width;
    c->col = carve_take(from, rows * sizeof *c->col);
    c->q = carve_take(from, rows * w);
    c->d = carve_take(from, rows * (w / 32) * sizeof *c->d);
    c->s = carve_take(from, rows * (w / 32) * sizeof *c->s);
    c->sum = carve_take(from, rows * (w / 16) * sizeof *c->sum);
}

void columns_set(struct columns *c, const struct cpu_kernels *k, int64_t i, const float *x,
                 int int8)
{
    int64_t blocks = c->width / 32;

    c->col[i] = (struct cpu_column){ .f = x };
    if (!int8)
        return;
    int8_t *q = c->q + i * c->width;
    float *d = c->d + i * blocks, *s = c->s + i * blocks;
    int16_t *sum = c->sum + i * 2 * blocks;

    k->quantize(x, c->width, q, d, s, sum);
    c->col[i] = (struct cpu_column){ .f = x, .q = q, .d = d, .s = s, .sum = sum };
}
