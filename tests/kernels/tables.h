/* SPDX-License-Identifier: MIT */
/* tests/kernels/tables.h - every kernel table that can be run here.
 *
 * Beside those of cpu_kernels_all that this machine supports, there is the AVX-512 table
 * once more, compiled over SIMDe: its bits can be compared on any machine.
 */
#ifndef TESTS_KERNELS_TABLES_H
#define TESTS_KERNELS_TABLES_H

#include "kernels/cpu/cpu_kernels.h"

#if defined(TEST_SIMDE)
extern const struct cpu_kernels cpu_kernels_simde;
#endif

enum { MAX_TABLES = 8 };

/* Fills tables[], the portable one first, and returns their number. */
static inline int runnable_tables(const struct cpu_kernels *tables[MAX_TABLES])
{
    int n = 0;

    tables[n++] = &cpu_kernels_portable;
#if defined(TEST_SIMDE)
    if (cpu_kernels_by_name("avx2")) /* SIMDe stands on AVX2 */
        tables[n++] = &cpu_kernels_simde;
#endif
    for (const struct cpu_kernels *const *k = cpu_kernels_all; *k; k++)
        if (*k != &cpu_kernels_portable && cpu_kernels_by_name((*k)->isa) == *k)
            tables[n++] = *k;
    return n;
}

#endif
