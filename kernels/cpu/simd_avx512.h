/* SPDX-License-Identifier: MIT */
/* kernels/cpu/simd_avx512.h - the vector vocabulary (simd.h) on AVX-512 F, BW, DQ, VL, VNNI.
 *
 * A vector is one register.  Bytes are multiplied by vpdpbusd, unsigned times signed into
 * int32, with 4 bytes of a column broadcast from memory.  Signed codes are made unsigned by
 * adding 128, which is taken back as 128 times the sum of the column's codes; all of it is
 * exact.
 */
#ifndef KERNELS_CPU_SIMD_AVX512_H
#define KERNELS_CPU_SIMD_AVX512_H

#include <immintrin.h>
#include <math.h>

#include "kernels/cpu/simd.h"

enum { VX_COLUMNS = 8, VF_COLUMNS = 8, SCORE_QUERIES = 4, SCORE_KEYS = 4, VALUE_QUERIES = 8 };

typedef __m512 vf;
typedef __m512i vi;
typedef __m512i vb;

/* ---- Floats --------------------------------------------------------------- */

WORD vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}

WORD vf vf_zero(void)
{
    return _mm512_setzero_ps();
}

WORD vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

WORD void vf_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}

WORD __mmask16 lanes_below(int64_t n)
{
    return (__mmask16)((1u << n) - 1);
}

WORD vf vf_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(lanes_below(n), p);
}

WORD void vf_store_n(float *p, vf a, int64_t n)
{
    _mm512_mask_storeu_ps(p, lanes_below(n), a);
}

WORD vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

WORD vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

WORD vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

WORD vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

WORD vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

WORD vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

WORD vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

WORD vf vf_neg(vf a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}

WORD float vf_sum(vf a)
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

WORD float vf_max_bits(vf a, vf b)
{
    __m512i size = _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(a)),
                                    _mm512_castps_si512(_mm512_abs_ps(b)));

    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(size))));
}

WORD vf vf_load_half(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

WORD void vf_store_half(uint16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* Lanes where |a| < limit: not those with a NaN. */
WORD __mmask16 lanes_within(vf a, float limit)
{
    return _mm512_cmp_ps_mask(_mm512_abs_ps(a), _mm512_set1_ps(limit), _CMP_LT_OQ);
}

WORD int vf_round_to_i8(int8_t *q, vf a)
{
    __m512i whole = _mm512_cvtps_epi32(_mm512_maskz_mov_ps(lanes_within(a, 127.5f), a));

    _mm_storeu_si128((__m128i *)q, _mm512_cvtepi32_epi8(whole));
    return _mm512_reduce_add_epi32(whole);
}

WORD void add_fixed8(int64_t *fix, __m256 scaled)
{
    __m512i old = _mm512_loadu_si512(fix);

    _mm512_storeu_si512(fix, _mm512_add_epi64(old, _mm512_cvtps_epi64(scaled)));
}

WORD int vf_to_fixed(int64_t *fix, vf a)
{
    __mmask16 within = lanes_within(a, 0x1p23f);
    vf scaled = _mm512_maskz_mov_ps(within, vf_mul(a, vf_set1(0x1p32f)));

    add_fixed8(fix, _mm512_castps512_ps256(scaled));
    add_fixed8(fix + 8, _mm512_extractf32x8_ps(scaled, 1));
    return LANES - __builtin_popcount(within);
}

WORD vf vf_from_fixed(const int64_t *fix)
{
    __m256 low = _mm512_cvtepi64_ps(_mm512_loadu_si512(fix));
    __m256 high = _mm512_cvtepi64_ps(_mm512_loadu_si512(fix + 8));

    return vf_mul(_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1), vf_set1(0x1p-32f));
}

WORD void fixed_add(int64_t *sum, const int64_t *fix)
{
    for (int i = 0; i < LANES; i += 8) {
        __m512i a = _mm512_loadu_si512(sum + i), b = _mm512_loadu_si512(fix + i);
        _mm512_storeu_si512(sum + i, _mm512_add_epi64(a, b));
    }
}

/* ---- Integers ------------------------------------------------------------- */

WORD vi vi_set1(int x)
{
    return _mm512_set1_epi32(x);
}

WORD vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

WORD vi vi_load_i8(const void *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}

/* 16 unsigned bytes, or halves of words */
WORD vi vi_load_u8(const void *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

WORD vi vi_load_u16(const void *p)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}

WORD void vi_store(void *p, vi a)
{
    _mm512_storeu_si512(p, a);
}

/* table[16] at every byte, which is below 16 */
WORD vi vb_look_up(const int8_t *table, vi bytes)
{
    __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
    return _mm512_shuffle_epi8(t, bytes);
}

WORD vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

WORD vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}

WORD vi vi_shl(vi a, unsigned n)
{
    return _mm512_slli_epi32(a, n);
}

WORD vi vi_shr(vi a, unsigned n)
{
    return _mm512_srli_epi32(a, n);
}

WORD vi vi_and(vi a, uint32_t mask)
{
    return _mm512_and_si512(a, _mm512_set1_epi32((int)mask));
}

WORD vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}

/* Four bytes of x in every lane. */
WORD vi broadcast4(const void *x)
{
    int32_t four;

    memcpy(&four, x, sizeof four);
    return _mm512_set1_epi32(four);
}

WORD vi vi_dot2(vi a, const int16_t *x)
{
    return _mm512_madd_epi16(a, broadcast4(x));
}

WORD vf vi_to_vf(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

WORD vi vf_to_vi(vf a)
{
    return _mm512_cvtps_epi32(a);
}

WORD vf vi_as_vf(vi a)
{
    return _mm512_castsi512_ps(a);
}

/* 2^n by its bits */
WORD vf exp2_bits(vi n)
{
    return vi_as_vf(vi_shl(vi_add(n, vi_set1(127)), 23));
}

WORD vf vf_scale2(vf a, vi n)
{
    vi half = _mm512_srai_epi32(n, 1);

    return vf_mul(vf_mul(a, exp2_bits(half)), exp2_bits(vi_sub(n, half)));
}

/* ---- Dot products of a block ---------------------------------------------- */

/* Codes plus 128, [quad of columns][row][4]; the scales of both halves. */
struct vs {
    _Alignas(64) uint8_t w[8][LANES][4];
    int32_t s[2][LANES];
};

/* U6: both integer scales as pairs of int16, and (s0, s1) times what the codes are to be less. */
struct scales {
    vi s0, s1, offset;
};

struct lines {
    vb w[8];
    struct scales s;
};

union codes {
    struct vs s8;
    struct lines u;
};

struct vx {
    const int8_t *q[VX_COLUMNS];
    const int16_t *sum[VX_COLUMNS];
    int32_t bias[VX_COLUMNS][2 * ATOM_BLOCKS]; /* S8: -128 times each sum */
    _Alignas(64) int8_t copy[VX_COLUMNS][PACK_ATOM];
};

WORD void vs_put_row(struct vs *w, int r, const int8_t q[32], const int16_t s[2])
{
    for (int i = 0; i < 32; i++)
        w->w[i / 4][r][i % 4] = (uint8_t)(q[i] + 128);
    w->s[0][r] = s[0];
    w->s[1][r] = s[1];
}

WORD vb plus_128(vb a)
{
    return _mm512_xor_si512(a, vi_set1((int)0x80808080));
}

/* Quads c and 4 + c of a block; signed codes with scale 1. */
WORD void codes_put(enum form form, union codes *w, int c, vb low, vb high)
{
    if (form == FORM_S8) {
        _mm512_storeu_si512(w->s8.w[c], plus_128(low));
        _mm512_storeu_si512(w->s8.w[4 + c], plus_128(high));
    } else {
        w->u.w[c] = low;
        w->u.w[4 + c] = high;
    }
}

WORD void scales_put(union codes *w, const struct scales *s)
{
    w->u.s = *s;
}

WORD void vx_point(struct vx *v, const struct cpu_column *x, int64_t k, int nc)
{
#pragma GCC unroll 8
    for (int c = 0; c < nc; c++) {
        v->q[c] = x[c].q + k;
        v->sum[c] = x[c].sum + k / 16;
    }
}

WORD void take_bias(int32_t bias[2 * ATOM_BLOCKS], const int16_t *sum, int n_blocks)
{
    if (n_blocks == ATOM_BLOCKS) {
        vi wide = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)sum));
        _mm512_storeu_si512(bias, vi_shl(vi_sub(vi_set1(0), wide), 7));
        return;
    }
    for (int h = 0; h < 2 * n_blocks; h++)
        bias[h] = -128 * sum[h];
}

WORD void vx_prepare_few(struct vx *v, enum form form, int n_blocks, int nc)
{
    for (int c = 0; c < nc; c++)
        if (form == FORM_S8 || form == FORM_S8_SCALED)
            take_bias(v->bias[c], v->sum[c], n_blocks);
}

WORD void vx_prepare(struct vx *v, enum form form, int less, int n_blocks, int nc)
{
    (void)less;
    vx_prepare_few(v, form, n_blocks, nc);
    for (int c = 0; c < nc; c++) {
        memcpy(v->copy[c], v->q[c], (size_t)n_blocks * 32);
        v->q[c] = v->copy[c];
    }
}

/* Adds quads of columns 4h .. 4h+3 to sum[c]. */
WORD void add_half(vi *sum, const vb w[4], const struct vx *x, int b, int h, int nc)
{
#pragma GCC unroll 4
    for (int e = 0; e < 4; e++)
#pragma GCC unroll 8
        for (int c = 0; c < nc; c++)
            sum[c] =
                _mm512_dpbusd_epi32(sum[c], w[e], broadcast4(x->q[c] + 32 * b + 16 * h + 4 * e));
}

/* Both halves are chains of their own. */
WORD void block_dots(enum form form, vi *sum, const union codes *w, const struct vx *x, int b,
                     int nc)
{
    bool is_signed = form == FORM_S8 || form == FORM_S8_SCALED;
    vi high[VX_COLUMNS];
    vb codes[8];

#pragma GCC unroll 8
    for (int e = 0; e < 8; e++)
        codes[e] = is_signed ? vi_load(w->s8.w[e]) : w->u.w[e];
#pragma GCC unroll 8
    for (int c = 0; c < nc; c++) {
        sum[c] = vi_set1(is_signed ? x->bias[c][2 * b] : 0);
        high[c] = vi_set1(is_signed ? x->bias[c][2 * b + 1] : 0);
    }
    add_half(sum, codes, x, b, 0, nc);
    add_half(high, codes + 4, x, b, 1, nc);
#pragma GCC unroll 8
    for (int c = 0; c < nc; c++) {
        if (form == FORM_S8_SCALED) {
            sum[c] = _mm512_mullo_epi32(sum[c], vi_load(w->s8.s[0]));
            high[c] = _mm512_mullo_epi32(high[c], vi_load(w->s8.s[1]));
        } else if (form == FORM_U6) {
            sum[c] = _mm512_mullo_epi32(sum[c], _mm512_srai_epi32(w->u.s.s0, 16));
            high[c] = _mm512_mullo_epi32(high[c], _mm512_srai_epi32(w->u.s.s1, 16));
            sum[c] = vi_add(sum[c], vi_dot2(w->u.s.offset, x->sum[c] + 2 * b));
        }
        sum[c] = vi_add(sum[c], high[c]);
    }
}

/* ---- One block times one column, line by line ----------------------------- */

/* The sums of both halves. */
struct dot {
    vi low, high;
};

WORD void dot_line(enum form form, struct dot *d, const struct scales *s, int c, vb low, vb high,
                   const int8_t *x)
{
    (void)s;
    if (c == 0)
        d->low = d->high = vi_set1(0);
    if (form == FORM_S8) {
        low = plus_128(low);
        high = plus_128(high);
    }
    d->low = _mm512_dpbusd_epi32(d->low, low, broadcast4(x + 4 * c));
    d->high = _mm512_dpbusd_epi32(d->high, high, broadcast4(x + 16 + 4 * c));
}

WORD vi dot_sum(enum form form, const struct dot *d, const struct scales *s, const struct vx *x,
                int b, int column)
{
    vi low = d->low, high = d->high;

    if (form == FORM_S8) {
        low = vi_add(low, vi_set1(x->bias[column][2 * b]));
        high = vi_add(high, vi_set1(x->bias[column][2 * b + 1]));
    } else if (form == FORM_U6) {
        low = _mm512_mullo_epi32(low, _mm512_srai_epi32(s->s0, 16));
        high = _mm512_mullo_epi32(high, _mm512_srai_epi32(s->s1, 16));
        high = vi_add(high, vi_dot2(s->offset, x->sum[column] + 2 * b));
    }
    return vi_add(low, high);
}

#endif
