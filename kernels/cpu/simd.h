/* SPDX-License-Identifier: MIT */
/* kernels/cpu/simd.h - the vector vocabulary: what each simd_<isa>.h must provide.
 *
 * All vectors have 16 lanes on every machine, so that a sum kept in lanes is the same sum
 * everywhere: vf holds 16 f32, vi 16 int32, and where integers are dotted a lane stands for
 * one row of an x16 group (kernels/packing.h).  An ISA may hold a vector in one register or
 * in two; simd_portable.h holds it in an array and says in plain C what a word means.
 *
 *     vf   zero set1 load load_n store store_n | add sub mul div min max neg fma | sum max_bits
 *          load_half store_half | round_to_i8 | to_fixed from_fixed | scale2
 *     vi   load shl and | vi_dot2: sums of two int16 products | vi_to_vf vf_to_vi vi_as_vf
 *
 * min and max are those of SSE: if either operand is NaN, the result is the second one.
 *
 * The integer dot product of one 32-column block is a word too, because machines differ
 * most in it.  It comes in forms, named by what the codes of the weights are:
 *
 *     FORM_S8         any int8; FORM_S8_SCALED the same, times an integer scale per 16
 *     FORM_U4         0..15
 *     FORM_U5         0..31
 *     FORM_U6         0..63 less a constant, times an integer scale per 16
 *
 *     block_dots(form, sum, w, x, b, nc)    sum[c] = a block of a panel times column c of x
 *     dot_line, dot_sum                     one block times one column, by lines of codes:
 *                                           direct.inc alone, not in the portable table
 *
 * Constants say how much an ISA's registers take at once; they never decide about bits:
 * VX_COLUMNS and VF_COLUMNS columns of an integer and a float dot product, SCORE_QUERIES
 * times SCORE_KEYS scores, VALUE_QUERIES rows of values.
 *
 * A union codes holds one block in any form; struct vx holds what a machine needs of up to
 * VX_COLUMNS columns of one atom.  The portable table knows FORM_S8 alone.
 */
#ifndef KERNELS_CPU_SIMD_H
#define KERNELS_CPU_SIMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/packing.h"

enum { LANES = 16, ATOM_BLOCKS = PACK_ATOM / 32 };

enum form { FORM_S8, FORM_S8_SCALED, FORM_U4, FORM_U5, FORM_U6 };

/* A word must vanish into its caller: it passes vectors and constants.  The portable words are
 * left to the compiler, which takes minutes over so much inlined plain C. */
#ifndef WORD
#define WORD static inline __attribute__((always_inline))
#endif

/* A loop that must have the registers for itself. */
#define KERNEL static __attribute__((noinline))

/* Keeps gcc from mixing the steps of an unrolled loop, for which registers do not suffice. */
WORD void end_of_step(void)
{
    __asm__ volatile("" ::: "memory");
}

#endif
