/* SPDX-License-Identifier: MIT */
/* cli/machine.c - see machine.h.  Both tests keep the best of a few passes: another program can
 * only make a pass slower. */
#include "cli/machine.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/log.h"

enum { PASSES = 5, LINE_WORDS = 8 };

static const size_t READ_BYTES_MAX = (size_t)1 << 30; /* far beyond the caches */

/* ---- Memory --------------------------------------------------------------- */

struct read_test {
    const uint64_t *words;
    int64_t n_lines;
    uint64_t sink; /* keeps the reads alive */
};

/* Every thread writes its own part first, so that its pages are near it. */
static void fill_lines(void *arg, int thread, int n_threads)
{
    struct read_test *t = arg;
    uint64_t *words = (uint64_t *)t->words;
    int64_t end = team_end(t->n_lines, thread, n_threads) * LINE_WORDS;

    for (int64_t i = team_begin(t->n_lines, thread, n_threads) * LINE_WORDS; i < end; i++)
        words[i] = (uint64_t)i;
}

static void read_lines(void *arg, int thread, int n_threads)
{
    struct read_test *t = arg;
    uint64_t sum[LINE_WORDS] = { 0 };
    int64_t end = team_end(t->n_lines, thread, n_threads);

    for (int64_t line = team_begin(t->n_lines, thread, n_threads); line < end; line++) {
        const uint64_t *words = t->words + line * LINE_WORDS;
        __builtin_prefetch(words + 64 * LINE_WORDS);
        for (int i = 0; i < LINE_WORDS; i++)
            sum[i] += words[i];
    }
    for (int i = 1; i < LINE_WORDS; i++)
        sum[0] += sum[i];
    __atomic_fetch_add(&t->sink, sum[0], __ATOMIC_RELAXED);
}

static double measure_read(const struct team *team)
{
    size_t all = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = all / 16 < READ_BYTES_MAX ? all / 16 : READ_BYTES_MAX;
    double best = 0;

    bytes -= bytes % 64;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 0;
    madvise(memory, bytes, MADV_HUGEPAGE);
    struct read_test t = { .words = memory, .n_lines = (int64_t)(bytes / 64) };
    team_run(team, fill_lines, &t);
    for (int i = 0; i < PASSES; i++) {
        double begin = clock_seconds();
        team_run(team, read_lines, &t);
        double rate = (double)bytes / (clock_seconds() - begin);
        best = rate > best ? rate : best;
    }
    munmap(memory, bytes);
    return best;
}

/* ---- Integer multiply-adds ------------------------------------------------ */

enum { MAD_ROUNDS = 4000000, MAD_CHAINS = 10 };

/* One function per instruction set: MAD_ROUNDS rounds of MAD_CHAINS independent multiply-adds of
 * one vector.  Returns the operations done.  The loops are assembly, since a compiler may well
 * put the chains on the stack; what the registers hold does not matter. */
typedef double mad_fn(void);

#if defined(__x86_64__)
#define ON_TEN(DO) DO("0") DO("1") DO("2") DO("3") DO("4") DO("5") DO("6") DO("7") DO("8") DO("9")

__attribute__((target("avx512f,avx512vnni"))) static double mad_avx512(void)
{
    long rounds = MAD_ROUNDS;

#define DO(i) "vpdpbusd %%zmm11, %%zmm10, %%zmm" i "\n\t"
    __asm__ volatile("1:\n\t" ON_TEN(DO) "dec %0\n\tjnz 1b"
                     : "+r"(rounds)
                     :
                     : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11");
#undef DO
    _mm256_zeroupper();
    return 2.0 * 64 * MAD_CHAINS * MAD_ROUNDS;
}

__attribute__((target("avx2"))) static double mad_avx2(void)
{
    long rounds = MAD_ROUNDS;

#define DO(i)                                  \
    "vpmaddubsw %%ymm11, %%ymm10, %%ymm12\n\t" \
    "vpmaddwd %%ymm13, %%ymm12, %%ymm12\n\t"   \
    "vpaddd %%ymm12, %%ymm" i ", %%ymm" i "\n\t"
    __asm__ volatile("1:\n\t" ON_TEN(DO) "dec %0\n\tjnz 1b"
                     : "+r"(rounds)
                     :
                     : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13");
#undef DO
    _mm256_zeroupper();
    return 2.0 * 32 * MAD_CHAINS * MAD_ROUNDS;
}
#endif

static double mad_portable(void)
{
    unsigned acc[MAD_CHAINS] = { 0 };

    for (int i = 0; i < MAD_ROUNDS; i++)
        for (unsigned c = 0; c < MAD_CHAINS; c++) {
            acc[c] += (unsigned)(uint8_t)i * c;
            __asm__ volatile("" : "+r"(acc[c]));
        }
    return 2.0 * MAD_CHAINS * MAD_ROUNDS;
}

static mad_fn *pick_mad(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512vnni"))
        return mad_avx512;
    if (__builtin_cpu_supports("avx2"))
        return mad_avx2;
#endif
    return mad_portable;
}

struct mad_test {
    mad_fn *fn;
    double ops; /* of one thread */
};

static void run_mads(void *arg, int thread, int n_threads)
{
    struct mad_test *t = arg;
    double ops = t->fn();

    (void)n_threads;
    if (thread == 0)
        t->ops = ops;
}

static double measure_int8(const struct team *team)
{
    struct mad_test t = { .fn = pick_mad() };
    double best = 0;

    for (int i = 0; i < PASSES; i++) {
        double begin = clock_seconds();
        team_run(team, run_mads, &t);
        double rate = t.ops * team->n_threads / (clock_seconds() - begin);
        best = rate > best ? rate : best;
    }
    return best;
}

/* ---- The interface -------------------------------------------------------- */

static void read_cpu_name(char *name, size_t size)
{
    char line[256], value[64];
    FILE *f = fopen("/proc/cpuinfo", "r");

    snprintf(name, size, "unknown CPU");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %63[^\n]", value) == 1) {
            snprintf(name, size, "%s", value);
            break;
        }
    if (f)
        fclose(f);
}

void machine_measure(struct machine *m, const struct team *team)
{
    read_cpu_name(m->cpu, sizeof m->cpu);
    m->read_bytes_per_s = measure_read(team);
    m->int8_ops_per_s = measure_int8(team);
}
