/* SPDX-License-Identifier: MIT */
/* kernels/packing_bits.h - bits of one row's atom to the lines of the x16 form and back; for
 * packing.c alone.
 *
 * Everything works on words of four columns, and all that a layout does to bits inside them is a
 * transpose: the file has one bit plane for many sub-blocks, the x16 form one for many columns of
 * one sub-block.  A transpose undoes itself, so packing and unpacking are the same steps with
 * loads and stores exchanged.  `lines` is where the row's first word or byte goes.
 */
#ifndef KERNELS_PACKING_BITS_H
#define KERNELS_PACKING_BITS_H

#include <string.h>

#include "kernels/packing.h"
#include "kernels/quant_decode.h"

/* ---- Words ---------------------------------------------------------------- */

static inline void store_u16(uint8_t *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline void store_u32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

/* Exchanges the masked fields of b with those of a that lie `shift` bits higher. */
static inline void exchange(uint32_t *a, uint32_t *b, int shift, uint32_t mask)
{
    uint32_t differing = (*a >> shift ^ *b) & mask;

    *a ^= differing << shift;
    *b ^= differing;
}

/* In each byte of n words, n fields of 8/n bits: field j of word i becomes field i of
 * word j. */
static inline void transpose2(uint32_t w[2])
{
    exchange(&w[0], &w[1], 4, 0x0f0f0f0f);
}

static inline void transpose4(uint32_t w[4])
{
    for (int i = 0; i < 2; i++)
        exchange(&w[i], &w[i + 2], 4, 0x0f0f0f0f);
    for (int i = 0; i < 4; i += 2)
        exchange(&w[i], &w[i + 1], 2, 0x33333333);
}

static inline void transpose8(uint32_t w[8])
{
    for (int i = 0; i < 4; i++)
        exchange(&w[i], &w[i + 4], 4, 0x0f0f0f0f);
    for (int i = 0; i < 8; i += 4)
        for (int j = i; j < i + 2; j++)
            exchange(&w[j], &w[j + 2], 2, 0x33333333);
    for (int i = 0; i < 8; i += 2)
        exchange(&w[i], &w[i + 1], 1, 0x55555555);
}

/* ---- Planes --------------------------------------------------------------- */

/* 32 bytes, whose low nibbles are one sub-block of 32 columns and the high ones another,
 * to two sub-blocks [4][16][4] whose low nibbles are columns 0-15 and the high ones 16-31. */
static inline void pack_nibbles(const uint8_t *nibbles, uint8_t *low, uint8_t *high)
{
    for (int c = 0; c < 4; c++) {
        uint32_t w[2] = { load_u32(nibbles + 4 * c), load_u32(nibbles + 16 + 4 * c) };

        transpose2(w);
        store_u32(low + 64 * c, w[0]);
        store_u32(high + 64 * c, w[1]);
    }
}

static inline void unpack_nibbles(const uint8_t *low, const uint8_t *high, uint8_t *nibbles)
{
    for (int c = 0; c < 4; c++) {
        uint32_t w[2] = { load_u32(low + 64 * c), load_u32(high + 64 * c) };

        transpose2(w);
        store_u32(nibbles + 4 * c, w[0]);
        store_u32(nibbles + 16 + 4 * c, w[1]);
    }
}

/* 64 bytes of 2-bit codes: bits 2j, 2j+1 of one byte serve sub-blocks j = 0..3 of one half.  Line c
 * of sub-block j goes to 128 j + 64 c of a half's 512 bytes. */
static inline void pack_twos(const uint8_t *twos, uint8_t *lines)
{
    for (int half = 0; half < 2; half++, lines += 512)
        for (int c = 0; c < 2; c++) {
            uint32_t w[4];

            memcpy(w, twos + 32 * half + 16 * c, sizeof w);
            transpose4(w);
            for (int j = 0; j < 4; j++)
                store_u32(lines + 128 * j + 64 * c, w[j]);
        }
}

static inline void unpack_twos(const uint8_t *lines, uint8_t *twos)
{
    for (int half = 0; half < 2; half++, lines += 512)
        for (int c = 0; c < 2; c++) {
            uint32_t w[4];

            for (int j = 0; j < 4; j++)
                w[j] = load_u32(lines + 128 * j + 64 * c);
            transpose4(w);
            memcpy(twos + 32 * half + 16 * c, w, sizeof w);
        }
}

/* 32 bytes of single bits: bit j of one byte serves sub-block j. */
static inline void pack_ones(const uint8_t *ones, uint8_t *lines)
{
    uint32_t w[8];

    memcpy(w, ones, sizeof w);
    transpose8(w);
    for (int b = 0; b < 8; b++)
        store_u32(lines + 64 * b, w[b]);
}

static inline void unpack_ones(const uint8_t *lines, uint8_t *ones)
{
    uint32_t w[8];

    for (int b = 0; b < 8; b++)
        w[b] = load_u32(lines + 64 * b);
    transpose8(w);
    memcpy(ones, w, sizeof w);
}

/* Bytes that every row of the group has, one line of 16 for each. */
static inline void pack_bytes(const uint8_t *bytes, int n, uint8_t *lines)
{
    for (int s = 0; s < n; s++)
        lines[PACK_ROWS * s] = bytes[s];
}

static inline void unpack_bytes(const uint8_t *lines, int n, uint8_t *bytes)
{
    for (int s = 0; s < n; s++)
        bytes[s] = lines[PACK_ROWS * s];
}

/* The bits of 32 columns, of column j in bit j: bit 4e+i goes to bit 8i+e, and back. */
static inline uint32_t spread_ones(uint32_t w)
{
    exchange(&w, &w, 3, 0x0a0a0a0a);
    exchange(&w, &w, 6, 0x00cc00cc);
    exchange(&w, &w, 12, 0x0000f0f0);
    exchange(&w, &w, 8, 0x0000ff00);
    return w;
}

static inline uint32_t gather_ones(uint32_t w)
{
    exchange(&w, &w, 8, 0x0000ff00);
    exchange(&w, &w, 12, 0x0000f0f0);
    exchange(&w, &w, 6, 0x00cc00cc);
    exchange(&w, &w, 3, 0x0a0a0a0a);
    return w;
}

/* 16 bytes whose low nibbles are columns 0-15 and the high ones 16-31, as they are. */
static inline void pack_line4(const uint8_t *nibbles, uint8_t *lines)
{
    for (int c = 0; c < 4; c++)
        store_u32(lines + 64 * c, load_u32(nibbles + 4 * c));
}

static inline void unpack_line4(const uint8_t *lines, uint8_t *nibbles)
{
    for (int c = 0; c < 4; c++)
        store_u32(nibbles + 4 * c, load_u32(lines + 64 * c));
}

#endif
