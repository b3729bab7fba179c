/* SPDX-License-Identifier: MIT */
/* kernels/packing.h - the x16 form: how matrices lie in host memory.
 *
 * 16 consecutive rows form a group, one sequential stream of bytes.  A group is a
 * row of atoms of 256 columns (the last may be shorter), each complete in itself,
 * so a slice of columns that begins and ends on atoms is a slice of the stream:
 *
 *     matrix   [slab][group][atom]          slab: one expert, otherwise there is one
 *     group    [row headers of 16 rows, padded to 64 bytes][atom 0][atom 1]...
 *
 * Rows are padded with zeros to a multiple of 16.  A group holds the bytes of 16
 * rows in the file, so host memory needs what the file needs; its size is rounded up
 * to 64 bytes, so that every group begins on a cache line (atoms do not: Q6_K's have
 * 52.5 lines).  Inside an atom of n <= 256 columns, with r the row in the group:
 *
 *     F32     [n][16] f32            F16  [n][16] f16        BF16  [n/2][16][2] bf16
 *     Q8_0    [n/32][16] d f16, then [n/32][8][16][4] codes: column 4c+i of row r is byte
 *             4r+i of line c
 *     Q4_K    [16] d, [16] dmin f16; three 64-byte lines of scales; [8][4][16][4] nibbles:
 *             low nibble of byte 4r+i of line c is column 4c+i, high nibble 16+4c+i
 *             scales, byte 4r+j, j = 0..3, with blocks j and 4+j of 32 columns:
 *             line A: bits 0-5 scale of block j, bits 6-7 low two bits of scale of block 4+j
 *             line B: the same of the minima
 *             line C: bits 0-3 scale of block 4+j >> 2, bits 4-7 minimum of block 4+j >> 2
 *     Q5_K    all that of Q4_K, then [8][16] u32: bit 8i+e of word r is the fifth bit of
 *             column 4e+i
 *     Q6_K    [16] d f16; [8][2][16] int8 scales; [8][4][16][4] low nibbles as Q4_K;
 *             [8][2][16][4] top bits: bits 2p, 2p+1 of byte 4r+i of line l: column 16l+4p+i
 *     Q2_K    [16] d, [16] dmin f16; [8][2][16] bytes: low nibble the scale, high the minimum;
 *             [8][2][16][4] codes, as the top bits of Q6_K
 *     Q3_K    [16] d f16; [8][16] bytes: low nibbles of both scales of a block; [4][16] bytes: bits
 * 2s, 2s+1 are the upper bits of scale 4l+s in line l; [8][2][16][4] low bits of codes as Q2_K;
 *             [8][16] u32 third bits, as the fifth of Q5_K
 *     Q4_0, IQ4_NL, MXFP4
 *             [n/32][16] d as in the file, then [n/32][4][16][4] nibbles as Q4_K
 *     Q4_1    the same with [n/32][2][16] d, m f16
 *     Q5_0, Q5_1
 *             the same as Q4_0 and Q4_1, then [n/32][16] u32 fifth bits as Q5_K
 *     IQ4_XS  [16] d f16, [16] u16 upper bits of scales, [16] u32 nibbles of scales, as in the
 *             file; [8][4][16][4] nibbles as Q4_K
 *     others  [block][16] blocks as in the file
 */
#ifndef KERNELS_PACKING_H
#define KERNELS_PACKING_H

#include "kernels/quants.h"

enum { PACK_ROWS = 16, PACK_ATOM = 256 };

/* Bytes of one group of 16 rows of n columns; of the whole matrix of `rows` rows. */
size_t pack_group_bytes(enum quant t, int64_t n);
size_t pack_matrix_bytes(enum quant t, int64_t rows, int64_t n);

/* Offset in a group of the atom that begins at column k (a multiple of 256). */
size_t pack_atom_offset(enum quant t, int64_t k);

/* Packs n_rows (<= 16) plain rows, row_stride bytes apart, as one group; missing rows become
 * zero.  `group` has pack_group_bytes and is 64-byte aligned. */
void pack_group(enum quant t, const uint8_t *rows, size_t row_stride, int n_rows, int64_t n,
                uint8_t *group);

/* The inverse for one row of a group: writes quant_row_bytes(t, n) bytes. */
void unpack_row(enum quant t, const uint8_t *group, int r, int64_t n, uint8_t *row);

#endif
