/* SPDX-License-Identifier: MIT */
/* kernels/cpu/cpu_kernels_avx2.c - the table for AVX2, FMA and F16C. */
#include "kernels/cpu/simd_avx2_dots.h"

#include "kernels/cpu/attention.inc"
#include "kernels/cpu/dot.inc"
#include "kernels/cpu/layouts.inc"
#include "kernels/cpu/direct.inc"
#include "kernels/cpu/vector.inc"

const struct cpu_kernels cpu_kernels_avx2 = {
    .isa = "avx2",
    .needs = CPU_AVX2,
#include "kernels/cpu/table.inc"
};
