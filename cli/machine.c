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

/* Sums lines [begin, end).  Measured on one core of a Zen 3: plain C 15 GB/s, with prefetching by
 * hand 17.5, AVX2 loads 22, AVX2 and prefetching 18. */
typedef uint64_t sum_fn(const uint64_t *words, int64_t begin, int64_t end);

struct read_test {
    sum_fn *sum;
    uint64_t *words;
    int64_t n_lines;
    uint64_t sink; /* keeps the reads alive */
};

/* Every thread writes its own part first, so that its pages are near it. */
static void fill_lines(void *arg, int thread, int n_threads)
{
    struct read_test *t = arg;
    int64_t end = team_end(t->n_lines, thread, n_threads) * LINE_WORDS;

    for (int64_t i = team_begin(t->n_lines, thread, n_threads) * LINE_WORDS; i < end; i++)
        t->words[i] = (uint64_t)i;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t sum_avx2(const uint64_t *words, int64_t begin,
                                                         int64_t end)
{
    __m256i sum[4] = { _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                       _mm256_setzero_si256() };
    const __m256i *p = (const __m256i *)words + 2 * begin;

    for (int64_t line = begin; line + 1 < end; line += 2, p += 4) {
        sum[0] = _mm256_add_epi64(sum[0], p[0]);
        sum[1] = _mm256_add_epi64(sum[1], p[1]);
        sum[2] = _mm256_add_epi64(sum[2], p[2]);
        sum[3] = _mm256_add_epi64(sum[3], p[3]);
    }
    sum[0] = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
    return (uint64_t)_mm256_extract_epi64(sum[0], 0) + (uint64_t)_mm256_extract_epi64(sum[0], 3);
}
#endif

static uint64_t sum_portable(const uint64_t *words, int64_t begin, int64_t end)
{
    uint64_t sum[LINE_WORDS] = { 0 };

    for (int64_t line = begin; line < end; line++)
        for (int i = 0; i < LINE_WORDS; i++)
            sum[i] += words[line * LINE_WORDS + i];
    for (int i = 1; i < LINE_WORDS; i++)
        sum[0] += sum[i];
    return sum[0];
}

static sum_fn *pick_sum(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return sum_avx2;
#endif
    return sum_portable;
}

static void read_lines(void *arg, int thread, int n_threads)
{
    struct read_test *t = arg;
    uint64_t sum = t->sum(t->words, team_begin(t->n_lines, thread, n_threads),
                          team_end(t->n_lines, thread, n_threads));

    __atomic_fetch_add(&t->sink, sum, __ATOMIC_RELAXED);
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
    struct read_test t = { .sum = pick_sum(), .words = memory, .n_lines = (int64_t)(bytes / 64) };
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
