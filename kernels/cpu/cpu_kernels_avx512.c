/* SPDX-License-Identifier: MIT */
/* kernels/cpu/cpu_kernels_avx512.c - the table for AVX-512 with VNNI. */
#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/attention.inc"
#include "kernels/cpu/dot.inc"
#include "kernels/cpu/layouts.inc"
#include "kernels/cpu/direct.inc"
#include "kernels/cpu/vector.inc"

const struct cpu_kernels cpu_kernels_avx512 = {
    .isa = "avx512",
    .needs = CPU_AVX512_VNNI,
#include "kernels/cpu/table.inc"
};
