/* SPDX-License-Identifier: MIT */
/* kernels/cpu/simd_avx2.h - the vector vocabulary (simd.h) on AVX2, FMA and F16C.
 *
 * A vector is two registers: lanes 0-7 and 8-15.
 */
#ifndef KERNELS_CPU_SIMD_AVX2_H
#define KERNELS_CPU_SIMD_AVX2_H

#include <immintrin.h>
#include <math.h>

#include "kernels/cpu/simd.h"

enum { VX_COLUMNS = 4, VF_COLUMNS = 4, SCORE_QUERIES = 2, SCORE_KEYS = 3, VALUE_QUERIES = 4 };

typedef struct {
    __m256 lo, hi;
} vf;

typedef struct {
    __m256i lo, hi;
} vi;

typedef vi vb;

/* ---- Floats --------------------------------------------------------------- */

WORD vf vf_set1(float x)
{
    return (vf){ _mm256_set1_ps(x), _mm256_set1_ps(x) };
}

WORD vf vf_zero(void)
{
    return (vf){ _mm256_setzero_ps(), _mm256_setzero_ps() };
}

WORD vf vf_load(const float *p)
{
    return (vf){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) };
}

WORD void vf_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}

/* Lanes below n. */
WORD vi lanes_below(int64_t n)
{
    __m256i count = _mm256_set1_epi32((int)n), lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i upper = _mm256_add_epi32(lane, _mm256_set1_epi32(8));

    return (vi){ _mm256_cmpgt_epi32(count, lane), _mm256_cmpgt_epi32(count, upper) };
}

WORD vf vf_load_n(const float *p, int64_t n)
{
    vi mask = lanes_below(n);
    return (vf){ _mm256_maskload_ps(p, mask.lo), _mm256_maskload_ps(p + 8, mask.hi) };
}

WORD void vf_store_n(float *p, vf a, int64_t n)
{
    vi mask = lanes_below(n);
    _mm256_maskstore_ps(p, mask.lo, a.lo);
    _mm256_maskstore_ps(p + 8, mask.hi, a.hi);
}

WORD vf vf_add(vf a, vf b)
{
    return (vf){ _mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi) };
}

WORD vf vf_sub(vf a, vf b)
{
    return (vf){ _mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi) };
}

WORD vf vf_mul(vf a, vf b)
{
    return (vf){ _mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi) };
}

WORD vf vf_div(vf a, vf b)
{
    return (vf){ _mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi) };
}

WORD vf vf_min(vf a, vf b)
{
    return (vf){ _mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi) };
}

WORD vf vf_max(vf a, vf b)
{
    return (vf){ _mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi) };
}

WORD vf vf_fma(vf a, vf b, vf c)
{
    return (vf){ _mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi) };
}

WORD vf vf_neg(vf a)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (vf){ _mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign) };
}

WORD vf vf_abs(vf a)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (vf){ _mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi) };
}

WORD float vf_sum(vf a)
{
    __m256 eight = _mm256_add_ps(a.lo, a.hi);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

WORD float vf_max_bits(vf a, vf b)
{
    vf a_abs = vf_abs(a), b_abs = vf_abs(b);
    __m256i two = _mm256_max_epi32(
        _mm256_max_epi32(_mm256_castps_si256(a_abs.lo), _mm256_castps_si256(a_abs.hi)),
        _mm256_max_epi32(_mm256_castps_si256(b_abs.lo), _mm256_castps_si256(b_abs.hi)));
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));

    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(m));
}

WORD vf vf_load_half(const uint16_t *p)
{
    return (vf){ _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))) };
}

WORD void vf_store_half(uint16_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

/* a where |a| < limit, otherwise 0 */
WORD vf keep_below(vf a, float limit)
{
    vf size = vf_abs(a);
    __m256 l = _mm256_set1_ps(limit);

    return (vf){ _mm256_and_ps(a.lo, _mm256_cmp_ps(size.lo, l, _CMP_LT_OQ)),
                 _mm256_and_ps(a.hi, _mm256_cmp_ps(size.hi, l, _CMP_LT_OQ)) };
}

WORD int vf_round_to_i8(int8_t *q, vf a)
{
    vf kept = keep_below(a, 127.5f);
    __m256i words =
        _mm256_packs_epi32(_mm256_cvtps_epi32(kept.lo), _mm256_cvtps_epi32(kept.hi)); /* 0 2 1 3 */
    __m256i pairs = _mm256_madd_epi16(words, _mm256_set1_epi16(1));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));

    words = _mm256_permute4x64_epi64(words, 0xd8);
    _mm_storeu_si128((__m128i *)q, _mm_packs_epi16(_mm256_castsi256_si128(words),
                                                   _mm256_extracti128_si256(words, 1)));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(sum);
}

/* Four doubles below 2^51 to int64 and back: 1.5 * 2^52 brings the units of both to the
 * same place, and the addition rounds to nearest even. */
WORD __m256d fixed_magic(void)
{
    return _mm256_set1_pd(0x1.8p52);
}

WORD void add_fixed4(int64_t *fix, __m128 a)
{
    __m256d magic = fixed_magic();
    __m256d biased = _mm256_fmadd_pd(_mm256_cvtps_pd(a), _mm256_set1_pd(0x1p32), magic);
    __m256i whole = _mm256_sub_epi64(_mm256_castpd_si256(biased), _mm256_castpd_si256(magic));
    __m256i old = _mm256_loadu_si256((const __m256i *)fix);

    _mm256_storeu_si256((__m256i *)fix, _mm256_add_epi64(old, whole));
}

WORD int vf_to_fixed(int64_t *fix, vf a)
{
    vf size = vf_abs(a);
    __m256 limit = _mm256_set1_ps(0x1p18f), below;
    float v[LANES];
    int bad = 0;

    below = _mm256_and_ps(_mm256_cmp_ps(size.lo, limit, _CMP_LT_OQ),
                          _mm256_cmp_ps(size.hi, limit, _CMP_LT_OQ));
    if (_mm256_movemask_ps(below) == 255) {
        add_fixed4(fix, _mm256_castps256_ps128(a.lo));
        add_fixed4(fix + 4, _mm256_extractf128_ps(a.lo, 1));
        add_fixed4(fix + 8, _mm256_castps256_ps128(a.hi));
        add_fixed4(fix + 12, _mm256_extractf128_ps(a.hi, 1));
        return 0;
    }
    vf_store(v, a);
    for (int i = 0; i < LANES; i++) {
        if (fabsf(v[i]) < 0x1p23f)
            fix[i] += _mm_cvtss_si64(_mm_set_ss(v[i] * 0x1p32f));
        else
            bad++;
    }
    return bad;
}

/* Exact in double, then rounded once. */
WORD __m128 from_fixed4(__m256i fix)
{
    __m256d magic = fixed_magic();
    __m256i biased = _mm256_add_epi64(fix, _mm256_castpd_si256(magic));

    return _mm256_cvtpd_ps(_mm256_sub_pd(_mm256_castsi256_pd(biased), magic));
}

WORD vf vf_from_fixed(const int64_t *fix)
{
    const __m256i *p = (const __m256i *)fix;
    __m256i a = _mm256_loadu_si256(p), b = _mm256_loadu_si256(p + 1), c = _mm256_loadu_si256(p + 2),
            d = _mm256_loadu_si256(p + 3);
    __m256i bias = _mm256_set1_epi64x(INT64_C(1) << 51), high; /* 0 if all are below 2^51 */
    float v[LANES];

    high = _mm256_or_si256(_mm256_or_si256(_mm256_add_epi64(a, bias), _mm256_add_epi64(b, bias)),
                           _mm256_or_si256(_mm256_add_epi64(c, bias), _mm256_add_epi64(d, bias)));
    high = _mm256_srli_epi64(high, 52);
    if (_mm256_testz_si256(high, high)) {
        vf r = { _mm256_set_m128(from_fixed4(b), from_fixed4(a)),
                 _mm256_set_m128(from_fixed4(d), from_fixed4(c)) };
        return vf_mul(r, vf_set1(0x1p-32f));
    }
    for (int i = 0; i < LANES; i++)
        v[i] = (float)fix[i] * 0x1p-32f;
    return vf_load(v);
}

WORD void fixed_add(int64_t *sum, const int64_t *fix)
{
    for (int i = 0; i < LANES; i += 4) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(sum + i));
        __m256i b = _mm256_loadu_si256((const __m256i *)(fix + i));
        _mm256_storeu_si256((__m256i *)(sum + i), _mm256_add_epi64(a, b));
    }
}

/* ---- Integers ------------------------------------------------------------- */

WORD vi vi_set1(int x)
{
    return (vi){ _mm256_set1_epi32(x), _mm256_set1_epi32(x) };
}

WORD vi vi_load(const void *p)
{
    return (vi){ _mm256_loadu_si256((const __m256i *)p),
                 _mm256_loadu_si256((const __m256i *)p + 1) };
}

/* 16 signed bytes */
WORD vi vi_load_i8(const void *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    return (vi){ _mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)) };
}

/* 16 unsigned bytes, or halves of words */
WORD vi vi_load_u8(const void *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    return (vi){ _mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)) };
}

WORD vi vi_load_u16(const void *p)
{
    return (vi){ _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p + 1)) };
}

WORD void vi_store(void *p, vi a)
{
    _mm256_storeu_si256((__m256i *)p, a.lo);
    _mm256_storeu_si256((__m256i *)p + 1, a.hi);
}

/* table[16] at every byte, which is below 16 */
WORD vi vb_look_up(const int8_t *table, vi bytes)
{
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (vi){ _mm256_shuffle_epi8(t, bytes.lo), _mm256_shuffle_epi8(t, bytes.hi) };
}

WORD vi vi_sub(vi a, vi b)
{
    return (vi){ _mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi) };
}

WORD vi vi_shl(vi a, unsigned n)
{
    return (vi){ _mm256_slli_epi32(a.lo, (int)n), _mm256_slli_epi32(a.hi, (int)n) };
}

WORD vi vi_shr(vi a, unsigned n)
{
    return (vi){ _mm256_srli_epi32(a.lo, (int)n), _mm256_srli_epi32(a.hi, (int)n) };
}

WORD vi vi_and(vi a, uint32_t mask)
{
    __m256i m = _mm256_set1_epi32((int)mask);
    return (vi){ _mm256_and_si256(a.lo, m), _mm256_and_si256(a.hi, m) };
}

WORD vi vi_or(vi a, vi b)
{
    return (vi){ _mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi) };
}

/* Four bytes of x in every lane. */
WORD __m256i broadcast4(const void *x)
{
    int32_t four;

    memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}

WORD vi vi_dot2(vi a, const int16_t *x)
{
    __m256i pair = broadcast4(x);
    return (vi){ _mm256_madd_epi16(a.lo, pair), _mm256_madd_epi16(a.hi, pair) };
}

WORD vf vi_to_vf(vi a)
{
    return (vf){ _mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi) };
}

WORD vi vf_to_vi(vf a)
{
    return (vi){ _mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi) };
}

WORD vf vi_as_vf(vi a)
{
    return (vf){ _mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi) };
}

/* 2^n by its bits */
WORD __m256 exp2_bits(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

WORD vf vf_scale2(vf a, vi n)
{
    vi half = { _mm256_srai_epi32(n.lo, 1), _mm256_srai_epi32(n.hi, 1) }, rest = vi_sub(n, half);

    a = vf_mul(a, (vf){ exp2_bits(half.lo), exp2_bits(half.hi) });
    return vf_mul(a, (vf){ exp2_bits(rest.lo), exp2_bits(rest.hi) });
}

#endif
