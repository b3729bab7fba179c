/* SPDX-License-Identifier: MIT */
/* kernels/quant_decode.h - what the decoders of quant_decode_*.c share.
 *
 * Blocks lie unaligned and little-endian in the file, as in the memory of every
 * machine that latentd runs on.  Codes are produced eight at a time in a 64-bit word
 * where a table has few levels, otherwise one by one without branches.
 */
#ifndef KERNELS_QUANT_DECODE_H
#define KERNELS_QUANT_DECODE_H

#include <string.h>

#include "kernels/quants.h"

/* decode_q4_0() ... : one quant_decode_fn per computable type. */
#define QUANT_INTERLEAVED(...)
#define QUANT_REFUSED(...)
#define X(NAME, name, ...) quant_decode_fn decode_##name;
#include "kernels/quants.def"
#undef X

/* The weights of an IQ6_K row come from a cubic; its codes are that cubic rounded. */
void dequantize_iq6_k(const uint8_t *block, float out[256]);

static inline uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline float load_f32(const uint8_t *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Integer arithmetic only where it matters: a worker that flushes subnormals must
 * still read subnormal halves, which are normal floats. */
static inline float load_f16(const uint8_t *p)
{
    uint32_t h = load_u16(p), magnitude = h & 0x7fff;
    union {
        uint32_t u;
        float f;
    } v;

    if (magnitude < 0x0400)
        v.f = (float)(int)magnitude * 0x1p-24f;
    else
        v.u = (magnitude << 13) + (magnitude < 0x7c00 ? 0x38000000u : 0x70000000u);
    v.u |= (h & 0x8000) << 16;
    return v.f;
}

/* The fields of SCALE32 beside the codes. */
static inline void set_scale32(struct quant_ints *out, float d, float m)
{
    out->d = d;
    out->m = m;
}

/* The fields of SCALE16 beside the codes, for types without a minimum. */
static inline void set_scale16(struct quant_ints *out, float d, int s0, int s1)
{
    out->d = d;
    out->m = 0;
    out->s[0] = (int16_t)s0;
    out->s[1] = (int16_t)s1;
    out->n[0] = out->n[1] = 0;
}

/* Eight bytes in a word. */
#define BYTES(b) (0x0101010101010101u * (uint64_t)(b))

static inline void store_8(int8_t q[8], uint64_t bytes)
{
    memcpy(q, &bytes, sizeof bytes);
}

static inline uint64_t load_8(const uint8_t v[8])
{
    uint64_t bytes;

    memcpy(&bytes, v, sizeof bytes);
    return bytes;
}

/* Subtracts from each byte; the top bits, flipped twice, keep the borrow in its byte. */
static inline uint64_t subtract_8(uint64_t bytes, int bias)
{
    return (bytes + BYTES(0x80 - bias)) ^ BYTES(0x80);
}

/* Eight bits to eight bytes of 0 or 1. */
static inline uint64_t spread1(unsigned bits)
{
    uint64_t bit = bits * BYTES(1) & 0x8040201008040201;

    return (bit + BYTES(0x7f)) >> 7 & BYTES(1);
}

/* 16 bytes hold columns 0-15 in their low nibbles, 16-31 in the high ones. */
static inline void split_to_bytes(uint8_t *restrict v, const uint8_t *restrict bytes)
{
    for (int j = 0; j < 16; j++) {
        v[j] = bytes[j] & 15;
        v[16 + j] = bytes[j] >> 4;
    }
}

static inline void split_nibbles(int8_t *restrict q, const uint8_t *restrict bytes, int bias)
{
    for (int j = 0; j < 16; j++) {
        q[j] = (int8_t)((bytes[j] & 15) - bias);
        q[16 + j] = (int8_t)((bytes[j] >> 4) - bias);
    }
}

static inline void split_nibbles_table(int8_t q[32], const uint8_t *bytes, const int8_t *table)
{
    for (int j = 0; j < 16; j++) {
        q[j] = table[bytes[j] & 15];
        q[16 + j] = table[bytes[j] >> 4];
    }
}

/* Columns 32k .. 32k+31 of a block of 256 in the order of the K types: 2-bit planes of
 * 64 bytes, nibble planes of 128, bit planes of 32. */
static inline void plane2(uint8_t *restrict v, const uint8_t *restrict plane, int k)
{
    for (int l = 0; l < 32; l++)
        v[l] = plane[32 * (k / 4) + l] >> (2 * (k % 4)) & 3;
}

static inline void plane4(uint8_t *restrict v, const uint8_t *restrict plane, int k)
{
    for (int l = 0; l < 32; l++)
        v[l] = plane[32 * (k / 2) + l] >> (4 * (k % 2)) & 15;
}

/* Adds bit k of each byte of a bit plane to v, as bit `to`. */
static inline void plane1_add(uint8_t *restrict v, const uint8_t *restrict plane, int k, int to)
{
    for (int l = 0; l < 32; l++)
        v[l] |= (uint8_t)((plane[l] >> k & 1) << to);
}

/* q[i] = v[i] - bias */
static inline void subtract(int8_t *restrict q, const uint8_t *restrict v, int bias)
{
    for (int l = 0; l < 32; l++)
        q[l] = (int8_t)(v[l] - bias);
}

/* q[i] = table[v[i]].  Not restrict: where compilers may assume that, they gather
 * the looked-up bytes into vectors, which takes longer than storing each. */
static inline void look_up(int8_t q[32], const uint8_t v[32], const int8_t *table)
{
    for (int l = 0; l < 32; l++)
        q[l] = table[v[l]];
}

#endif
