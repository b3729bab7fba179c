/* SPDX-License-Identifier: MIT */
/* kernels/quant_decode_ik.c - decoders of ik_llama.cpp's non-linear types.
 *
 * A code of 2 to 6 bits is looked up in a table of values.  Every table has a second half
 * that lies a little higher; a bit per scale says which half serves.
 *
 *     IQ*_K        half-precision d per 256, integer scale and half bit per 16
 *     IQ*_KS, _KL  scale per row, integer scale and half bit per 32
 */
#include "kernels/quant_decode.h"
#include "kernels/quant_tables.h"

static unsigned bit(unsigned word, int n)
{
    return word >> n & 1;
}

/* Two times 16 columns, whose table halves, of `size` values, are bits 2k and 2k+1 of
 * `halves`.  v is used up. */
static void look_up16(struct quant_ints *out, uint8_t v[32], const int8_t *table, unsigned halves,
                      int k, int size)
{
    for (int l = 0; l < 16; l++)
        v[l] = (uint8_t)(v[l] + bit(halves, 2 * k) * (unsigned)size);
    for (int l = 16; l < 32; l++)
        v[l] = (uint8_t)(v[l] + bit(halves, 2 * k + 1) * (unsigned)size);
    look_up(out->q, v, table);
}

/* ---- Scales per 16 -------------------------------------------------------- */

void decode_iq2_k(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f16(block);
    unsigned halves = load_u16(block + 2);
    uint8_t v[32];

    (void)header;
    for (int k = 0; k < 8; k++, out++) {
        plane2(v, block + 12, k);
        look_up16(out, v, quant_values2, halves, k, 4);
        set_scale16(out, d, (block[4 + k] & 15) - 8, (block[4 + k] >> 4) - 8);
    }
}

/* Odd scales whose signs are in a word of their own. */
void decode_iq3_k(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f16(block);
    unsigned halves = load_u16(block + 2), signs = load_u16(block + 4);
    uint8_t v[32];

    (void)header;
    for (int k = 0; k < 8; k++, out++) {
        int s0 = 2 * (block[6 + k] & 15) + 1, s1 = 2 * (block[6 + k] >> 4) + 1;

        plane2(v, block + 14, k);
        plane1_add(v, block + 78, k, 2);
        look_up16(out, v, quant_values3, halves, k, 8);
        set_scale16(out, d, bit(signs, 2 * k) ? -s0 : s0, bit(signs, 2 * k + 1) ? -s1 : s1);
    }
}

/* The 6-bit scales of IQ4_K and IQ5_K: two of the top bits' four bytes hold those of a
 * sub-block's neighbour too. */
static void six_bit_scales(const uint8_t *block, int k, struct quant_ints *out)
{
    int high = block[4 + k / 2] >> (4 * (k % 2)), low = block[8 + k];

    set_scale16(out, load_f16(block), ((low & 15) | (high & 3) << 4) - 32,
                (low >> 4 | (high >> 2 & 3) << 4) - 32);
}

void decode_iq4_k(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    unsigned halves = load_u16(block + 2);

    (void)header;
    for (int k = 0; k < 8; k++, out++) {
        const uint8_t *nibbles = block + 16 + 16 * k;
        const int8_t *first = quant_values4 + 16 * bit(halves, 2 * k);
        const int8_t *second = quant_values4 + 16 * bit(halves, 2 * k + 1);

        for (int j = 0; j < 16; j++) {
            out->q[j] = first[nibbles[j] & 15];
            out->q[16 + j] = second[nibbles[j] >> 4];
        }
        six_bit_scales(block, k, out);
    }
}

void decode_iq5_k(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    unsigned halves = load_u16(block + 2);
    uint8_t v[32];

    (void)header;
    for (int k = 0; k < 8; k++, out++) {
        plane4(v, block + 16, k);
        plane1_add(v, block + 144, k, 4);
        look_up16(out, v, quant_values5, halves, k, 32);
        six_bit_scales(block, k, out);
    }
}

/* The 6-bit codes of sub-block k of IQ6_K. */
static void iq6_k_codes(const uint8_t *block, int k, uint8_t v[32])
{
    uint8_t high[32];

    plane4(v, block + 20, k);
    plane2(high, block + 148, k);
    for (int l = 0; l < 32; l++)
        v[l] |= (uint8_t)(high[l] << 4);
}

void decode_iq6_k(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    const int8_t *scales = (const int8_t *)block + 4;
    float d = load_f16(block);
    unsigned halves = load_u16(block + 2);
    uint8_t v[32];

    (void)header;
    for (int k = 0; k < 8; k++, out++) {
        iq6_k_codes(block, k, v);
        look_up16(out, v, quant_values6, halves, k, 64);
        set_scale16(out, d, scales[2 * k], scales[2 * k + 1]);
    }
}

void dequantize_iq6_k(const uint8_t *block, float out[256])
{
    const int8_t *scales = (const int8_t *)block + 4;
    float d = load_f16(block);
    unsigned halves = load_u16(block + 2);
    uint8_t v[32];

    for (int k = 0; k < 8; k++) {
        iq6_k_codes(block, k, v);
        for (int l = 0; l < 32; l++) {
            int s = 2 * k + l / 16;
            float value = quant_cubic6[v[l]] + (float)(int)bit(halves, s);

            out[32 * k + l] = d * (float)scales[s] * value;
        }
    }
}

/* ---- A scale per row ------------------------------------------------------ */

void decode_iq2_ks(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f16(header);
    unsigned extra = load_u16(block);
    uint8_t v[32];

    for (int k = 0; k < 8; k++, out++) {
        int scale = block[2 + k / 2] >> (4 * (k % 2)) & 15;

        scale = (scale | (int)bit(extra, 8 + k) << 4) - 16;
        plane2(v, block + 6, k);
        look_up(out->q, v, quant_values2 + 4 * bit(extra, k));
        set_scale32(out, d * (float)scale, 0);
    }
}

/* A code stands for two columns. */
void decode_iq2_kl(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f16(header);
    unsigned high = load_u16(block);

    for (int k = 0; k < 8; k++, out++) {
        const uint8_t *nibbles = block + 6 + 16 * (k / 2), *fifth = block + 70;
        int scale = block[2 + k % 4] >> (4 * (k / 4)) & 15;

        scale = (scale | (int)(high >> (2 * k) & 3) << 4) - 32;
        for (int j = 0; j < 16; j++) {
            int pair = (nibbles[j] >> (4 * (k % 2)) & 15) | (fifth[j] >> k & 1) << 4;

            memcpy(out->q + 2 * j, quant_pairs2 + 2 * pair, 2);
        }
        set_scale32(out, d * (float)scale, 0);
    }
}

void decode_iq3_ks(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f16(header);
    unsigned extra = load_u16(block);
    uint8_t v[32];

    for (int k = 0; k < 8; k++, out++) {
        int scale = block[2 + k % 4] >> (4 * (k / 4)) & 15;

        scale = (scale | (int)bit(extra, k) << 4) - 16;
        plane2(v, block + 6, k);
        plane1_add(v, block + 70, k, 2);
        look_up(out->q, v, quant_values3 + 8 * bit(extra, 8 + k));
        set_scale32(out, d * (float)scale, 0);
    }
}

/* IQ4_KS, IQ5_KS, IQ4_KSS: the low bit of a scale byte is the half bit, the rest an odd
 * number. */
static float odd_scale(float d, int byte)
{
    return d * (float)((byte & 254) - 127);
}

void decode_iq4_ks(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f32(header);

    for (int k = 0; k < 8; k++, out++) {
        split_nibbles_table(out->q, block + 8 + 16 * k, quant_values4 + 16 * (block[k] & 1));
        set_scale32(out, odd_scale(d, block[k]), 0);
    }
}

void decode_iq5_ks(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f32(header);
    uint8_t v[32];

    for (int k = 0; k < 8; k++, out++) {
        plane4(v, block + 8, k);
        plane1_add(v, block + 136, k, 4);
        look_up(out->q, v, quant_values5 + 32 * (block[k] & 1));
        set_scale32(out, odd_scale(d, block[k]), 0);
    }
}

/* The scale byte is spread over the low bits of eight 16-bit words; the other 15 bits hold
 * four nibbles of even parity, as a Gray code. */
void decode_iq4_kss(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f32(header);

    for (int k = 0; k < 8; k++, out++) {
        uint16_t words[8];
        int scale = 0;

        for (int i = 0; i < 8; i++) {
            unsigned w = load_u16(block + 16 * k + 2 * i);

            scale |= (int)(w & 1) << i;
            w &= 0xfffe;
            words[i] = (uint16_t)(w ^ w >> 1);
        }
        split_nibbles_table(out->q, (const uint8_t *)words, quant_values4 + 16 * (scale & 1));
        set_scale32(out, odd_scale(d, scale), 0);
    }
}
