/* SPDX-License-Identifier: MIT */
/* kernels/cpu/simd_avx2_dots.h - integer dot products of a block (simd.h) on AVX2.
 *
 * Bytes are multiplied by vpmaddubsw, unsigned times signed, which adds two products in a
 * saturating int16.  How many such pairs an int16 can take decides about the forms: eight
 * for 4-bit codes (8 * 2 * 15 * 127 = 30,480), four for 5 bits, two for 6 (for many columns,
 * which take the codes' constant off first, four), one for |w| of signed bytes.  Only then are they
 * widened by vpmaddwd.  For many columns, signed codes are kept as int16, already times their
 * integer scales, and need vpmaddwd alone.
 */
#ifndef KERNELS_CPU_SIMD_AVX2_DOTS_H
#define KERNELS_CPU_SIMD_AVX2_DOTS_H

#include "kernels/cpu/simd_avx2.h"

/* ---- Dot products of a block ---------------------------------------------- */

/* Codes times scales, [quad of columns][its columns 0 and 2, or 1 and 3][row][2]. */
struct vs {
    _Alignas(64) int16_t w[8][2][LANES][2];
};

/* U6: both integer scales as pairs of int16, and (s0, s1) times what the codes are to be less. */
struct scales {
    vi s0, s1, offset;
};

struct lines {
    vb w[8];
    vi s0, s1;
};

union codes {
    struct vs s8;
    struct lines u;
};

struct vx {
    const int8_t *q[VX_COLUMNS]; /* few columns are read where they lie */
    const int16_t *sum[VX_COLUMNS];
    union {
        _Alignas(64) int8_t byte[ATOM_BLOCKS][8][VX_COLUMNS][4];
        int16_t wide[ATOM_BLOCKS][2][8][VX_COLUMNS][2]; /* S8: as in struct vs */
    };
    int16_t less[ATOM_BLOCKS][2][VX_COLUMNS][2]; /* U6: the codes' constant times 16 columns */
};

WORD void vs_put_row(struct vs *w, int r, const int8_t q[32], const int16_t s[2])
{
    for (int i = 0; i < 32; i++)
        w->w[i / 4][i % 2][r][i % 4 / 2] = (int16_t)(q[i] * s[i / 16]);
}

/* Bytes 0 and 2, and bytes 1 and 3, of every lane, widened to int16. */
WORD __m256i even_bytes(__m256i a)
{
    return _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8);
}

WORD __m256i odd_bytes(__m256i a)
{
    return _mm256_srai_epi16(a, 8);
}

/* Quads c and 4 + c of a block; signed codes with scale 1. */
WORD void codes_put(enum form form, union codes *w, int c, vb low, vb high)
{
    if (form == FORM_S8) {
        __m256i *l = (__m256i *)w->s8.w[c], *h = (__m256i *)w->s8.w[4 + c];

        l[0] = even_bytes(low.lo);
        l[1] = even_bytes(low.hi);
        l[2] = odd_bytes(low.lo);
        l[3] = odd_bytes(low.hi);
        h[0] = even_bytes(high.lo);
        h[1] = even_bytes(high.hi);
        h[2] = odd_bytes(high.lo);
        h[3] = odd_bytes(high.hi);
    } else {
        w->u.w[c] = low;
        w->u.w[4 + c] = high;
    }
}

WORD void scales_put(union codes *w, const struct scales *s)
{
    w->u.s0 = s->s0;
    w->u.s1 = s->s1;
}

WORD void vx_point(struct vx *v, const struct cpu_column *x, int64_t k, int nc)
{
#pragma GCC unroll 8
    for (int c = 0; c < nc; c++) {
        v->q[c] = x[c].q + k;
        v->sum[c] = x[c].sum + k / 16;
    }
}

/* Four columns of eight words to eight times the words of all four. */
WORD void put_quads(__m256i to[4], const __m256i x[4])
{
    __m256i a = _mm256_unpacklo_epi32(x[0], x[1]), b = _mm256_unpacklo_epi32(x[2], x[3]);
    __m256i c = _mm256_unpackhi_epi32(x[0], x[1]), d = _mm256_unpackhi_epi32(x[2], x[3]);
    __m256i w04 = _mm256_unpacklo_epi64(a, b), w15 = _mm256_unpackhi_epi64(a, b);
    __m256i w26 = _mm256_unpacklo_epi64(c, d), w37 = _mm256_unpackhi_epi64(c, d);

    _mm256_store_si256(to, _mm256_permute2x128_si256(w04, w15, 0x20));
    _mm256_store_si256(to + 1, _mm256_permute2x128_si256(w26, w37, 0x20));
    _mm256_store_si256(to + 2, _mm256_permute2x128_si256(w04, w15, 0x31));
    _mm256_store_si256(to + 3, _mm256_permute2x128_si256(w26, w37, 0x31));
}

/* In each half of a block the columns that meet in the even int16 of a row, and the others. */
WORD void put_less(struct vx *v, int b, int c, __m256i x, int less)
{
    __m256i sum = _mm256_maddubs_epi16(_mm256_set1_epi8(1), x);

    sum = _mm256_add_epi16(sum, _mm256_shuffle_epi32(sum, 0x4e));
    sum = _mm256_add_epi16(sum, _mm256_shuffle_epi32(sum, 0xb1));
    sum = _mm256_mullo_epi16(sum, _mm256_set1_epi16((int16_t)-less));
    memcpy(v->less[b][0][c], &sum, sizeof v->less[b][0][c]);
    memcpy(v->less[b][1][c], (const char *)&sum + 16, sizeof v->less[b][0][c]);
}

WORD void vx_prepare(struct vx *v, enum form form, int less, int n_blocks, int nc)
{
    bool wide = form == FORM_S8 || form == FORM_S8_SCALED;

    for (int b = 0; b < n_blocks; b++) {
        __m256i q[VX_COLUMNS], even[VX_COLUMNS], odd[VX_COLUMNS];

        for (int c = 0; c < VX_COLUMNS; c++) {
            q[c] = c < nc ? _mm256_loadu_si256((const __m256i *)(v->q[c] + 32 * b))
                          : _mm256_setzero_si256();
            even[c] = even_bytes(q[c]);
            odd[c] = odd_bytes(q[c]);
        }
        for (int c = 0; form == FORM_U6 && c < nc; c++)
            put_less(v, b, c, q[c], less);
        if (wide) {
            put_quads((__m256i *)v->wide[b][0], even);
            put_quads((__m256i *)v->wide[b][1], odd);
        } else {
            put_quads((__m256i *)v->byte[b], q);
        }
    }
}

WORD void vx_prepare_few(struct vx *v, enum form form, int n_blocks, int nc)
{
    (void)v;
    (void)form;
    (void)n_blocks;
    (void)nc;
}

WORD vi dot_pairs(vi a, __m256i x)
{
    return (vi){ _mm256_madd_epi16(a.lo, x), _mm256_madd_epi16(a.hi, x) };
}

WORD vi dot_bytes(vb a, __m256i x)
{
    return (vi){ _mm256_maddubs_epi16(a.lo, x), _mm256_maddubs_epi16(a.hi, x) };
}

WORD vi add16(vi a, vi b)
{
    return (vi){ _mm256_add_epi16(a.lo, b.lo), _mm256_add_epi16(a.hi, b.hi) };
}

WORD vi vi_add(vi a, vi b)
{
    return (vi){ _mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi) };
}

/* Holds gcc to the order as written: left alone it computes all products before it adds any, and
 * spills them (Q4_K, 64 columns: 72 -> 104 GMAC/s). */
WORD void keep_order(vi *a)
{
    __asm__("" : "+x"(a->lo), "+x"(a->hi));
}

WORD void vs_dots(vi *sum, const struct vs *w, const struct vx *x, int b, int nc)
{
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        vi line = vi_load(w->w[i / 2][i % 2]);

#pragma GCC unroll 8
        for (int c = 0; c < nc; c++) {
            vi p = dot_pairs(line, broadcast4(x->wide[b][i % 2][i / 2][c]));
            sum[c] = i == 0 ? p : vi_add(sum[c], p);
            keep_order(&sum[c]);
        }
    }
}

/* Codes of at most 5 bits: `depth` quads of columns fit into int16. */
WORD void dots_u(vi *sum, const vb *w, const struct vx *x, int b, int nc, int depth)
{
    __m256i ones = _mm256_set1_epi16(1);
    vi part[VX_COLUMNS];

#pragma GCC unroll 8
    for (int e = 0; e < 8; e++)
#pragma GCC unroll 8
        for (int c = 0; c < nc; c++) {
            vi p = dot_bytes(w[e], broadcast4(x->byte[b][e][c]));

            part[c] = e % depth == 0 ? p : add16(part[c], p);
            keep_order(&part[c]);
            if (e == depth - 1)
                sum[c] = dot_pairs(part[c], ones);
            else if (e % depth == depth - 1)
                sum[c] = vi_add(sum[c], dot_pairs(part[c], ones));
        }
}

/* An int16 does not hold eight products of codes, but it does of codes less their constant
 * (8 * 32 * 127), and what overflows on the way there comes back. */
WORD void dots_u6(vi *sum, const struct lines *w, const struct vx *x, int b, int nc)
{
    vi part[VX_COLUMNS];

#pragma GCC unroll 8
    for (int e = 0; e < 8; e++)
#pragma GCC unroll 8
        for (int c = 0; c < nc; c++) {
            vi p = dot_bytes(w->w[e], broadcast4(x->byte[b][e][c]));

            if (e % 4 == 0) {
                __m256i less = broadcast4(x->less[b][e / 4][c]);
                part[c] = add16(p, (vi){ less, less });
            } else {
                part[c] = add16(part[c], p);
            }
            keep_order(&part[c]);
            if (e % 4 == 3) {
                vi s = e < 4 ? w->s0 : w->s1;

                p = (vi){ _mm256_madd_epi16(part[c].lo, s.lo),
                          _mm256_madd_epi16(part[c].hi, s.hi) };
                sum[c] = e < 4 ? p : vi_add(sum[c], p);
            }
        }
}

WORD void block_dots(enum form form, vi *sum, const union codes *w, const struct vx *x, int b,
                     int nc)
{
    if (form == FORM_U4)
        dots_u(sum, w->u.w, x, b, nc, 8);
    else if (form == FORM_U5)
        dots_u(sum, w->u.w, x, b, nc, 4);
    else if (form == FORM_U6)
        dots_u6(sum, &w->u, x, b, nc);
    else
        vs_dots(sum, &w->s8, x, b, nc);
}

/* ---- One block times one column, line by line ----------------------------- */

/* U4: low is the sum in int16.  U5: low and high are, of either half.  U6 and S8: sum is,
 * in int32, and low and high are of two quads. */
struct dot {
    vi low, high, sum;
};

/* Signed codes as they are: |w| times x with the sign of w. */
WORD __m256i dot_signed(__m256i w, __m256i x)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));

    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

WORD void dot_line(enum form form, struct dot *d, const struct scales *s, int c, vb low, vb high,
                   const int8_t *x)
{
    __m256i x_low = broadcast4(x + 4 * c), x_high = broadcast4(x + 16 + 4 * c);
    vi l, h;

    if (form == FORM_S8) {
        l = (vi){ dot_signed(low.lo, x_low), dot_signed(low.hi, x_low) };
        h = (vi){ dot_signed(high.lo, x_high), dot_signed(high.hi, x_high) };
        d->sum = c == 0 ? vi_add(l, h) : vi_add(d->sum, vi_add(l, h));
        keep_order(&d->sum);
        return;
    }
    l = dot_bytes(low, x_low);
    h = dot_bytes(high, x_high);
    if (form == FORM_U4) {
        d->low = c == 0 ? add16(l, h) : add16(d->low, add16(l, h));
        keep_order(&d->low);
        return;
    }
    if (c == 0 || (form == FORM_U6 && c == 2)) {
        d->low = l;
        d->high = h;
    } else {
        d->low = add16(d->low, l);
        d->high = add16(d->high, h);
    }
    keep_order(&d->low);
    keep_order(&d->high);
    if (form == FORM_U6 && c % 2 == 1) {
        l = (vi){ _mm256_madd_epi16(d->low.lo, s->s0.lo), _mm256_madd_epi16(d->low.hi, s->s0.hi) };
        h = (vi){ _mm256_madd_epi16(d->high.lo, s->s1.lo),
                  _mm256_madd_epi16(d->high.hi, s->s1.hi) };
        d->sum = c == 1 ? vi_add(l, h) : vi_add(d->sum, vi_add(l, h));
        keep_order(&d->sum);
    }
}

WORD vi dot_sum(enum form form, const struct dot *d, const struct scales *s, const struct vx *x,
                int b, int column)
{
    __m256i ones = _mm256_set1_epi16(1);

    if (form == FORM_U4)
        return dot_pairs(d->low, ones);
    if (form == FORM_U5)
        return vi_add(dot_pairs(d->low, ones), dot_pairs(d->high, ones));
    if (form == FORM_U6)
        return vi_add(d->sum, vi_dot2(s->offset, x->sum[column] + 2 * b));
    return d->sum;
}

#endif
