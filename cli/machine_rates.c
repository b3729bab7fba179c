/* SPDX-License-Identifier: MIT */
/* cli/machine_rates.c - multiply-adds that the cores can do on data in registers.
 *
 * One function per kind and instruction set, best first.  The loops are assembly, since a compiler
 * may well put the chains on the stack; what the registers hold does not matter.
 */
#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/log.h"
#include "cli/machine.h"

enum { ROUNDS = 4000000, CHAINS = 10 };

/* Does ROUNDS rounds of CHAINS independent multiply-adds; returns the operations done. */
typedef double math_fn(void);

#if defined(__x86_64__)
#define ON_TEN(DO) DO("0") DO("1") DO("2") DO("3") DO("4") DO("5") DO("6") DO("7") DO("8") DO("9")
#define CLOBBERS                                                                                   \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
        "xmm11", "xmm12", "xmm13"

/* Registers 10 to 13 hold operands.  Zero first: what lies there may be slow denormals. */
#define CLEAR "vzeroall\n\t"
#define LOOP(DO)                                                                                \
    long rounds = ROUNDS;                                                                       \
    __asm__ volatile(CLEAR "1:\n\t" ON_TEN(DO) "dec %0\n\tjnz 1b" : "+r"(rounds) : : CLOBBERS); \
    _mm256_zeroupper()

#define DO(i) "vpdpbusd %%zmm11, %%zmm10, %%zmm" i "\n\t"
__attribute__((target("avx512f,avx512vnni"))) static double int8_avx512(void)
{
    LOOP(DO);
    return 2.0 * 64 * CHAINS * ROUNDS;
}
#undef DO

#define DO(i)                                  \
    "vpmaddubsw %%ymm11, %%ymm10, %%ymm12\n\t" \
    "vpmaddwd %%ymm13, %%ymm12, %%ymm12\n\t"   \
    "vpaddd %%ymm12, %%ymm" i ", %%ymm" i "\n\t"
__attribute__((target("avx2"))) static double int8_avx2(void)
{
    LOOP(DO);
    return 2.0 * 32 * CHAINS * ROUNDS;
}
#undef DO

#define DO(i) "vdpbf16ps %%zmm11, %%zmm10, %%zmm" i "\n\t"
__attribute__((target("avx512f,avx512bf16"))) static double bf16_avx512(void)
{
    LOOP(DO);
    return 2.0 * 32 * CHAINS * ROUNDS;
}
#undef DO

#define DO(i) "vfmadd231ps %%zmm11, %%zmm10, %%zmm" i "\n\t"
__attribute__((target("avx512f"))) static double f32_avx512(void)
{
    LOOP(DO);
    return 2.0 * 16 * CHAINS * ROUNDS;
}
#undef DO

#define DO(i) "vfmadd231ps %%ymm11, %%ymm10, %%ymm" i "\n\t"
__attribute__((target("avx2,fma"))) static double f32_avx2(void)
{
    LOOP(DO);
    return 2.0 * 8 * CHAINS * ROUNDS;
}
#undef DO
#endif

static double int8_portable(void)
{
    unsigned acc[CHAINS] = { 0 };

    for (int i = 0; i < ROUNDS; i++)
        for (unsigned c = 0; c < CHAINS; c++) {
            acc[c] += (unsigned)(uint8_t)i * c;
            __asm__ volatile("" : "+r"(acc[c]));
        }
    return 2.0 * CHAINS * ROUNDS;
}

static double f32_portable(void)
{
    volatile float sink;
    float acc[CHAINS] = { 0 };

    for (int i = 0; i < ROUNDS; i++)
        for (int c = 0; c < CHAINS; c++)
            acc[c] += (float)c * 0.5f;
    for (int c = 0; c < CHAINS; c++)
        sink = acc[c];
    (void)sink;
    return 2.0 * CHAINS * ROUNDS;
}

static math_fn *pick(enum machine_math math)
{
#if defined(__x86_64__)
    if (math == MATH_INT8 && __builtin_cpu_supports("avx512vnni"))
        return int8_avx512;
    if (math == MATH_INT8 && __builtin_cpu_supports("avx2"))
        return int8_avx2;
    if (math == MATH_BF16 && __builtin_cpu_supports("avx512bf16"))
        return bf16_avx512;
    if (math != MATH_INT8 && __builtin_cpu_supports("avx512f"))
        return f32_avx512;
    if (math != MATH_INT8 && __builtin_cpu_supports("fma"))
        return f32_avx2;
#endif
    return math == MATH_INT8 ? int8_portable : f32_portable;
}

struct math_test {
    math_fn *fn;
    double ops; /* of one thread */
};

static void run_math(void *arg, int thread, int n_threads)
{
    struct math_test *t = arg;
    double ops = t->fn();

    (void)n_threads;
    if (thread == 0)
        t->ops = ops;
}

double machine_math_rate(enum machine_math math, const struct team *team)
{
    struct math_test t = { .fn = pick(math) };
    double best = 0;

    for (int i = 0; i < MACHINE_PASSES; i++) {
        double begin = clock_seconds();
        team_run(team, run_math, &t);
        double rate = t.ops * team->n_threads / (clock_seconds() - begin);
        best = rate > best ? rate : best;
    }
    return best;
}
