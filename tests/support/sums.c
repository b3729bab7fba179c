/* SPDX-License-Identifier: MIT */
/* tests/support/sums.c - see sums.h. */
#include "tests/support/sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t sums_mix(uint64_t v)
{
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9u;
    v = (v ^ v >> 27) * 0x94d049bb133111ebu;
    return v ^ v >> 31;
}

/* A partial of up to about 2^11. */
static int64_t partial(int turn, int rank, int64_t element)
{
    uint64_t v = sums_mix((uint64_t)element * 64 + (uint64_t)rank * 4 + (uint64_t)turn);

    return (int64_t)v >> (20 + v % 24);
}

static int64_t bad_of(int turn, int rank, int64_t row)
{
    return (row + rank + turn) % 7 == 0;
}

static float bf16(float v)
{
    uint32_t u;

    memcpy(&u, &v, 4);
    u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&v, &u, 4);
    return v;
}

static float rounded(const struct sums_shape *s, float v)
{
    return s->reduce == COMM_BF16 ? bf16(v) : v;
}

/* First by hosts, then over them, as comm_settle promises for rounded partials. */
static float expected(const struct sums_shape *s, int turn, int64_t element)
{
    int64_t exact = 0;
    float sum = 0;

    for (int r = 0; r < s->ranks; r++)
        exact += partial(turn, r, element);
    if (s->reduce == COMM_EXACT || s->ranks == 1)
        return (float)exact * 0x1p-32f;
    for (int h = 0; h < s->hosts; h++) {
        float of_host = 0;
        for (int r = 0; r < s->ranks; r++)
            if (r * s->hosts / s->ranks == h)
                of_host += rounded(s, (float)partial(turn, r, element) * 0x1p-32f);
        sum += s->hosts > 1 ? rounded(s, of_host) : of_host;
    }
    return sum;
}

/* Returns how many rows were not zero. */
static int fill_rows(const struct sums_shape *s, struct comm *c, int turn, int thread)
{
    int64_t *rows = comm_rows(c), stride = s->width + COMM_EXTRA;
    int rank = comm_rank(c), failures = 0;

    for (int64_t i = thread; i < s->rows; i += s->threads) {
        int64_t any = 0;
        for (int64_t k = 0; k < stride; k++)
            any |= rows[i * stride + k];
        failures += any != 0;
        for (int64_t k = 0; k < s->width; k++)
            rows[i * stride + k] = partial(turn, rank, i * s->width + k);
        rows[i * stride + s->width + COMM_BAD] = bad_of(turn, rank, i);
        rows[i * stride + s->width + COMM_DIGEST] = (int64_t)sums_mix((uint64_t)(i + turn));
    }
    return failures;
}

static int check_rows(const struct sums *sums, const float *x, const int64_t *bad, int turn,
                      int thread)
{
    const struct sums_shape *s = sums->shape;
    int failures = 0;

    for (int64_t i = thread; i < s->rows; i += s->threads) {
        int64_t all_bad = 0;
        for (int q = 0; q < s->ranks; q++)
            all_bad += bad_of(turn, q, i);
        failures += bad[i] != all_bad || memcmp(x + i * s->width, sums->wanted[turn] + i * s->width,
                                                (size_t)s->width * sizeof *x) != 0;
    }
    return failures;
}

int sums_settle(const struct sums *s, struct comm *c, float *x, int64_t *bad, int thread)
{
    const struct sums_shape *shape = s->shape;
    int failures = 0;

    for (int turn = 0; turn < SUMS_TURNS; turn++) {
        failures += fill_rows(shape, c, turn, thread);
        comm_settle(c, cpu_kernels_pick(~0u), x, shape->rows, bad, thread, shape->threads);
        failures += check_rows(s, x, bad, turn, thread);
    }
    return failures;
}

void sums_init(struct sums *s, const struct sums_shape *shape)
{
    int64_t n = shape->rows * shape->width;

    s->shape = shape;
    for (int turn = 0; turn < SUMS_TURNS; turn++) {
        s->wanted[turn] = malloc((size_t)n * sizeof(float));
        if (!s->wanted[turn]) {
            fputs("no memory for a test\n", stderr);
            exit(1);
        }
        for (int64_t i = 0; i < n; i++)
            s->wanted[turn][i] = (turn > 0 ? s->wanted[turn - 1][i] : 0) + expected(shape, turn, i);
    }
}

void sums_fini(struct sums *s)
{
    for (int turn = 0; turn < SUMS_TURNS; turn++)
        free(s->wanted[turn]);
}
