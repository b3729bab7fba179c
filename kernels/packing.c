/* SPDX-License-Identifier: MIT */
/* kernels/packing.c - see packing.h.
 *
 * Each layout is a pair of functions that move one row's part of one atom.
 *
 * Reading order: one pair per layout; the interface.
 */
#include "kernels/packing.h"

#include <string.h>

#include "kernels/packing_bits.h"

/* ---- The layouts ---------------------------------------------------------- */

/* What every function below gets: an atom of n columns and row r of it. */
typedef void pack_fn(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                     int r);
typedef void unpack_fn(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                       uint8_t *row);

/* A block, without a call where it is short: most are less than three words. */
static inline void copy_block(uint8_t *to, const uint8_t *from, size_t bytes)
{
    size_t i = 0;

    if (bytes < 8 || bytes > 40) {
        memcpy(to, from, bytes);
        return;
    }
    for (; i + 8 < bytes; i += 8)
        memcpy(to + i, from + i, 8);
    memcpy(to + bytes - 8, from + bytes - 8, 8);
}

/* All types without a layout of their own. */
static void pack_blocks(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                        int r)
{
    size_t bytes = info->bytes;

    atom += (size_t)r * bytes;
    for (int64_t k = 0; k < n; k += info->values, row += bytes, atom += PACK_ROWS * bytes)
        copy_block(atom, row, bytes);
}

static void unpack_blocks(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                          uint8_t *row)
{
    size_t bytes = info->bytes;

    atom += (size_t)r * bytes;
    for (int64_t k = 0; k < n; k += info->values, row += bytes, atom += PACK_ROWS * bytes)
        copy_block(row, atom, bytes);
}

static void pack_f32(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                     int r)
{
    (void)info;
    for (int64_t k = 0; k < n; k++)
        store_u32(atom + 64 * k + 4 * r, load_u32(row + 4 * k));
}

static void unpack_f32(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                       uint8_t *row)
{
    (void)info;
    for (int64_t k = 0; k < n; k++)
        store_u32(row + 4 * k, load_u32(atom + 64 * k + 4 * r));
}

static void pack_f16(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                     int r)
{
    (void)info;
    for (int64_t k = 0; k < n; k++)
        store_u16(atom + 32 * k + 2 * r, load_u16(row + 2 * k));
}

static void unpack_f16(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                       uint8_t *row)
{
    (void)info;
    for (int64_t k = 0; k < n; k++)
        store_u16(row + 2 * k, load_u16(atom + 32 * k + 2 * r));
}

/* Pairs of columns; the last of an odd number stands beside a zero. */
static void pack_bf16(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                      int r)
{
    (void)info;
    for (int64_t k = 0; k + 1 < n; k += 2)
        store_u32(atom + 32 * k + 4 * r, load_u32(row + 2 * k));
    if (n % 2 != 0)
        store_u32(atom + 32 * (n - 1) + 4 * r, load_u16(row + 2 * (n - 1)));
}

static void unpack_bf16(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                        uint8_t *row)
{
    (void)info;
    for (int64_t k = 0; k < n; k++)
        store_u16(row + 2 * k, load_u16(atom + 32 * (k & ~1LL) + 4 * r + 2 * (k % 2)));
}

static void pack_q8_0(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                      int r)
{
    uint8_t *codes = atom + n + 4 * r; /* n/32 lines of 16 scales before */

    for (int64_t b = 0; b < n / 32; b++, row += info->bytes) {
        store_u16(atom + 32 * b + 2 * r, load_u16(row));
        for (int c = 0; c < 8; c++, codes += 64)
            store_u32(codes, load_u32(row + 2 + 4 * c));
    }
}

static void unpack_q8_0(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                        uint8_t *row)
{
    const uint8_t *codes = atom + n + 4 * r;

    for (int64_t b = 0; b < n / 32; b++, row += info->bytes) {
        store_u16(row, load_u16(atom + 32 * b + 2 * r));
        for (int c = 0; c < 8; c++, codes += 64)
            store_u32(row + 2 + 4 * c, load_u32(codes));
    }
}

/* The 16 bytes at the beginning of blocks of Q4_K and Q5_K.  The file cuts scale 4+j at
 * bit 4 and keeps the upper part beside scale j; here the cut is at bit 2 and the lower
 * part is beside it. */
static void pack_k_scales(const uint8_t *block, uint8_t *atom, int r)
{
    const uint8_t *s = block + 4;
    uint8_t *lines = atom + 64 + 4 * r;

    store_u16(atom + 2 * r, load_u16(block));
    store_u16(atom + 32 + 2 * r, load_u16(block + 2));
    for (int j = 0; j < 4; j++) {
        int scale = (s[8 + j] & 15) | s[j] >> 6 << 4, min = s[8 + j] >> 4 | s[4 + j] >> 6 << 4;

        lines[j] = (uint8_t)((s[j] & 63) | scale << 6);
        lines[64 + j] = (uint8_t)((s[4 + j] & 63) | min << 6);
        lines[128 + j] = (uint8_t)(scale >> 2 | min >> 2 << 4);
    }
}

static void unpack_k_scales(const uint8_t *atom, int r, uint8_t *block)
{
    const uint8_t *lines = atom + 64 + 4 * r;
    uint8_t *s = block + 4;

    store_u16(block, load_u16(atom + 2 * r));
    store_u16(block + 2, load_u16(atom + 32 + 2 * r));
    for (int j = 0; j < 4; j++) {
        int scale = lines[j] >> 6 | (lines[128 + j] & 15) << 2;
        int min = lines[64 + j] >> 6 | lines[128 + j] >> 4 << 2;

        s[j] = (uint8_t)((lines[j] & 63) | scale >> 4 << 6);
        s[4 + j] = (uint8_t)((lines[64 + j] & 63) | min >> 4 << 6);
        s[8 + j] = (uint8_t)((scale & 15) | min << 4);
    }
}

static void pack_q4_k(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                      int r)
{
    (void)info;
    (void)n;
    pack_k_scales(row, atom, r);
    atom += 256 + 4 * r;
    for (int k = 0; k < 8; k += 2)
        pack_nibbles(row + 16 + 16 * k, atom + 256 * k, atom + 256 * (k + 1));
}

static void unpack_q4_k(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                        uint8_t *row)
{
    (void)info;
    (void)n;
    unpack_k_scales(atom, r, row);
    atom += 256 + 4 * r;
    for (int k = 0; k < 8; k += 2)
        unpack_nibbles(atom + 256 * k, atom + 256 * (k + 1), row + 16 + 16 * k);
}

/* Q5_K is Q4_K with a bit plane between scales and nibbles in the file, and at the end here. */
static void pack_q5_k(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                      int r)
{
    (void)info;
    (void)n;
    pack_k_scales(row, atom, r);
    atom += 256 + 4 * r;
    for (int k = 0; k < 8; k += 2)
        pack_nibbles(row + 48 + 16 * k, atom + 256 * k, atom + 256 * (k + 1));
    pack_ones(row + 16, atom + 2048);
}

static void unpack_q5_k(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                        uint8_t *row)
{
    (void)info;
    (void)n;
    unpack_k_scales(atom, r, row);
    atom += 256 + 4 * r;
    for (int k = 0; k < 8; k += 2)
        unpack_nibbles(atom + 256 * k, atom + 256 * (k + 1), row + 48 + 16 * k);
    unpack_ones(atom + 2048, row + 16);
}

/* A byte of Q6_K's nibbles serves sub-blocks k and k + 2.  Line c of nibbles is at
 * 256 k + 64 c. */
static void pack_q6_k(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                      int r)
{
    uint8_t *nibbles = atom + 288 + 4 * r;

    (void)info;
    (void)n;
    store_u16(atom + 2 * r, load_u16(row + 208));
    pack_bytes(row + 192, 16, atom + 32 + r);
    for (int half = 0; half < 2; half++, nibbles += 1024)
        for (int j = 0; j < 2; j++)
            pack_nibbles(row + 64 * half + 32 * j, nibbles + 256 * j, nibbles + 256 * (j + 2));
    pack_twos(row + 128, atom + 2336 + 4 * r);
}

static void unpack_q6_k(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                        uint8_t *row)
{
    const uint8_t *nibbles = atom + 288 + 4 * r;

    (void)info;
    (void)n;
    store_u16(row + 208, load_u16(atom + 2 * r));
    unpack_bytes(atom + 32 + r, 16, row + 192);
    for (int half = 0; half < 2; half++, nibbles += 1024)
        for (int j = 0; j < 2; j++)
            unpack_nibbles(nibbles + 256 * j, nibbles + 256 * (j + 2), row + 64 * half + 32 * j);
    unpack_twos(atom + 2336 + 4 * r, row + 128);
}

static void pack_q2_k(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                      int r)
{
    (void)info;
    (void)n;
    store_u16(atom + 2 * r, load_u16(row + 80));
    store_u16(atom + 32 + 2 * r, load_u16(row + 82));
    pack_bytes(row, 16, atom + 64 + r);
    pack_twos(row + 16, atom + 320 + 4 * r);
}

static void unpack_q2_k(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                        uint8_t *row)
{
    (void)info;
    (void)n;
    store_u16(row + 80, load_u16(atom + 2 * r));
    store_u16(row + 82, load_u16(atom + 32 + 2 * r));
    unpack_bytes(atom + 64 + r, 16, row);
    unpack_twos(atom + 320 + 4 * r, row + 16);
}

/* The file has the low bits of scales s and 8 + s in one byte, and the upper ones of s, 4 + s, 8 +
 * s and 12 + s in another; here those of a sub-block's two scales are side by side. */
static void pack_q3_k(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                      int r)
{
    const uint8_t *s = row + 96;
    uint8_t scales[12] = { 0 };

    (void)info;
    (void)n;
    for (int i = 0; i < 16; i++) {
        scales[i / 2] |= (uint8_t)((s[i % 8] >> (4 * (i / 8)) & 15) << (4 * (i % 2)));
        scales[8 + i / 4] |= (uint8_t)((s[8 + i % 4] >> (2 * (i / 4)) & 3) << (2 * (i % 4)));
    }
    store_u16(atom + 2 * r, load_u16(row + 108));
    pack_bytes(scales, 12, atom + 32 + r);
    pack_twos(row + 32, atom + 224 + 4 * r);
    pack_ones(row, atom + 1248 + 4 * r);
}

static void unpack_q3_k(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                        uint8_t *row)
{
    uint8_t *s = row + 96, scales[12];

    (void)info;
    (void)n;
    unpack_bytes(atom + 32 + r, 12, scales);
    memset(s, 0, 12);
    for (int i = 0; i < 16; i++) {
        s[i % 8] |= (uint8_t)((scales[i / 2] >> (4 * (i % 2)) & 15) << (4 * (i / 8)));
        s[8 + i % 4] |= (uint8_t)((scales[8 + i / 4] >> (2 * (i % 4)) & 3) << (2 * (i / 4)));
    }
    store_u16(row + 108, load_u16(atom + 2 * r));
    unpack_twos(atom + 224 + 4 * r, row + 32);
    unpack_ones(atom + 1248 + 4 * r, row);
}

/* A scale of one or two bytes, and nibbles: Q4_0, IQ4_NL, MXFP4. */
static void pack_4bit(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                      int r)
{
    int64_t scale = info->bytes - 16, blocks = n / 32;
    uint8_t *codes = atom + PACK_ROWS * scale * blocks + 4 * r;

    for (int64_t b = 0; b < blocks; b++, row += info->bytes, codes += 256) {
        memcpy(atom + scale * (PACK_ROWS * b + r), row, (size_t)scale);
        pack_line4(row + scale, codes);
    }
}

static void unpack_4bit(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                        uint8_t *row)
{
    int64_t scale = info->bytes - 16, blocks = n / 32;
    const uint8_t *codes = atom + PACK_ROWS * scale * blocks + 4 * r;

    for (int64_t b = 0; b < blocks; b++, row += info->bytes, codes += 256) {
        memcpy(row, atom + scale * (PACK_ROWS * b + r), (size_t)scale);
        unpack_line4(codes, row + scale);
    }
}

/* One or two halves, a word of fifth bits or none, and nibbles: Q4_1, Q5_0, Q5_1. */
static void pack_halves(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                        int r)
{
    int64_t halves = info->bytes % 4 ? 1 : 2, blocks = n / 32, nibbles = info->bytes - 16;
    uint8_t *codes = atom + 32 * halves * blocks + 4 * r, *bits = codes + 256 * blocks;

    for (int64_t b = 0; b < blocks; b++, row += info->bytes, codes += 256) {
        for (int64_t h = 0; h < halves; h++, atom += 32)
            store_u16(atom + 2 * r, load_u16(row + 2 * h));
        if (nibbles > 2 * halves)
            store_u32(bits + 64 * b, spread_ones(load_u32(row + 2 * halves)));
        pack_line4(row + nibbles, codes);
    }
}

static void unpack_halves(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                          uint8_t *row)
{
    int64_t halves = info->bytes % 4 ? 1 : 2, blocks = n / 32, nibbles = info->bytes - 16;
    const uint8_t *codes = atom + 32 * halves * blocks + 4 * r, *bits = codes + 256 * blocks;

    for (int64_t b = 0; b < blocks; b++, row += info->bytes, codes += 256) {
        for (int64_t h = 0; h < halves; h++, atom += 32)
            store_u16(row + 2 * h, load_u16(atom + 2 * r));
        if (nibbles > 2 * halves)
            store_u32(row + 2 * halves, gather_ones(load_u32(bits + 64 * b)));
        unpack_line4(codes, row + nibbles);
    }
}

static void pack_iq4_xs(const struct quant_info *info, const uint8_t *row, int64_t n, uint8_t *atom,
                        int r)
{
    (void)info;
    (void)n;
    store_u16(atom + 2 * r, load_u16(row));
    store_u16(atom + 32 + 2 * r, load_u16(row + 2));
    store_u32(atom + 64 + 4 * r, load_u32(row + 4));
    for (int b = 0; b < 8; b++)
        pack_line4(row + 8 + 16 * b, atom + 128 + 256 * b + 4 * r);
}

static void unpack_iq4_xs(const struct quant_info *info, const uint8_t *atom, int r, int64_t n,
                          uint8_t *row)
{
    (void)info;
    (void)n;
    store_u16(row, load_u16(atom + 2 * r));
    store_u16(row + 2, load_u16(atom + 32 + 2 * r));
    store_u32(row + 4, load_u32(atom + 64 + 4 * r));
    for (int b = 0; b < 8; b++)
        unpack_line4(atom + 128 + 256 * b + 4 * r, row + 8 + 16 * b);
}

/* ---- The interface -------------------------------------------------------- */

struct layout {
    pack_fn *pack;
    unpack_fn *unpack;
};

static const struct layout blocks_layout = { pack_blocks, unpack_blocks };
static const struct layout direct_layouts[QUANT_COUNT] = {
    [QUANT_F32] = {pack_f32,     unpack_f32   },
      [QUANT_F16] = { pack_f16,    unpack_f16   },
    [QUANT_BF16] = { pack_bf16,   unpack_bf16  },
      [QUANT_Q8_0] = { pack_q8_0,   unpack_q8_0  },
    [QUANT_Q2_K] = { pack_q2_k,   unpack_q2_k  },
      [QUANT_Q3_K] = { pack_q3_k,   unpack_q3_k  },
    [QUANT_Q4_K] = { pack_q4_k,   unpack_q4_k  },
      [QUANT_Q5_K] = { pack_q5_k,   unpack_q5_k  },
    [QUANT_Q6_K] = { pack_q6_k,   unpack_q6_k  },
      [QUANT_Q4_0] = { pack_4bit,   unpack_4bit  },
    [QUANT_IQ4_NL] = { pack_4bit,   unpack_4bit  },
      [QUANT_MXFP4] = { pack_4bit,   unpack_4bit  },
    [QUANT_IQ4_XS] = { pack_iq4_xs, unpack_iq4_xs},
      [QUANT_Q4_1] = { pack_halves, unpack_halves},
    [QUANT_Q5_0] = { pack_halves, unpack_halves},
      [QUANT_Q5_1] = { pack_halves, unpack_halves},
};

static const struct layout *layout_of(enum quant t)
{
    return direct_layouts[t].pack ? &direct_layouts[t] : &blocks_layout;
}

static size_t round_up_64(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Bytes of 16 headers, and of n columns behind them. */
static size_t headers_bytes(enum quant t)
{
    return round_up_64((size_t)PACK_ROWS * quant_info[t].header);
}

static size_t columns_bytes(enum quant t, int64_t n)
{
    const struct quant_info *info = &quant_info[t];

    if (t == QUANT_BF16)
        n += n % 2;
    return (size_t)n / info->values * info->bytes * PACK_ROWS;
}

size_t pack_group_bytes(enum quant t, int64_t n)
{
    return round_up_64(headers_bytes(t) + columns_bytes(t, n));
}

size_t pack_matrix_bytes(enum quant t, int64_t rows, int64_t n)
{
    return (size_t)((rows + PACK_ROWS - 1) / PACK_ROWS) * pack_group_bytes(t, n);
}

size_t pack_atom_offset(enum quant t, int64_t k)
{
    return headers_bytes(t) + columns_bytes(t, k);
}

void pack_group(enum quant t, const uint8_t *rows, size_t row_stride, int n_rows, int64_t n,
                uint8_t *group)
{
    const struct quant_info *info = &quant_info[t];
    size_t end = pack_atom_offset(t, n);

    if (n_rows < PACK_ROWS)
        memset(group, 0, end);
    memset(group, 0, headers_bytes(t));
    memset(group + end, 0, pack_group_bytes(t, n) - end);
    for (int r = 0; r < n_rows && info->header > 0; r++)
        memcpy(group + (size_t)r * info->header, rows + (size_t)r * row_stride, info->header);

    for (int64_t k = 0; k < n; k += PACK_ATOM) {
        const uint8_t *from = rows + quant_row_bytes(t, (size_t)k);
        uint8_t *atom = group + pack_atom_offset(t, k);
        int64_t columns = n - k < PACK_ATOM ? n - k : PACK_ATOM;

        for (int r = 0; r < n_rows; r++)
            layout_of(t)->pack(info, from + (size_t)r * row_stride, columns, atom, r);
    }
}

void unpack_row(enum quant t, const uint8_t *group, int r, int64_t n, uint8_t *row)
{
    const struct quant_info *info = &quant_info[t];

    memcpy(row, group + (size_t)r * info->header, info->header);
    for (int64_t k = 0; k < n; k += PACK_ATOM) {
        int64_t columns = n - k < PACK_ATOM ? n - k : PACK_ATOM;

        layout_of(t)->unpack(info, group + pack_atom_offset(t, k), r, columns,
                             row + quant_row_bytes(t, (size_t)k));
    }
}
