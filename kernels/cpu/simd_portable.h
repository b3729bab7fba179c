/* SPDX-License-Identifier: MIT */
/* kernels/cpu/simd_portable.h - the vector vocabulary (simd.h) in plain C.
 *
 * This is the definition of every word.  It is also meant to be read: where an
 * instruction has a corner case that the others must share, it is spelled out here.
 */
#ifndef KERNELS_CPU_SIMD_PORTABLE_H
#define KERNELS_CPU_SIMD_PORTABLE_H

#include <math.h>

#define WORD static inline
#include "kernels/cpu/simd.h"

enum { VX_COLUMNS = 4, VF_COLUMNS = 4, SCORE_QUERIES = 2, SCORE_KEYS = 2, VALUE_QUERIES = 2 };

typedef struct {
    float v[LANES];
} vf;

typedef struct {
    int32_t v[LANES];
} vi;

/* ---- Floats --------------------------------------------------------------- */

WORD vf vf_set1(float x)
{
    vf r;
    for (int i = 0; i < LANES; i++)
        r.v[i] = x;
    return r;
}

WORD vf vf_zero(void)
{
    return vf_set1(0);
}

WORD vf vf_load(const float *p)
{
    vf r;
    memcpy(r.v, p, sizeof r.v);
    return r;
}

/* The first n < 16 values, the other lanes zero. */
WORD vf vf_load_n(const float *p, int64_t n)
{
    vf r = vf_zero();
    memcpy(r.v, p, (size_t)n * sizeof *p);
    return r;
}

WORD void vf_store(float *p, vf a)
{
    memcpy(p, a.v, sizeof a.v);
}

WORD void vf_store_n(float *p, vf a, int64_t n)
{
    memcpy(p, a.v, (size_t)n * sizeof *p);
}

WORD vf vf_add(vf a, vf b)
{
    for (int i = 0; i < LANES; i++)
        a.v[i] += b.v[i];
    return a;
}

WORD vf vf_sub(vf a, vf b)
{
    for (int i = 0; i < LANES; i++)
        a.v[i] -= b.v[i];
    return a;
}

WORD vf vf_mul(vf a, vf b)
{
    for (int i = 0; i < LANES; i++)
        a.v[i] *= b.v[i];
    return a;
}

WORD vf vf_div(vf a, vf b)
{
    for (int i = 0; i < LANES; i++)
        a.v[i] /= b.v[i];
    return a;
}

WORD vf vf_min(vf a, vf b)
{
    for (int i = 0; i < LANES; i++)
        a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
    return a;
}

WORD vf vf_max(vf a, vf b)
{
    for (int i = 0; i < LANES; i++)
        a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return a;
}

WORD vf vf_neg(vf a)
{
    for (int i = 0; i < LANES; i++)
        a.v[i] = -a.v[i];
    return a;
}

/* a * b + c, rounded once */
WORD vf vf_fma(vf a, vf b, vf c)
{
    for (int i = 0; i < LANES; i++)
        a.v[i] = fmaf(a.v[i], b.v[i], c.v[i]);
    return a;
}

/* The fixed tree: lanes 8 apart, 4 apart, 2 apart, 1 apart. */
WORD float vf_sum(vf a)
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            a.v[i] += a.v[i + half];
    return a.v[0];
}

/* The largest |a|, |b| by bit pattern: a NaN is larger than infinity and so survives. */
WORD float vf_max_bits(vf a, vf b)
{
    vf both[2] = { a, b };
    uint32_t bits[2 * LANES], max = 0;
    float f;

    memcpy(bits, both, sizeof bits);
    for (int i = 0; i < 2 * LANES; i++)
        if ((bits[i] & 0x7fffffff) > max)
            max = bits[i] & 0x7fffffff;
    memcpy(&f, &max, sizeof f);
    return f;
}

WORD vf vf_load_half(const uint16_t *p)
{
    vf r;
    for (int i = 0; i < LANES; i++)
        r.v[i] = half_to_float(p[i]);
    return r;
}

WORD void vf_store_half(uint16_t *p, vf a)
{
    for (int i = 0; i < LANES; i++)
        p[i] = half_from_float(a.v[i]);
}

/* Rounds to nearest even into q[16] and returns the sum; what is not |a| < 127.5 becomes 0. */
WORD int vf_round_to_i8(int8_t *q, vf a)
{
    int sum = 0;

    for (int i = 0; i < LANES; i++) {
        q[i] = (int8_t)(fabsf(a.v[i]) < 127.5f ? lrintf(a.v[i]) : 0);
        sum += q[i];
    }
    return sum;
}

/* fix[i] += round(a[i] * 2^32) where |a[i]| < 2^23; returns how many are not. */
WORD int vf_to_fixed(int64_t *fix, vf a)
{
    int bad = 0;

    for (int i = 0; i < LANES; i++) {
        if (fabsf(a.v[i]) < 0x1p23f)
            fix[i] += llrintf(a.v[i] * 0x1p32f);
        else
            bad++;
    }
    return bad;
}

/* (float)fix[i] * 2^-32 */
WORD vf vf_from_fixed(const int64_t *fix)
{
    vf r;
    for (int i = 0; i < LANES; i++)
        r.v[i] = (float)fix[i] * 0x1p-32f;
    return r;
}

/* sum[i] += fix[i] */
WORD void fixed_add(int64_t *sum, const int64_t *fix)
{
    for (int i = 0; i < LANES; i++)
        sum[i] += fix[i];
}

/* ---- Integers ------------------------------------------------------------- */

WORD vi vi_load(const void *p)
{
    vi r;
    memcpy(r.v, p, sizeof r.v);
    return r;
}

WORD vi vi_shl(vi a, unsigned n)
{
    for (int i = 0; i < LANES; i++)
        a.v[i] = (int32_t)((uint32_t)a.v[i] << n);
    return a;
}

WORD vi vi_and(vi a, uint32_t mask)
{
    for (int i = 0; i < LANES; i++)
        a.v[i] = (int32_t)((uint32_t)a.v[i] & mask);
    return a;
}

/* Each lane of a holds two int16: a0 * x[0] + a1 * x[1]. */
WORD vi vi_dot2(vi a, const int16_t *x)
{
    int16_t pairs[LANES][2];

    memcpy(pairs, a.v, sizeof pairs);
    for (int i = 0; i < LANES; i++)
        a.v[i] = pairs[i][0] * x[0] + pairs[i][1] * x[1];
    return a;
}

WORD vf vi_to_vf(vi a)
{
    vf r;
    for (int i = 0; i < LANES; i++)
        r.v[i] = (float)a.v[i];
    return r;
}

/* To nearest even; what an int32 cannot hold, NaN included, becomes INT32_MIN. */
WORD vi vf_to_vi(vf a)
{
    vi r;
    for (int i = 0; i < LANES; i++)
        r.v[i] = fabsf(a.v[i]) < 0x1p31f ? (int32_t)lrintf(a.v[i]) : INT32_MIN;
    return r;
}

WORD vf vi_as_vf(vi a)
{
    vf r;
    memcpy(&r, &a, sizeof r);
    return r;
}

/* a * 2^n for n within [-252, 252], in two steps so that the range of f32 decides */
WORD vf vf_scale2(vf a, vi n)
{
    for (int i = 0; i < LANES; i++) {
        int half = n.v[i] >> 1;
        uint32_t bits[2] = { (uint32_t)(half + 127) << 23, (uint32_t)(n.v[i] - half + 127) << 23 };
        float two[2];

        memcpy(two, bits, sizeof two);
        a.v[i] = a.v[i] * two[0] * two[1];
    }
    return a;
}

/* ---- Dot products of a block ---------------------------------------------- */

/* The codes times their scales, [column][row]. */
struct vs {
    int16_t w[32][LANES];
};

union codes {
    struct vs s8;
};

struct vx {
    const int8_t *q[VX_COLUMNS];
};

/* Row r of a block: codes q, of which the first 16 have scale s[0].  |s * q| < 2^15. */
WORD void vs_put_row(struct vs *w, int r, const int8_t q[32], const int16_t s[2])
{
    for (int i = 0; i < 32; i++)
        w->w[i][r] = (int16_t)(q[i] * s[i / 16]);
}

WORD void vx_point(struct vx *v, const struct cpu_column *x, int64_t k, int nc)
{
    for (int c = 0; c < nc; c++)
        v->q[c] = x[c].q + k;
}

WORD void vx_prepare(struct vx *v, enum form form, int less, int n_blocks, int nc)
{
    (void)v;
    (void)form;
    (void)less;
    (void)n_blocks;
    (void)nc;
}

WORD void block_dots(enum form form, vi *sum, const union codes *w, const struct vx *x, int b,
                     int nc)
{
    (void)form;
    for (int c = 0; c < nc; c++) {
        const int8_t *q = x->q[c] + 32 * b;
        int32_t s[LANES] = { 0 };

        for (int i = 0; i < 32; i++)
            for (int r = 0; r < LANES; r++)
                s[r] += w->s8.w[i][r] * q[i];
        memcpy(sum[c].v, s, sizeof s);
    }
}

#endif
