/* SPDX-License-Identifier: MIT */
/* kernels/cpu/cpu_kernels_portable.c - the table that every machine can run, and that
 * defines the bits of the others.  All types go by way of their decoders: no layout that
 * direct.inc knows is known here a second time. */
#include "kernels/cpu/simd_portable.h"

#include "kernels/cpu/attention.inc"
#include "kernels/cpu/dot.inc"
#include "kernels/cpu/vector.inc"

#define dot_ints dot_decoded

const struct cpu_kernels cpu_kernels_portable = {
    .isa = "portable",
    .needs = 0,
#include "kernels/cpu/table.inc"
};
