/* SPDX-License-Identifier: MIT */
/* tests/kernels/simde/immintrin.h - AVX-512 for processors that lack it.
 *
 * Standing in front of the compiler's header when tests compile cpu_kernels_avx512.c once
 * more, it gives the 512-bit names to SIMDe, which computes them with AVX2.  Below are those
 * that SIMDe 0.7.4 does not have.
 */
#ifndef TESTS_KERNELS_SIMDE_IMMINTRIN_H
#define TESTS_KERNELS_SIMDE_IMMINTRIN_H

#include_next <immintrin.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

/* SIMDe gives this one two parameters too many. */
#undef _mm512_madd_epi16
#define _mm512_madd_epi16 simde_mm512_madd_epi16

static inline __m512 simde_test_join(__m256 low, __m256 high)
{
    simde__m512_private r;

    r.m256[0] = low;
    r.m256[1] = high;
    return simde__m512_from_private(r);
}

static inline __m256 simde_test_half(__m512 a, int upper)
{
    return simde__m512_to_private(a).m256[upper];
}

static inline __m512i simde_test_join_ints(__m256i low, __m256i high)
{
    simde__m512i_private r;

    r.m256i[0] = low;
    r.m256i[1] = high;
    return simde__m512i_from_private(r);
}

static inline __m256i simde_test_half_ints(__m512i a, int upper)
{
    return simde__m512i_to_private(a).m256i[upper];
}

static inline __m512 simde_test_maskz_loadu_ps(__mmask16 mask, const float *p)
{
    float v[16] = { 0 };
    __m512 r;

    for (int i = 0; i < 16; i++)
        if (mask >> i & 1)
            v[i] = p[i];
    memcpy(&r, v, sizeof r);
    return r;
}
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps simde_test_maskz_loadu_ps

static inline void simde_test_mask_storeu_ps(float *p, __mmask16 mask, __m512 a)
{
    float v[16];

    memcpy(v, &a, sizeof v);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1)
            p[i] = v[i];
}
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps simde_test_mask_storeu_ps

static inline int simde_test_reduce_add_epi32(__m512i a)
{
    int32_t v[16], sum = 0;

    memcpy(v, &a, sizeof v);
    for (int i = 0; i < 16; i++)
        sum += v[i];
    return sum;
}
#undef _mm512_reduce_add_epi32
#define _mm512_reduce_add_epi32 simde_test_reduce_add_epi32

static inline int simde_test_reduce_max_epi32(__m512i a)
{
    int32_t v[16], max = INT32_MIN;

    memcpy(v, &a, sizeof v);
    for (int i = 0; i < 16; i++)
        max = v[i] > max ? v[i] : max;
    return max;
}
#undef _mm512_reduce_max_epi32
#define _mm512_reduce_max_epi32 simde_test_reduce_max_epi32

static inline __m512 simde_test_cvtph_ps(__m256i a)
{
    return simde_test_join(_mm256_cvtph_ps(_mm256_castsi256_si128(a)),
                           _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
}
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps simde_test_cvtph_ps

static inline __m256i simde_test_cvtps_ph(__m512 a)
{
    return _mm256_set_m128i(_mm256_cvtps_ph(simde_test_half(a, 1), _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(simde_test_half(a, 0), _MM_FROUND_TO_NEAREST_INT));
}
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph(a, rounding) simde_test_cvtps_ph(a) /* to nearest even alone */

static inline __m512 simde_test_cvtepi32_ps(__m512i a)
{
    return simde_test_join(_mm256_cvtepi32_ps(simde_test_half_ints(a, 0)),
                           _mm256_cvtepi32_ps(simde_test_half_ints(a, 1)));
}
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps simde_test_cvtepi32_ps

static inline __m512i simde_test_cvtps_epi32(__m512 a)
{
    return simde_test_join_ints(_mm256_cvtps_epi32(simde_test_half(a, 0)),
                                _mm256_cvtps_epi32(simde_test_half(a, 1)));
}
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32 simde_test_cvtps_epi32

/* Narrow integers of one half after the other. */
static inline __m512i simde_test_cvtepi8_epi32(__m128i a)
{
    return simde_test_join_ints(_mm256_cvtepi8_epi32(a),
                                _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8)));
}
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32 simde_test_cvtepi8_epi32

static inline __m512i simde_test_cvtepu8_epi32(__m128i a)
{
    return simde_test_join_ints(_mm256_cvtepu8_epi32(a),
                                _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8)));
}
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32 simde_test_cvtepu8_epi32

static inline __m512i simde_test_cvtepi16_epi32(__m256i a)
{
    return simde_test_join_ints(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(a)),
                                _mm256_cvtepi16_epi32(_mm256_extracti128_si256(a, 1)));
}
#undef _mm512_cvtepi16_epi32
#define _mm512_cvtepi16_epi32 simde_test_cvtepi16_epi32

static inline __m512i simde_test_cvtepu16_epi32(__m256i a)
{
    return simde_test_join_ints(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
                                _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)));
}
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 simde_test_cvtepu16_epi32

static inline __m128i simde_test_cvtepi32_epi8(__m512i a)
{
    int32_t v[16];
    int8_t q[16];
    __m128i r;

    memcpy(v, &a, sizeof v);
    for (int i = 0; i < 16; i++)
        q[i] = (int8_t)v[i];
    memcpy(&r, q, sizeof r);
    return r;
}
#undef _mm512_cvtepi32_epi8
#define _mm512_cvtepi32_epi8 simde_test_cvtepi32_epi8

static inline __m512i simde_test_srai_epi32(__m512i a, int n)
{
    return simde_test_join_ints(_mm256_srai_epi32(simde_test_half_ints(a, 0), n),
                                _mm256_srai_epi32(simde_test_half_ints(a, 1), n));
}
#undef _mm512_srai_epi32
#define _mm512_srai_epi32 simde_test_srai_epi32

static inline __m512i simde_test_cvtps_epi64(__m256 a)
{
    float v[8];
    int64_t whole[8];
    __m512i r;

    memcpy(v, &a, sizeof v);
    for (int i = 0; i < 8; i++)
        whole[i] = fabsf(v[i]) < 0x1p63f ? (int64_t)llrintf(v[i]) : INT64_MIN;
    memcpy(&r, whole, sizeof r);
    return r;
}
#undef _mm512_cvtps_epi64
#define _mm512_cvtps_epi64 simde_test_cvtps_epi64

static inline __m256 simde_test_cvtepi64_ps(__m512i a)
{
    int64_t v[8];
    float f[8];
    __m256 r;

    memcpy(v, &a, sizeof v);
    for (int i = 0; i < 8; i++)
        f[i] = (float)v[i];
    memcpy(&r, f, sizeof r);
    return r;
}
#undef _mm512_cvtepi64_ps
#define _mm512_cvtepi64_ps simde_test_cvtepi64_ps

#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(a, upper) simde_test_half(a, upper)

#endif
