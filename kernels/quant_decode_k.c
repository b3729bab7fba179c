/* SPDX-License-Identifier: MIT */
/* kernels/quant_decode_k.c - decoders of Q2_K to Q6_K: blocks of 256, linear codes.
 *
 * A block has one or two half-precision factors, and small integer scales for each
 * 16 or 32 columns.  Codes lie in bit planes: 2, 4 or 1 bits of all columns together
 * (quant_decode.h), so that one byte serves several sub-blocks.
 */
#include "kernels/quant_decode.h"

/* Q2_K: 4-bit scale and minimum per 16, 2-bit codes; d and dmin at the end. */
void decode_q2_k(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f16(block + 80), dmin = load_f16(block + 82);
    uint8_t v[32];

    (void)header;
    for (int k = 0; k < 8; k++, out++) {
        plane2(v, block + 16, k);
        subtract(out->q, v, 0);
        out->d = d;
        out->m = -dmin;
        for (int h = 0; h < 2; h++) {
            out->s[h] = block[2 * k + h] & 15;
            out->n[h] = block[2 * k + h] >> 4;
        }
    }
}

/* The 6-bit scale s (0..15) of Q3_K: low nibbles in 8 bytes, top bits in 4 more. */
static int q3_k_scale(const uint8_t *scales, int s)
{
    int low = scales[s % 8] >> (4 * (s / 8)) & 15, high = scales[8 + s % 4] >> (2 * (s / 4)) & 3;

    return (low | high << 4) - 32;
}

/* Q3_K: a bit plane, a 2-bit plane, 12 bytes of scales, d. */
void decode_q3_k(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    const uint8_t *scales = block + 96;
    float d = load_f16(block + 108);
    uint8_t v[32];

    (void)header;
    for (int k = 0; k < 8; k++, out++) {
        plane2(v, block + 32, k);
        plane1_add(v, block, k, 2);
        subtract(out->q, v, 4);
        set_scale16(out, d, q3_k_scale(scales, 2 * k), q3_k_scale(scales, 2 * k + 1));
    }
}

/* d and m of the eight sub-blocks of Q4_K and Q5_K, from the 16 bytes at the block's
 * start: 6-bit scales and minima, those of sub-blocks 4-7 cut in two. */
static void q4_k_scales(const uint8_t *block, struct quant_ints *out)
{
    const uint8_t *s = block + 4;
    float d = load_f16(block), dmin = load_f16(block + 2);

    for (int k = 0; k < 4; k++) {
        int high_scale = (s[8 + k] & 15) | s[k] >> 6 << 4;
        int high_min = s[8 + k] >> 4 | s[4 + k] >> 6 << 4;

        set_scale32(&out[k], d * (float)(s[k] & 63), -(dmin * (float)(s[4 + k] & 63)));
        set_scale32(&out[4 + k], d * (float)high_scale, -(dmin * (float)high_min));
    }
}

void decode_q4_k(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    uint8_t v[32];

    (void)header;
    q4_k_scales(block, out);
    for (int k = 0; k < 8; k++) {
        plane4(v, block + 16, k);
        subtract(out[k].q, v, 0);
    }
}

void decode_q5_k(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    uint8_t v[32];

    (void)header;
    q4_k_scales(block, out);
    for (int k = 0; k < 8; k++) {
        plane4(v, block + 48, k);
        plane1_add(v, block + 16, k, 4);
        subtract(out[k].q, v, 0);
    }
}

/* Q6_K: nibbles, top bits, signed 8-bit scales per 16, d.  The nibbles have an order of
 * their own: a byte serves sub-blocks k and k + 2. */
void decode_q6_k(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    const int8_t *scales = (const int8_t *)block + 192;
    float d = load_f16(block + 208);
    uint8_t v[32];

    (void)header;
    for (int k = 0; k < 8; k++, out++) {
        const uint8_t *nibbles = block + 64 * (k / 4) + 32 * (k % 2);

        plane2(v, block + 128, k);
        for (int l = 0; l < 32; l++)
            out->q[l] = (int8_t)(((nibbles[l] >> (4 * (k % 4 / 2)) & 15) | v[l] << 4) - 32);
        set_scale16(out, d, scales[2 * k], scales[2 * k + 1]);
    }
}
