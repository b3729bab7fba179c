/* SPDX-License-Identifier: MIT */
/* kernels/quant_deinterleave.h - what the files quant_deinterleave*.c share.
 *
 * A function per interleaved type takes one block of a group (the same columns of R rows)
 * and writes row k of it as a plain block.  It only sets bits: the plain block is zero
 * before.
 */
#ifndef KERNELS_QUANT_DEINTERLEAVE_H
#define KERNELS_QUANT_DEINTERLEAVE_H

#include "kernels/quant_decode.h"

typedef void quant_take_row_fn(const uint8_t *group, int k, uint8_t *block);

/* take_row_q4_0_r8() ... : one for each interleaved type. */
#define X(...)
#define QUANT_INTERLEAVED(NAME, name, ...) quant_take_row_fn take_row_##name;
#define QUANT_REFUSED(...)
#include "kernels/quants.def"
#undef X

/* Row k's half of those at the beginning of a group. */
static inline void copy_half(uint8_t *to, const uint8_t *halves, int k)
{
    memcpy(to, halves + 2 * k, 2);
}

/* The nibble n of a run of `bytes`, in which the low ones come first. */
static inline int run_nibble(const uint8_t *run, int n, int bytes)
{
    return run[n % bytes] >> (4 * (n / bytes)) & 15;
}

/* The 2-bit field n of such a run. */
static inline int run_pair(const uint8_t *run, int n, int bytes)
{
    return run[n % bytes] >> (2 * (n / bytes)) & 3;
}

#endif
