/* SPDX-License-Identifier: MIT */
/* kernels/quant_deinterleave_linear.c - interleaved types with a code per column.
 *
 * Codes of row k are gathered into v[32], 32 columns at a time, and spread again over the
 * planes of the plain type.  Two patterns serve all types of four rows:
 *
 *     nibbles   byte 16w + 4k + i holds columns B + i (low) and B + 8 + i, B = 0, 16, 4, 20
 *     pairs     column c is field c % 16 / 4 of byte 16 (c / 16) + 4k + c % 4
 *
 * Reading order: gathering, spreading, scales; then the types, in the order of
 * quants.def but for those that resemble each other.
 */
#include "kernels/quant_deinterleave.h"

/* ---- Gathering codes ------------------------------------------------------ */

static const uint8_t first_column[4] = { 0, 16, 4, 20 };

static void gather_nibbles(uint8_t v[32], const uint8_t *bytes, int k)
{
    for (int w = 0; w < 4; w++)
        for (int i = 0; i < 4; i++) {
            v[first_column[w] + i] = bytes[16 * w + 4 * k + i] & 15;
            v[first_column[w] + 8 + i] = bytes[16 * w + 4 * k + i] >> 4;
        }
}

/* Where the bits above a nibble are: in byte 4k + i, or for odd w `odd` bytes behind it. */
struct high_bits {
    uint8_t shift[4][2]; /* [w][low or high nibble] */
    uint8_t mask, odd;
};

static void gather_high(uint8_t v[32], const uint8_t *bytes, int k, const struct high_bits *h)
{
    for (int w = 0; w < 4; w++)
        for (int i = 0; i < 8; i++) {
            int byte = bytes[h->odd * (w % 2) + 4 * k + i % 4];

            v[first_column[w] + i / 4 * 8 + i % 4] |=
                (uint8_t)((byte >> h->shift[w][i / 4] & h->mask) << 4);
        }
}

static void gather_pairs(uint8_t v[32], const uint8_t *bytes, int k)
{
    for (int c = 0; c < 32; c++)
        v[c] = bytes[16 * (c / 16) + 4 * k + c % 4] >> (2 * (c % 16 / 4)) & 3;
}

/* The third bit of Q3_K_R4 and IQ3_K_R4. */
static void gather_third(uint8_t v[32], const uint8_t *bytes, int k)
{
    for (int c = 0; c < 32; c++)
        v[c] |= (uint8_t)((bytes[4 * k + c % 4] >> (c / 4) & 1) << 2);
}

/* ---- Spreading them ------------------------------------------------------- */

static void spread_split(uint8_t bytes[16], const uint8_t v[32])
{
    for (int j = 0; j < 16; j++)
        bytes[j] = (uint8_t)((v[j] & 15) | v[16 + j] << 4);
}

/* Sub-block b of the planes of a block of 256. */
static void spread_plane4(uint8_t *plane, int b, const uint8_t v[32])
{
    for (int l = 0; l < 32; l++)
        plane[32 * (b / 2) + l] |= (uint8_t)((v[l] & 15) << (4 * (b % 2)));
}

static void spread_plane2(uint8_t *plane, int b, const uint8_t v[32], int from)
{
    for (int l = 0; l < 32; l++)
        plane[32 * (b / 4) + l] |= (uint8_t)((v[l] >> from & 3) << (2 * (b % 4)));
}

static void spread_plane1(uint8_t *plane, int b, const uint8_t v[32], int from)
{
    for (int l = 0; l < 32; l++)
        plane[l] |= (uint8_t)((v[l] >> from & 1) << b);
}

/* ---- Scales --------------------------------------------------------------- */

/* Number of the scale of row k, half-block s, where four rows are interleaved. */
static int scale_of(int s, int k)
{
    return 8 * (s / 2) + k + 4 * (s % 2);
}

/* Six bits, nibbles in 32 bytes and the top in 16. */
static int six_bits(const uint8_t *low, const uint8_t *high, int n)
{
    return run_nibble(low, n, 32) | run_pair(high, n, 16) << 4;
}

/* The table halves of IQ2_K ... IQ5_K: byte k + 4h has a bit per 32 columns. */
static void take_halves(uint8_t to[2], const uint8_t *bytes, int k)
{
    for (int s = 0; s < 16; s++)
        to[s / 8] |= (uint8_t)((bytes[k + 4 * (s % 2)] >> (s / 2) & 1) << (s % 8));
}

/* A nibble per 16 columns. */
static void take_nibble_scales(uint8_t to[8], const uint8_t *run, int k)
{
    for (int s = 0; s < 16; s++)
        to[s / 2] |= (uint8_t)(run_nibble(run, scale_of(s, k), 32) << (4 * (s % 2)));
}

/* ---- 32 columns ----------------------------------------------------------- */

void take_row_iq4_nl_r4(const uint8_t *group, int k, uint8_t *block)
{
    uint8_t v[32];

    copy_half(block, group, k);
    gather_nibbles(v, group + 8, k);
    spread_split(block + 2, v);
}

void take_row_q5_0_r4(const uint8_t *group, int k, uint8_t *block)
{
    static const struct high_bits high = {
        {{ 0, 4 }, { 1, 5 }, { 2, 6 }, { 3, 7 }},
        1, 0
    };
    uint8_t v[32];

    copy_half(block, group, k);
    gather_nibbles(v, group + 24, k);
    gather_high(v, group + 8, k, &high);
    for (int j = 0; j < 32; j++)
        block[2 + j / 8] |= (uint8_t)(v[j] >> 4 << (j % 8));
    spread_split(block + 6, v);
}

void take_row_q6_0_r4(const uint8_t *group, int k, uint8_t *block)
{
    static const struct high_bits high = {
        {{ 0, 4 }, { 0, 4 }, { 2, 6 }, { 2, 6 }},
        3, 16
    };
    uint8_t v[32];

    copy_half(block, group, k);
    gather_nibbles(v, group + 40, k);
    gather_high(v, group + 8, k, &high);
    for (int j = 0; j < 16; j++)
        block[2 + j % 8] |= (uint8_t)((v[j] >> 4 | v[16 + j] >> 4 << 2) << (4 * (j / 8)));
    spread_split(block + 10, v);
}

void take_row_iq2_bn_r4(const uint8_t *group, int k, uint8_t *block)
{
    uint8_t v[32];

    for (int b = 0; b < 2; b++) {
        gather_pairs(v, group + 32 * b, k);
        for (int c = 0; c < 32; c++)
            block[c % 16] |= (uint8_t)(v[c] << (2 * (2 * b + c / 16)));
    }
}

/* ---- The K types ---------------------------------------------------------- */

void take_row_q2_k_r4(const uint8_t *group, int k, uint8_t *block)
{
    uint8_t v[32];

    copy_half(block + 80, group, k);
    copy_half(block + 82, group + 8, k);
    for (int s = 0; s < 16; s++)
        block[s] = group[16 + scale_of(s, k)];
    for (int b = 0; b < 8; b++) {
        gather_pairs(v, group + 80 + 32 * b, k);
        spread_plane2(block + 16, b, v, 0);
    }
}

void take_row_q3_k_r4(const uint8_t *group, int k, uint8_t *block)
{
    uint8_t v[32], *scales = block + 96;

    copy_half(block + 108, group, k);
    for (int s = 0; s < 16; s++) {
        int scale = six_bits(group + 24, group + 8, scale_of(s, k));

        scales[s % 8] |= (uint8_t)((scale & 15) << (4 * (s / 8)));
        scales[8 + s % 4] |= (uint8_t)(scale >> 4 << (2 * (s / 4)));
    }
    for (int b = 0; b < 8; b++) {
        gather_pairs(v, group + 184 + 32 * b, k);
        gather_third(v, group + 56 + 16 * b, k);
        spread_plane2(block + 32, b, v, 0);
        spread_plane1(block, b, v, 2);
    }
}

/* Factors and scales of Q4_K and Q5_K. */
static void take_q4_k_scales(const uint8_t *group, int k, uint8_t *block)
{
    const uint8_t *high = group + 16, *low = group + 32;
    uint8_t *to = block + 4;

    copy_half(block, group, k);
    copy_half(block + 2, group + 8, k);
    for (int b = 0; b < 8; b++) {
        int n = 4 * b + k, top = run_nibble(high, n, 16);
        int scale = (low[n] & 15) | (top & 3) << 4, min = low[n] >> 4 | top >> 2 << 4;

        if (b < 4) {
            to[b] |= (uint8_t)scale;
            to[4 + b] |= (uint8_t)min;
        } else {
            to[4 + b] = (uint8_t)((scale & 15) | min << 4);
            to[b - 4] |= (uint8_t)(scale >> 4 << 6);
            to[b] |= (uint8_t)(min >> 4 << 6);
        }
    }
}

void take_row_q4_k_r4(const uint8_t *group, int k, uint8_t *block)
{
    uint8_t v[32];

    take_q4_k_scales(group, k, block);
    for (int b = 0; b < 8; b++) {
        gather_nibbles(v, group + 64 + 64 * b, k);
        spread_plane4(block + 16, b, v);
    }
}

void take_row_q5_k_r4(const uint8_t *group, int k, uint8_t *block)
{
    static const struct high_bits high = {
        {{ 0, 1 }, { 4, 5 }, { 2, 3 }, { 6, 7 }},
        1, 0
    };
    uint8_t v[32];

    take_q4_k_scales(group, k, block);
    for (int b = 0; b < 8; b++) {
        gather_nibbles(v, group + 192 + 64 * b, k);
        gather_high(v, group + 64 + 16 * b, k, &high);
        spread_plane4(block + 48, b, v);
        spread_plane1(block + 16, b, v, 4);
    }
}

void take_row_q6_k_r4(const uint8_t *group, int k, uint8_t *block)
{
    static const struct high_bits high = {
        {{ 0, 2 }, { 0, 2 }, { 4, 6 }, { 4, 6 }},
        3, 16
    };
    uint8_t v[32];

    copy_half(block + 208, group, k);
    for (int s = 0; s < 16; s++)
        block[192 + s] = group[8 + scale_of(s, k)];
    for (int b = 0; b < 8; b++) {
        gather_nibbles(v, group + 328 + 64 * b, k);
        gather_high(v, group + 72 + 32 * b, k, &high);
        for (int l = 0; l < 32; l++)
            block[64 * (b / 4) + 32 * (b % 2) + l] |= (uint8_t)((v[l] & 15) << (4 * (b % 4 / 2)));
        spread_plane2(block + 128, b, v, 4);
    }
}

/* ---- ik's non-linear types ------------------------------------------------ */

void take_row_iq2_k_r4(const uint8_t *group, int k, uint8_t *block)
{
    uint8_t v[32];

    copy_half(block, group, k);
    take_halves(block + 2, group + 8, k);
    take_nibble_scales(block + 4, group + 16, k);
    for (int b = 0; b < 8; b++) {
        gather_pairs(v, group + 48 + 32 * b, k);
        spread_plane2(block + 12, b, v, 0);
    }
}

/* The scales' signs are laid out as the table halves are. */
void take_row_iq3_k_r4(const uint8_t *group, int k, uint8_t *block)
{
    uint8_t v[32];

    copy_half(block, group, k);
    take_halves(block + 2, group + 8, k);
    take_halves(block + 4, group + 16, k);
    take_nibble_scales(block + 6, group + 24, k);
    for (int b = 0; b < 8; b++) {
        gather_pairs(v, group + 56 + 32 * b, k);
        gather_third(v, group + 312 + 16 * b, k);
        spread_plane2(block + 14, b, v, 0);
        spread_plane1(block + 78, b, v, 2);
    }
}

/* Everything of IQ4_K and IQ5_K in front of the codes. */
static void take_iq4_k_scales(const uint8_t *group, int k, uint8_t *block)
{
    copy_half(block, group, k);
    take_halves(block + 2, group + 8, k);
    take_nibble_scales(block + 8, group + 32, k);
    for (int s = 0; s < 16; s++)
        block[4 + s / 4] |= (uint8_t)(run_pair(group + 16, scale_of(s, k), 16) << (2 * (s % 4)));
}

void take_row_iq4_k_r4(const uint8_t *group, int k, uint8_t *block)
{
    uint8_t v[32];

    take_iq4_k_scales(group, k, block);
    for (int b = 0; b < 8; b++) {
        gather_nibbles(v, group + 64 + 64 * b, k);
        spread_split(block + 16 + 16 * b, v);
    }
}

/* The fifth bits of IQ5_K_R4 and IQ5_KS_R4. */
static const struct high_bits iq5_high = {
    {{ 0, 1 }, { 2, 3 }, { 4, 5 }, { 6, 7 }},
    1, 0
};

void take_row_iq5_k_r4(const uint8_t *group, int k, uint8_t *block)
{
    uint8_t v[32];

    take_iq4_k_scales(group, k, block);
    for (int b = 0; b < 8; b++) {
        gather_nibbles(v, group + 64 + 64 * b, k);
        gather_high(v, group + 576 + 16 * b, k, &iq5_high);
        spread_plane4(block + 16, b, v);
        spread_plane1(block + 144, b, v, 4);
    }
}

void take_row_iq4_ks_r4(const uint8_t *group, int k, uint8_t *block)
{
    uint8_t v[32];

    for (int b = 0; b < 8; b++) {
        block[b] = group[4 * b + k];
        gather_nibbles(v, group + 32 + 64 * b, k);
        spread_split(block + 8 + 16 * b, v);
    }
}

void take_row_iq5_ks_r4(const uint8_t *group, int k, uint8_t *block)
{
    uint8_t v[32];

    for (int b = 0; b < 8; b++) {
        block[b] = group[4 * b + k];
        gather_nibbles(v, group + 32 + 64 * b, k);
        gather_high(v, group + 544 + 16 * b, k, &iq5_high);
        spread_plane4(block + 8, b, v);
        spread_plane1(block + 136, b, v, 4);
    }
}

/* Eight rows: byte 32l + 4k + i holds columns 8l + i and 8l + 4 + i. */
void take_row_iq4_xs_r8(const uint8_t *group, int k, uint8_t *block)
{
    const uint8_t *high = group + 16, *low = group + 32, *codes = group + 64;
    uint8_t v[32];

    copy_half(block, group, k);
    for (int b = 0; b < 8; b++, codes += 128) {
        int scale = six_bits(low, high, 8 * b + k);

        block[2 + b / 4] |= (uint8_t)(scale >> 4 << (2 * (b % 4)));
        block[4 + b / 2] |= (uint8_t)((scale & 15) << (4 * (b % 2)));
        for (int c = 0; c < 32; c++)
            v[c] = codes[32 * (c / 8) + 4 * k + c % 4] >> (4 * (c % 8 / 4)) & 15;
        spread_split(block + 8 + 16 * b, v);
    }
}
