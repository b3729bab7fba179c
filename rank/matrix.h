/* SPDX-License-Identifier: MIT */
/* rank/matrix.h - a weight matrix in host memory, and its products.
 *
 * A matrix is [n_slabs][rows][cols] in the x16 form of kernels/packing.h: one slab for
 * an ordinary matrix, one per expert for expert tensors, one per head for k_b and v_b.
 *
 *     y[r] = sum over k of W[r][k] * x[k]
 *
 * Products are computed for a range of 16-row groups, so that the threads of a rank
 * share a matrix by rows and no sum crosses two of them.
 */
#ifndef RANK_MATRIX_H
#define RANK_MATRIX_H

#include "base/arena.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/packing.h"

struct matrix {
    enum quant type; /* a plain type                                  */
    int64_t rows, cols;
    int n_slabs;
    int64_t n_groups; /* of a slab: rows / 16, rounded up             */
    size_t group_bytes;
    uint8_t *data; /* [n_slabs][n_groups][group_bytes], in an arena   */
};

/* Sets all but data. */
void matrix_init(struct matrix *m, enum quant type, int64_t rows, int64_t cols, int n_slabs);

/* Bytes of `data`. */
size_t matrix_bytes(const struct matrix *m);

static inline const uint8_t *matrix_group(const struct matrix *m, int slab, int64_t group)
{
    return m->data + ((size_t)slab * (size_t)m->n_groups + (size_t)group) * m->group_bytes;
}

/* How a rank computes: which kernels, and whether activations stay in float. */
struct math {
    const struct cpu_kernels *kernels;
    int exact; /* --exact-math */
};

/* Whether columns for this matrix are to be quantised to int8: not for F32, F16 and BF16, nor
 * under --exact-math, nor where 32 does not divide the width. */
int matrix_wants_int8(const struct math *math, const struct matrix *m);

/* y[c * y_stride + r] for the rows of groups [g0, g1) of one slab and all columns; each output
 * is one f32 chain over the whole width.  x: [n_cols]. */
void matrix_mul(const struct math *math, const struct matrix *m, int slab, int64_t g0, int64_t g1,
                const struct cpu_column *x, int n_cols, float *y, int64_t y_stride);

/* The same in atoms (docs/design.md, section 8): each 256-column partial is added to
 * fix[c * fix_stride + r] as an integer.  bad[c] grows by the partials that were out of range. */
void matrix_mul_atoms(const struct math *math, const struct matrix *m, int slab, int64_t g0,
                      int64_t g1, const struct cpu_column *x, int n_cols, int64_t *fix,
                      int64_t fix_stride, int64_t *bad);

/* A routed expert: its whole output times its weight is one atom.  Rows of column c go to
 * fix[to[c] * fix_stride + r] as round(weight[c] * y * 2^32), out-of-range ones to bad[to[c]]. */
void matrix_mul_expert(const struct math *math, const struct matrix *m, int slab, int64_t g0,
                       int64_t g1, const struct cpu_column *x, int n_cols, const float *weight,
                       const int32_t *to, int64_t *fix, int64_t fix_stride, int64_t *bad);

#endif
