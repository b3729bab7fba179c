/* SPDX-License-Identifier: MIT */
/* kernels/cpu/cpu_kernels.c - see cpu_kernels.h. */
#include "kernels/cpu/cpu_kernels.h"

#include <stdbool.h>
#include <string.h>

const struct cpu_kernels *const cpu_kernels_all[] = {
#if defined(__x86_64__)
    &cpu_kernels_avx512,
    &cpu_kernels_avx2,
#endif
    &cpu_kernels_portable,
    NULL,
};

/* What the processor can do and the system saves the registers of. */
static unsigned cpu_features(void)
{
    unsigned have = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) /* F16C is older */
        have |= CPU_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni"))
        have |= CPU_AVX512_VNNI;
#endif
    return have;
}

static bool can_run(const struct cpu_kernels *k, unsigned features)
{
    return (k->needs & features) == k->needs;
}

const struct cpu_kernels *cpu_kernels_pick(unsigned allowed)
{
    unsigned usable = cpu_features() & allowed;

    for (const struct cpu_kernels *const *k = cpu_kernels_all; *k; k++)
        if (can_run(*k, usable))
            return *k;
    return &cpu_kernels_portable;
}

const struct cpu_kernels *cpu_kernels_by_name(const char *isa)
{
    for (const struct cpu_kernels *const *k = cpu_kernels_all; *k; k++)
        if (strcmp((*k)->isa, isa) == 0 && can_run(*k, cpu_features()))
            return *k;
    return NULL;
}
