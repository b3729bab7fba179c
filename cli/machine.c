/* SPDX-License-Identifier: MIT */
/* cli/machine.c - see machine.h.  The test keeps the best of a few passes: another program can only
 * make a pass slower. */
#include "placement/probe.h"
#include "cli/machine.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/log.h"

enum { LINE_WORDS = 8 };

static const size_t READ_BYTES_MAX = (size_t)1 << 30; /* far beyond the caches */

/* ---- Memory --------------------------------------------------------------- */

/* Sums lines [begin, end).  Measured on one core of a Zen 3: plain C 15 GB/s, with prefetching by
 * hand 17.5, AVX2 loads 22, AVX2 and prefetching 18. */
typedef uint64_t sum_fn(const uint64_t *words, int64_t begin, int64_t end);

struct read_test {
    const int *cpus; /* [n_threads] that the threads keep to, or NULL */
    sum_fn *sum;
    uint64_t *words;
    int64_t n_lines;
    uint64_t sink; /* keeps the reads alive */
};

/* A thread that cannot be bound stays where it is: the number is then a little lower. */
static void bind_thread(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* Every thread writes its own part first, so that its pages are near it. */
static void fill_lines(void *arg, int thread, int n_threads)
{
    struct read_test *t = arg;
    int64_t end = team_end(t->n_lines, thread, n_threads) * LINE_WORDS;

    if (t->cpus)
        bind_thread(t->cpus[thread]);
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

static void free_thread(void *arg, int thread, int n_threads)
{
    (void)thread;
    (void)n_threads;
    sched_setaffinity(0, sizeof(cpu_set_t), arg);
}

double machine_read_rate(const struct team *team, const int *cpus)
{
    size_t all = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = all / 16 < READ_BYTES_MAX ? all / 16 : READ_BYTES_MAX;
    double best = 0;
    cpu_set_t before;

    sched_getaffinity(0, sizeof before, &before);
    bytes -= bytes % 64;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 0;
    madvise(memory, bytes, MADV_HUGEPAGE);
    struct read_test t = {
        .cpus = cpus, .sum = pick_sum(), .words = memory, .n_lines = (int64_t)(bytes / 64)
    };
    team_run(team, fill_lines, &t);
    for (int i = 0; i < MACHINE_PASSES; i++) {
        double begin = clock_seconds();
        team_run(team, read_lines, &t);
        double rate = (double)bytes / (clock_seconds() - begin);
        best = rate > best ? rate : best;
    }
    if (cpus)
        team_run(team, free_thread, &before);
    munmap(memory, bytes);
    return best;
}

/* ---- The interface -------------------------------------------------------- */

void machine_measure(struct machine *m, const struct team *team)
{
    probe_cpu_name(m->cpu, sizeof m->cpu);
    m->read_bytes_per_s = machine_read_rate(team, NULL);
    m->int8_ops_per_s = machine_math_rate(MATH_INT8, team);
}
