/* SPDX-License-Identifier: MIT */
/* kernels/cpu/cpu_kernels.h - the CPU's kernels, as one table per instruction set.
 *
 * Each table comes from one file, cpu_kernels_<isa>.c, which is the same templates
 * (dot.inc, vector.inc, attention.inc) compiled over another simd_<isa>.h.
 * Nothing else of those files is visible.  The portable table is complete by
 * definition: it defines the bits, and every other table is compared with it by
 * memcmp.
 *
 * Matrices lie in the x16 form (kernels/packing.h): 16 rows side by side, one
 * sequential stream.  Lanes are rows, so no kernel ever adds across lanes, and one
 * column or many meet the same data in the same order.
 *
 * The arithmetic of one output (row r, column x), over 32-column blocks b ascending,
 * from acc = 0; i_b is the exact integer dot product of the block:
 *
 *     SCALE32   acc = fma((float)i_b, d_b * xd_b, acc)
 *               acc = fma(m_b, xs_b, acc)                  types with a minimum
 *     SCALE16   acc = fma((float)(s0*i0 + s1*i1), d_b * xd_b, acc)       integers in int32
 *               acc = fma((float)(n0*x0 + n1*x1), m_b * xd_b, acc)       types with a minimum
 *     FLOAT     acc = fma(w_k, x_k, acc)                   for each column k
 *
 * with xd_b the activation scale, x0, x1 the activation sums of 16 and
 * xs_b = xd_b * (float)(x0 + x1).
 */
#ifndef KERNELS_CPU_CPU_KERNELS_H
#define KERNELS_CPU_CPU_KERNELS_H

#include "kernels/quants.h"

enum cpu_feature { CPU_AVX2 = 1 << 0, CPU_AVX512_VNNI = 1 << 1 };

/* One column: a token's activations, in all the forms that a matrix may ask for.
 * n is the number of columns of the matrix.  Pointers are borrowed. */
struct cpu_column {
    const float *f;     /* [n]     the values themselves                      */
    const int8_t *q;    /* [n]     round(f / d), within [-127, 127]; NULL when not quantised */
    const float *d;     /* [n/32]  scale of each 32: max|f| / 127             */
    const float *s;     /* [n/32]  d * (float)(sum of the block's q)          */
    const int16_t *sum; /* [n/16]  sum of q over each 16                      */
};

/* x16 groups of one matrix: `group` is the first one's first byte.  What kernels prepare of the
 * columns serves all groups of a call, so give them a dozen or more. */
struct cpu_rows {
    enum quant t;
    int n_groups;
    const uint8_t *group;
    size_t group_bytes;
};

/* acc[g][c][0..15] += the 16 rows of group g times column c, over matrix columns
 * k0 .. k0 + n - 1.  x[c] is the whole column; k0 is a multiple of 256, n too unless it
 * reaches the end of the row.
 * acc: [n_groups][n_cols][16] f32, read and written.  n_groups and n_cols >= 1, any number. */
typedef void cpu_dot_fn(const struct cpu_rows *w, int64_t k0, int64_t n, const struct cpu_column *x,
                        int n_cols, float *acc);

struct cpu_kernels {
    const char *isa;
    unsigned needs; /* cpu_feature bits, all of which the machine must have */

    /* Integer activations: every type but the FLOAT ones. */
    cpu_dot_fn *dot[QUANT_COUNT];
    /* Float activations: FLOAT types always, the others under --exact-math. */
    cpu_dot_fn *dot_float[QUANT_COUNT];

    /* Rounds x[n] to int8 with a scale per 32 (n a multiple of 32): d = max|x| / 127,
     * q = round-to-nearest-even(x * (1/d)), 0 where d is 0. */
    void (*quantize)(const float *x, int64_t n, int8_t *q, float *d, float *s, int16_t *sum);

    /* fix[i] += round(v[i] * 2^32), to nearest even, for i < n.  Returns how many v
     * are not |v| < 2^23 (NaN included); these add nothing. */
    int64_t (*accumulate)(int64_t *fix, const float *v, int64_t n);

    /* x[i] += (float)fix[i] * 2^-32, the conversion rounding once; then fix[i] = 0. */
    void (*settle)(float *x, int64_t *fix, int64_t n);

    /* sum[i] += fix[i], as integers. */
    void (*add_fixed)(int64_t *sum, const int64_t *fix, int64_t n);

    /* y = x / sqrt(mean(x^2) + eps) * w.  The sum of squares is kept in 16 lanes (lane
     * i % 16, ascending, fma) joined by the fixed tree of vector.inc.  y may be x. */
    void (*rms_norm)(float *y, const float *x, const float *w, int64_t n, float eps);

    /* a[i] = silu(a[i]) * b[i] */
    void (*swiglu)(float *a, const float *b, int64_t n);

    /* p[i] = exp(x[i] - max), returning the sum (16 lanes, fixed tree); p may be x. */
    float (*softmax_part)(float *p, const float *x, int64_t n, float max);

    /* p[i] = 1 / (1 + exp(-x[i])); p may be x. */
    void (*sigmoid)(float *p, const float *x, int64_t n);

    /* Dot product over n columns: 16 lanes, fma ascending, fixed tree.  Any n. */
    float (*dot_f32)(const float *a, const float *b, int64_t n);

    /* y[i] *= a */
    void (*scale)(float *y, float a, int64_t n);

    /* s[q][k] = scale * (a[q] . ka[k] + b[q] . kb[k]): the latent and the rope part of a
     * score, each a dot_f32, added once.  q < n_queries rows at strides a_stride, b_stride;
     * k < n_keys rows at ka_stride, kb_stride (in floats); s at s_stride. */
    void (*scores)(float *s, int64_t s_stride, const float *a, int64_t a_stride, const float *b,
                   int64_t b_stride, int64_t n_queries, const float *ka, int64_t ka_stride,
                   const float *kb, int64_t kb_stride, int64_t n_keys, int64_t n_a, int64_t n_b,
                   float scale);

    /* o[q][i] = fma(p[q][k], v[k][i], o[q][i]) for k ascending, i < n_dims. */
    void (*values)(float *o, int64_t o_stride, const float *p, int64_t p_stride, int64_t n_queries,
                   const float *v, int64_t v_stride, int64_t n_keys, int64_t n_dims);

    /* Latent cache rows: n values to and from each cache type. */
    void (*half_to_f32)(float *out, const uint16_t *in, int64_t n);
    void (*f32_to_half)(uint16_t *out, const float *in, int64_t n);
};

extern const struct cpu_kernels cpu_kernels_portable, cpu_kernels_avx2, cpu_kernels_avx512;

/* Every table compiled into this binary, best first; ends with the portable one, then NULL. */
extern const struct cpu_kernels *const cpu_kernels_all[];

/* The first table that this machine can run, among the features in `allowed`
 * (~0u for all: tests and `--cpu-isa` pass less).  Never NULL. */
const struct cpu_kernels *cpu_kernels_pick(unsigned allowed);

/* The table called `isa` ("portable", "avx2", "avx512") if this machine can run it, or NULL. */
const struct cpu_kernels *cpu_kernels_by_name(const char *isa);

#endif
