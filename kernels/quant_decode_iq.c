/* SPDX-License-Identifier: MIT */
/* kernels/quant_decode_iq.c - decoders of IQ1, IQ2, IQ3 and IQ4_XS.
 *
 * A code is the number of a grid point: eight or four columns at once, all positive
 * (or ternary, in IQ1), with signs stored beside.  Grid points have three or eight levels,
 * so the grids are kept as 16-bit numbers and expanded to bytes in a 64-bit word.
 *
 * Fractions that all weights share are moved into the scale, which is exact because
 * they are powers of two: IQ2's (s + 1/2) / 4 becomes (2s + 1) / 8, and IQ1's offset of
 * an eighth makes the codes 8 g + 1 or 8 g - 1.
 */
#include "kernels/quant_decode.h"
#include "kernels/quant_tables.h"

/* ---- Bytes in a word ------------------------------------------------------ */

/* Eight fields of 2 bits to eight bytes. */
static inline uint64_t spread2(uint64_t x)
{
    x = (x | x << 24) & 0x000000ff000000ff;
    x = (x | x << 12) & 0x000f000f000f000f;
    return (x | x << 6) & BYTES(3);
}

/* Two times four fields of 3 bits to eight bytes. */
static inline uint64_t spread3(uint64_t first, uint64_t second)
{
    uint64_t x = first | second << 32;

    x = (x | x << 10) & 0x003f003f003f003f;
    return (x | x << 5) & BYTES(7);
}

/* Negates the bytes whose sign bit is set.  No byte is zero. */
static inline uint64_t apply_signs(uint64_t bytes, unsigned signs)
{
    uint64_t one = spread1(signs);

    return (bytes ^ one * 0xff) + one;
}

/* The eighth sign makes the number of minus signs even. */
static inline unsigned even_signs(unsigned seven)
{
    return seven | (unsigned)__builtin_parity(seven) << 7;
}

/* Levels 0, 1, 2 to 8, 25, 43. */
static inline uint64_t iq2_levels(unsigned entry)
{
    uint64_t l = spread2(entry);

    return l * 17 + (l >> 1 & BYTES(1)) + BYTES(8);
}

/* Levels 0 ... 7 to 4, 12 ... 52, 62. */
static inline uint64_t iq3_xxs_levels(unsigned first, unsigned second)
{
    uint64_t l = spread3(first, second);

    return l * 8 + (l & l >> 1 & l >> 2 & BYTES(1)) * 2 + BYTES(4);
}

/* Levels 0, 1, 2 to -8, 0, 8, plus or minus one. */
static inline uint64_t iq1_levels(unsigned entry, unsigned minus)
{
    return subtract_8(spread2(entry) * 8, 7 + 2 * (int)minus);
}

/* ---- IQ2 ------------------------------------------------------------------ */

/* Eight times four grid numbers, then a word of four times seven signs and a scale. */
void decode_iq2_xxs(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f16(block) * 0.125f;

    (void)header;
    block += 2;
    for (int k = 0; k < 8; k++, block += 8) {
        uint32_t a = load_u32(block + 4);

        for (int g = 0; g < 4; g++)
            store_8(out[k].q + 8 * g, apply_signs(iq2_levels(quant_grid_iq2xxs[block[g]]),
                                                  even_signs(a >> (7 * g) & 127)));
        set_scale32(&out[k], d * (float)(int)(2 * (a >> 28) + 1), 0);
    }
}

/* The scales of IQ2_XS and IQ2_S: a nibble for each 16 columns. */
static void iq2_scales(const uint8_t *scales, float d, struct quant_ints *out)
{
    for (int k = 0; k < 8; k++)
        set_scale16(&out[k], d * 0.125f, 2 * (scales[k] & 15) + 1, 2 * (scales[k] >> 4) + 1);
}

/* Nine bits of grid number under seven of signs. */
void decode_iq2_xs(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    (void)header;
    for (int i = 0; i < 32; i++) {
        unsigned v = load_u16(block + 2 + 2 * i);

        store_8(out[i / 4].q + 8 * (i % 4),
                apply_signs(iq2_levels(quant_grid_iq2xs[v & 511]), even_signs(v >> 9)));
    }
    iq2_scales(block + 66, load_f16(block), out);
}

/* Ten bits of grid number in two places; all eight signs. */
void decode_iq2_s(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    (void)header;
    for (int i = 0; i < 32; i++) {
        unsigned high = block[66 + i / 4] >> (2 * (i % 4)) & 3;

        store_8(out[i / 4].q + 8 * (i % 4),
                apply_signs(iq2_levels(quant_grid_iq2s[block[2 + i] | high << 8]), block[34 + i]));
    }
    iq2_scales(block + 74, load_f16(block), out);
}

/* ---- IQ3 ------------------------------------------------------------------ */

/* 64 grid numbers of four columns, then eight words as those of IQ2_XXS. */
void decode_iq3_xxs(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f16(block) * 0.25f;
    const uint8_t *grid = block + 2, *words = block + 66;

    (void)header;
    for (int k = 0; k < 8; k++, words += 4) {
        uint32_t a = load_u32(words);

        for (int g = 0; g < 4; g++, grid += 2)
            store_8(out[k].q + 8 * g, apply_signs(iq3_xxs_levels(quant_grid_iq3xxs[grid[0]],
                                                                 quant_grid_iq3xxs[grid[1]]),
                                                  even_signs(a >> (7 * g) & 127)));
        set_scale32(&out[k], d * (float)(int)(2 * (a >> 28) + 1), 0);
    }
}

/* 64 grid numbers, their ninth bits, signs, nibbles of scales. */
void decode_iq3_s(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    const uint8_t *grid = block + 2, *ninth = block + 66, *signs = block + 74;
    float d = load_f16(block);

    (void)header;
    for (int k = 0; k < 8; k++) {
        int scale = block[106 + k / 2] >> (4 * (k % 2)) & 15;

        for (int g = 0; g < 4; g++, grid += 2, signs++) {
            unsigned first = grid[0] | (ninth[k] >> (2 * g) & 1u) << 8;
            unsigned second = grid[1] | (ninth[k] >> (2 * g + 1) & 1u) << 8;
            uint64_t levels = spread3(quant_grid_iq3s[first], quant_grid_iq3s[second]);

            store_8(out[k].q + 8 * g, apply_signs(levels * 2 + BYTES(1), *signs));
        }
        set_scale32(&out[k], d * (float)(2 * scale + 1), 0);
    }
}

/* ---- IQ1 ------------------------------------------------------------------ */

/* 32 columns: grid numbers from four bytes and 3-bit fields of h, whose top bits are
 * the scale and the offset's sign. */
static void iq1_s_ints(const uint8_t grid[4], unsigned h, float d, struct quant_ints *out)
{
    for (int g = 0; g < 4; g++) {
        unsigned entry = grid[g] | (h >> (3 * g) & 7) << 8;

        store_8(out->q + 8 * g, iq1_levels(quant_grid_iq1s[entry], h >> 15));
    }
    set_scale32(out, d * 0.125f * (float)(int)(2 * (h >> 12 & 7) + 1), 0);
}

void decode_iq1_s(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f16(block);

    (void)header;
    for (int k = 0; k < 8; k++)
        iq1_s_ints(block + 2 + 4 * k, load_u16(block + 34 + 2 * k), d, &out[k]);
}

void decode_iq1_s_r1(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    iq1_s_ints(block, load_u16(block + 4), load_f16(header), out);
}

/* 32 columns: grid numbers from four bytes and the nibbles of two, each with three
 * high bits and the offset's sign of eight columns. */
static void iq1_m_ints(const uint8_t grid[4], const uint8_t high[2], struct quant_ints *out)
{
    for (int g = 0; g < 4; g++) {
        unsigned h = high[g / 2] >> (4 * (g % 2)) & 15;

        store_8(out->q + 8 * g, iq1_levels(quant_grid_iq1s[grid[g] | (h & 7) << 8], h >> 3));
    }
}

/* d is cut into the top nibbles of the four words of scales. */
void decode_iq1_m(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    uint8_t half[2] = { (uint8_t)(block[49] >> 4 | (block[51] & 0xf0)),
                        (uint8_t)(block[53] >> 4 | (block[55] & 0xf0)) };
    float d = load_f16(half) * 0.125f;

    (void)header;
    for (int k = 0; k < 8; k++) {
        unsigned scales = (unsigned)load_u16(block + 48 + 2 * (k / 2)) >> (6 * (k % 2));

        iq1_m_ints(block + 4 * k, block + 32 + 2 * k, &out[k]);
        set_scale16(&out[k], d, (int)(2 * (scales & 7) + 1), (int)(2 * (scales >> 3 & 7) + 1));
    }
}

/* The row's form has a row scale and 4-bit scales that count from 0. */
void decode_iq1_m_r1(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    iq1_m_ints(block, block + 4, out);
    set_scale16(out, load_f16(header) * 0.125f, block[6] & 15, block[6] >> 4);
}

/* ---- IQ4_XS --------------------------------------------------------------- */

void decode_iq4_xs(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f16(block);
    unsigned high = load_u16(block + 2);

    (void)header;
    for (int k = 0; k < 8; k++) {
        int low = block[4 + k / 2] >> (4 * (k % 2)) & 15;
        int scale = (low | (int)(high >> (2 * k) & 3) << 4) - 32;

        split_nibbles_table(out[k].q, block + 8 + 16 * k, quant_values4);
        set_scale32(&out[k], d * (float)scale, 0);
    }
}
