/* SPDX-License-Identifier: MIT */
/* kernels/quant_decode_small.c - decoders of the types without sub-blocks.
 *
 * One scale for 32 columns (the oldest types, MXFP4), for a longer block (ternary and
 * one-bit types) or for the whole row (the BitNet types and Q8_KV).
 */
#include "kernels/quant_decode.h"
#include "kernels/quant_tables.h"

/* ---- A half-precision scale and 32 codes --------------------------------- */

void decode_q4_0(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    (void)header;
    split_nibbles(out->q, block + 2, 8);
    set_scale32(out, load_f16(block), 0);
}

void decode_q4_1(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    (void)header;
    split_nibbles(out->q, block + 4, 0);
    set_scale32(out, load_f16(block), load_f16(block + 2));
}

/* Nibbles whose fifth bits are the 32 bits of the word in front of them. */
static void five_bits(int8_t q[32], const uint8_t *bytes, int bias)
{
    uint8_t v[32];

    split_to_bytes(v, bytes + 4);
    for (int i = 0; i < 4; i++)
        store_8(q + 8 * i, subtract_8(load_8(v + 8 * i) | spread1(bytes[i]) << 4, bias));
}

void decode_q5_0(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    (void)header;
    five_bits(out->q, block + 2, 16);
    set_scale32(out, load_f16(block), 0);
}

void decode_q5_1(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    (void)header;
    five_bits(out->q, block + 4, 0);
    set_scale32(out, load_f16(block), load_f16(block + 2));
}

/* Q6_0: the top bits of columns j and 16 + j are in the low nibble of byte j, those of
 * 8 + j and 24 + j in the high one. */
void decode_q6_0(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    uint64_t top = load_8(block + 2);
    uint8_t v[32];

    (void)header;
    split_to_bytes(v, block + 10);
    for (int i = 0; i < 4; i++) {
        uint64_t two = top >> (4 * (i % 2) + 2 * (i / 2)) & BYTES(3);

        store_8(out->q + 8 * i, subtract_8(load_8(v + 8 * i) | two << 4, 32));
    }
    set_scale32(out, load_f16(block), 0);
}

void decode_q8_0(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    (void)header;
    memcpy(out->q, block + 2, 32);
    set_scale32(out, load_f16(block), 0);
}

void decode_iq4_nl(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    (void)header;
    split_nibbles_table(out->q, block + 2, quant_values4);
    set_scale32(out, load_f16(block), 0);
}

/* The codes are twice the 4-bit floats, so the 8-bit exponent is biased by 128.  Exponents
 * 0 and 1 give subnormals. */
void decode_mxfp4(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    union {
        uint32_t u;
        float f;
    } d = { block[0] < 2 ? 0x00200000u << block[0] : (block[0] - 1u) << 23 };

    (void)header;
    split_nibbles_table(out->q, block + 1, quant_twice_e2m1);
    set_scale32(out, d.f, 0);
}

/* ---- Longer blocks -------------------------------------------------------- */

/* A byte b is the fraction b/256 whose first base-3 digits are its trits.  Digit n of
 * every byte, n outermost; returns where the next column goes. */
static int8_t *trits(int8_t *to, const uint8_t *bytes, int n_bytes, int n_digits)
{
    unsigned power = 1;

    for (int n = 0; n < n_digits; n++, power *= 3)
        for (int i = 0; i < n_bytes; i++)
            *to++ = (int8_t)((int)((bytes[i] * power & 255) * 3 >> 8) - 1);
    return to;
}

void decode_tq1_0(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f16(block + 52);
    int8_t q[256];
    int8_t *to = trits(q, block, 32, 5);

    (void)header;
    to = trits(to, block + 32, 16, 5);
    trits(to, block + 48, 4, 4);
    for (int k = 0; k < 8; k++) {
        memcpy(out[k].q, q + 32 * k, 32);
        set_scale32(&out[k], d, 0);
    }
}

void decode_tq2_0(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f16(block + 64);
    uint8_t v[32];

    (void)header;
    for (int k = 0; k < 8; k++) {
        plane2(v, block, k);
        subtract(out[k].q, v, 1);
        set_scale32(&out[k], d, 0);
    }
}

void decode_q1_0(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f16(block);

    (void)header;
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < 4; i++)
            store_8(out[k].q + 8 * i, subtract_8(spread1(block[2 + 4 * k + i]) * 2, 1));
        set_scale32(&out[k], d, 0);
    }
}

/* ---- A scale per row ------------------------------------------------------ */

static int8_t bitnet_trit(unsigned byte, unsigned power)
{
    unsigned v = byte * power & 255;

    return (int8_t)((int)((v + (v >> 1)) >> 7) - 1);
}

/* 16 columns are five trits of each of three bytes and one of byte 12, which serves all
 * four groups. */
void decode_iq1_bn(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    static const uint8_t powers[5] = { 81, 27, 9, 3, 1 };
    float d = load_f16(header);

    for (int g = 0; g < 4; g++) {
        int8_t *q = out[g / 2].q + 16 * (g % 2);

        for (int i = 0; i < 15; i++)
            q[i] = bitnet_trit(block[3 * g + i / 5], powers[i % 5]);
        q[15] = bitnet_trit(block[12], powers[g]);
    }
    set_scale32(&out[0], d, 0);
    set_scale32(&out[1], d, 0);
}

void decode_iq2_bn(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    float d = load_f32(header);

    for (int g = 0; g < 4; g++)
        for (int i = 0; i < 16; i++)
            out[g / 2].q[16 * (g % 2) + i] = (int8_t)((block[i] >> (2 * g) & 3) - 1);
    set_scale32(&out[0], d, 0);
    set_scale32(&out[1], d, 0);
}

void decode_q8_kv(const uint8_t *header, const uint8_t *block, struct quant_ints *out)
{
    memcpy(out->q, block, 32);
    set_scale32(out, load_f32(header), 0);
}
