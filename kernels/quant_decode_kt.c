/* SPDX-License-Identifier: MIT */
/* kernels/quant_decode_kt.c - decoders of IQ1_KT to IQ4_KT, the trellis types.
 *
 * A group of four or eight columns is the start of a pseudo-random sequence.  A step
 * multiplies a 32-bit state; the weight is the sum of four 6-bit fields of the state,
 * which is nearly normally distributed, centred at 126.  Since state n is the start times
 * a power of the multiplier, all columns are computed at once.
 */
#include "kernels/quant_decode.h"
#include "kernels/quant_tables.h"

/* The multiplier 0xcbac1fed to the powers 1 ... 8, modulo 2^32. */
static const uint32_t powers[8] = {
    0xcbac1fed, 0xc8734169, 0xbd2b4535, 0xe50c7d11, 0x1220d7bd, 0x94839cf9, 0x58267985, 0x60b19b21,
};

/* 32 columns in groups of `per`, which start from start[0], start[1] ... */
static inline void walk(int8_t *restrict q, const uint32_t *restrict start, int per)
{
    uint32_t state[32];

    for (int j = 0; j < 32; j++)
        state[j] = start[j / per] * powers[j % per];
    for (int j = 0; j < 32; j++)
        q[j] = (int8_t)((int)((state[j] & 0x3f3f3f3f) * 0x01010101 >> 24) - 126);
}

/* Nibble k of four bytes that hold eight. */
static int nibble(const uint8_t bytes[4], int k)
{
    return bytes[k % 4] >> (4 * (k / 4)) & 15;
}

void decode_iq1_kt(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    const uint8_t *low = block + 8, *high = block + 40;
    float d = load_f32(header);
    uint32_t start[4];

    for (int k = 0; k < 8; k++, out++) {
        for (int g = 0; g < 4; g++) {
            unsigned middle = high[4 * (k % 4) + g] >> (4 * (k / 4)) & 15;
            unsigned top = block[k] >> (4 + g) & 1;

            start[g] = 4096 + (low[4 * k + g] | middle << 8 | top << 12);
        }
        walk(out->q, start, 8);
        set_scale32(out, d * (float)quant_values4[block[k] & 15], 0);
    }
}

/* The starts of IQ2_KT and IQ3_KT are 16-bit words. */
static void walk_words(int8_t q[32], const uint8_t *words)
{
    uint32_t start[4];

    for (int g = 0; g < 4; g++)
        start[g] = 4096u + load_u16(words + 2 * g);
    walk(q, start, 8);
}

void decode_iq2_kt(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f32(header);

    for (int k = 0; k < 8; k++, out++) {
        walk_words(out->q, block + 4 + 8 * k);
        set_scale32(out, d * (float)quant_values4[nibble(block, k)], 0);
    }
}

/* The sequence gives magnitudes; signs are a bit plane. */
void decode_iq3_kt(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    const uint8_t *signs = block + 68;
    float d = load_f32(header);

    for (int k = 0; k < 8; k++, out++) {
        walk_words(out->q, block + 4 + 8 * k);
        for (int j = 0; j < 32; j++) {
            int flip = (out->q[j] < 0) ^ (signs[j] >> k & 1);

            out->q[j] = (int8_t)((out->q[j] ^ -flip) + flip);
        }
        set_scale32(out, d * (float)nibble(block, k), 0);
    }
}

/* A word for each 32 columns: bit 0 moves the starts, 7 bits are the scale, then the top
 * three bits of eight starts. */
void decode_iq4_kt(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    const uint8_t *low = block + 32, *high = block + 96;
    float d = load_f32(header);

    for (int k = 0; k < 8; k++, out++) {
        uint32_t word = load_u32(block + 4 * k), from = 4096 + (word & 1) * 32768, start[8];

        for (int g = 0; g < 8; g++) {
            int i = 8 * k + g;
            unsigned middle = high[i % 32] >> (4 * (i / 32)) & 15;

            start[g] = from + (low[i] | middle << 8 | (word >> (8 + 3 * g) & 7) << 12);
        }
        walk(out->q, start, 4);
        set_scale32(out, d * (float)((int)(word >> 1 & 127) - 64), 0);
    }
}
