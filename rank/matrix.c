/* SPDX-License-Identifier: MIT */
#include "rank/matrix.h"

#include <string.h>

/* Columns that share one pass over a group: their accumulators (64 x 16 floats) and the
 * columns of an atom (64 x 256 bytes) stay in the first-level cache. */
enum { COLUMN_BLOCK = 64 };

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

void matrix_mul(const struct math *math, const struct matrix *m, int slab, int64_t g0, int64_t g1,
                const struct cpu_column *x, int n_cols, float *y, int64_t y_stride)
{
    cpu_dot_fn *dot = matrix_kernel(math, m);
    _Alignas(64) float acc[COLUMN_BLOCK][PACK_ROWS];

    for (int c0 = 0; c0 < n_cols; c0 += COLUMN_BLOCK) {
        int n = n_cols - c0 < COLUMN_BLOCK ? n_cols - c0 : COLUMN_BLOCK;
        for (int64_t g = g0; g < g1; g++) {
            size_t row_bytes = (size_t)rows_of_group(m, g) * sizeof(float);
            memset(acc, 0, (size_t)n * sizeof acc[0]);
            dot(m->type, matrix_group(m, slab, g), 0, m->cols, x + c0, n, acc[0]);
            for (int c = 0; c < n; c++)
                memcpy(y + (c0 + c) * y_stride + g * PACK_ROWS, acc[c], row_bytes);
        }
    }
}

void matrix_mul_atoms(const struct math *math, const struct matrix *m, int slab, int64_t g0,
                      int64_t g1, const struct cpu_column *x, int n_cols, int64_t *fix,
                      int64_t fix_stride, int64_t *bad)
{
    cpu_dot_fn *dot = matrix_kernel(math, m);
    _Alignas(64) float acc[COLUMN_BLOCK][PACK_ROWS];

    for (int c0 = 0; c0 < n_cols; c0 += COLUMN_BLOCK) {
        int n = n_cols - c0 < COLUMN_BLOCK ? n_cols - c0 : COLUMN_BLOCK;
        for (int64_t g = g0; g < g1; g++) {
            const uint8_t *group = matrix_group(m, slab, g);
            int n_rows = rows_of_group(m, g);
            for (int64_t k = 0; k < m->cols; k += PACK_ATOM) {
                int64_t width = m->cols - k < PACK_ATOM ? m->cols - k : PACK_ATOM;
                memset(acc, 0, (size_t)n * sizeof acc[0]);
                dot(m->type, group, k, width, x + c0, n, acc[0]);
                for (int c = 0; c < n; c++)
                    bad[c0 + c] += math->kernels->accumulate(
                        fix + (c0 + c) * fix_stride + g * PACK_ROWS, acc[c], n_rows);
            }
        }
    }
}

void matrix_mul_expert(const struct math *math, const struct matrix *m, int slab, int64_t g0,
                       int64_t g1, const struct cpu_column *x, int n_cols, const float *weight,
                       const int32_t *to, int64_t *fix, int64_t fix_stride, int64_t *bad)
{
    cpu_dot_fn *dot = matrix_kernel(math, m);
    _Alignas(64) float acc[COLUMN_BLOCK][PACK_ROWS];

    for (int c0 = 0; c0 < n_cols; c0 += COLUMN_BLOCK) {
        int n = n_cols - c0 < COLUMN_BLOCK ? n_cols - c0 : COLUMN_BLOCK;
        for (int64_t g = g0; g < g1; g++) {
            int n_rows = rows_of_group(m, g);
            memset(acc, 0, (size_t)n * sizeof acc[0]);
            dot(m->type, matrix_group(m, slab, g), 0, m->cols, x + c0, n, acc[0]);
            for (int c = 0; c < n; c++) {
                int32_t row = to[c0 + c];
                math->kernels->scale(acc[c], weight[c0 + c], n_rows);
                bad[row] += math->kernels->accumulate(fix + row * fix_stride + g * PACK_ROWS,
                                                      acc[c], n_rows);
            }
        }
    }
}
