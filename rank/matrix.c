/* SPDX-License-Identifier: MIT */
#include "rank/matrix.h"

#include <string.h>

/* Groups and columns that are computed together: what kernels prepare of the columns serves all
 * these groups, and their accumulators stay in the second-level cache. */
enum { GROUP_BLOCK = 16, COLUMN_BLOCK = 64 };

void matrix_init(struct matrix *m, enum quant type, int64_t rows, int64_t cols, int n_slabs)
{
    *m = (struct matrix){ .type = type,
                          .rows = rows,
                          .cols = cols,
                          .n_slabs = n_slabs,
                          .n_groups = (rows + PACK_ROWS - 1) / PACK_ROWS,
                          .group_bytes = pack_group_bytes(type, cols) };
}

size_t matrix_bytes(const struct matrix *m)
{
    return (size_t)m->n_slabs * (size_t)m->n_groups * m->group_bytes;
}

int matrix_wants_int8(const struct math *math, const struct matrix *m)
{
    return quant_info[m->type].program != QUANT_FLOAT && !math->exact && m->cols % 32 == 0;
}

static cpu_dot_fn *matrix_kernel(const struct math *math, const struct matrix *m)
{
    return matrix_wants_int8(math, m) ? math->kernels->dot[m->type]
                                      : math->kernels->dot_float[m->type];
}

static int rows_of_group(const struct matrix *m, int64_t group)
{
    int64_t left = m->rows - group * PACK_ROWS;
    return left < PACK_ROWS ? (int)left : PACK_ROWS;
}

/* The groups from g on that are computed together. */
static struct cpu_rows rows_from(const struct matrix *m, int slab, int64_t g, int64_t g1)
{
    return (struct cpu_rows){ .t = m->type,
                              .n_groups = g1 - g < GROUP_BLOCK ? (int)(g1 - g) : GROUP_BLOCK,
                              .group = matrix_group(m, slab, g),
                              .group_bytes = m->group_bytes };
}

static int columns_from(int c0, int n_cols)
{
    return n_cols - c0 < COLUMN_BLOCK ? n_cols - c0 : COLUMN_BLOCK;
}

void matrix_mul(const struct math *math, const struct matrix *m, int slab, int64_t g0, int64_t g1,
                const struct cpu_column *x, int n_cols, float *y, int64_t y_stride)
{
    cpu_dot_fn *dot = matrix_kernel(math, m);
    _Alignas(64) float acc[GROUP_BLOCK * COLUMN_BLOCK][PACK_ROWS];
    struct cpu_rows w;

    for (int c0 = 0; c0 < n_cols; c0 += COLUMN_BLOCK) {
        int n = columns_from(c0, n_cols);
        for (int64_t g = g0; g < g1; g += w.n_groups) {
            w = rows_from(m, slab, g, g1);
            memset(acc, 0, (size_t)(w.n_groups * n) * sizeof acc[0]);
            dot(&w, 0, m->cols, x + c0, n, acc[0]);
            for (int c = 0; c < n; c++)
                for (int i = 0; i < w.n_groups; i++)
                    memcpy(y + (c0 + c) * y_stride + (g + i) * PACK_ROWS, acc[i * n + c],
                           (size_t)rows_of_group(m, g + i) * sizeof(float));
        }
    }
}

void matrix_mul_atoms(const struct math *math, const struct matrix *m, int slab, int64_t g0,
                      int64_t g1, const struct cpu_column *x, int n_cols, int64_t *fix,
                      int64_t fix_stride, int64_t *bad)
{
    cpu_dot_fn *dot = matrix_kernel(math, m);
    _Alignas(64) float acc[GROUP_BLOCK * COLUMN_BLOCK][PACK_ROWS];
    struct cpu_rows w;

    for (int c0 = 0; c0 < n_cols; c0 += COLUMN_BLOCK) {
        int n = columns_from(c0, n_cols);
        for (int64_t g = g0; g < g1; g += w.n_groups) {
            w = rows_from(m, slab, g, g1);
            for (int64_t k = 0; k < m->cols; k += PACK_ATOM) {
                int64_t width = m->cols - k < PACK_ATOM ? m->cols - k : PACK_ATOM;
                memset(acc, 0, (size_t)(w.n_groups * n) * sizeof acc[0]);
                dot(&w, k, width, x + c0, n, acc[0]);
                for (int c = 0; c < n; c++)
                    for (int i = 0; i < w.n_groups; i++)
                        bad[c0 + c] += math->kernels->accumulate(
                            fix + (c0 + c) * fix_stride + (g + i) * PACK_ROWS, acc[i * n + c],
                            rows_of_group(m, g + i));
            }
        }
    }
}

void matrix_mul_expert(const struct math *math, const struct matrix *m, int slab, int64_t g0,
                       int64_t g1, const struct cpu_column *x, int n_cols, const float *weight,
                       const int32_t *to, int64_t *fix, int64_t fix_stride, int64_t *bad)
{
    cpu_dot_fn *dot = matrix_kernel(math, m);
    _Alignas(64) float acc[GROUP_BLOCK * COLUMN_BLOCK][PACK_ROWS];
    struct cpu_rows w;

    for (int c0 = 0; c0 < n_cols; c0 += COLUMN_BLOCK) {
        int n = columns_from(c0, n_cols);
        for (int64_t g = g0; g < g1; g += w.n_groups) {
            w = rows_from(m, slab, g, g1);
            memset(acc, 0, (size_t)(w.n_groups * n) * sizeof acc[0]);
            dot(&w, 0, m->cols, x + c0, n, acc[0]);
            for (int c = 0; c < n; c++)
                for (int i = 0; i < w.n_groups; i++) {
                    int32_t row = to[c0 + c];
                    int n_rows = rows_of_group(m, g + i);
                    math->kernels->scale(acc[i * n + c], weight[c0 + c], n_rows);
                    bad[row] += math->kernels->accumulate(
                        fix + row * fix_stride + (g + i) * PACK_ROWS, acc[i * n + c], n_rows);
                }
        }
    }
}
