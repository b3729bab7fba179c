/* SPDX-License-Identifier: MIT */
/* tests/tools/bench_kernels.c - how fast the CPU kernels are on this machine.
 *
 *     bench_kernels [--cpu-isa NAME] [TYPE...]
 *
 * GB/s of weights that come from memory, by the number of columns, beside what the same threads
 * read without computing; then multiply-adds per nanosecond of one thread on 16 groups again
 * and again.
 * Times are CPU time of the threads and the best of several runs, so that other programs
 * disturb as little as possible.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/team.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/packing.h"

enum { COLUMNS = 2048, MANY = 512, MAX_FEW = 16, GROUPS = 16, MAX_THREADS = 256 };

static const int few[] = { 1, 2, 3, 4, 6, 8, 16 }, many[] = { 2, 4, 8, 16, 64, MANY };
enum { N_FEW = sizeof few / sizeof *few, N_MANY = sizeof many / sizeof *many };

static const size_t stream_bytes = (size_t)192 << 20; /* per thread; more than any cache */

static const struct cpu_kernels *kernels;

static double thread_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

    if (!p) {
        fprintf(stderr, "bench_kernels: out of memory: %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

/* ---- From memory ---------------------------------------------------------- */

struct stream {
    enum quant t; /* QUANT_COUNT: only read */
    const uint8_t *bytes[MAX_THREADS];
    const struct cpu_column *x;
    int n_cols;
    double seconds[MAX_THREADS]; /* per byte */
    uint64_t sum[MAX_THREADS];   /* keeps the compiler from leaving the reading out */
};

static uint64_t read_all(const uint8_t *bytes, size_t n)
{
    const uint64_t *p = (const uint64_t *)bytes;
    uint64_t sum[8] = { 0 };

    for (size_t i = 0; i < n / 8; i += 8) {
        __builtin_prefetch(p + i + 512);
        for (int j = 0; j < 8; j++)
            sum[j] += p[i + (size_t)j];
    }
    for (int j = 1; j < 8; j++)
        sum[0] += sum[j];
    return sum[0];
}

static size_t multiply_all(const struct stream *s, const uint8_t *bytes)
{
    size_t group = pack_group_bytes(s->t, COLUMNS), done = 0;
    cpu_dot_fn *dot = s->x->q ? kernels->dot[s->t] : kernels->dot_float[s->t];
    _Alignas(64) float acc[GROUPS * MAX_FEW * PACK_ROWS] = { 0 };

    for (; done + (GROUPS + 1) * group <= stream_bytes; done += GROUPS * group)
        dot(&(struct cpu_rows){ s->t, GROUPS, bytes + done, group }, 0, COLUMNS, s->x, s->n_cols,
            acc);
    return done;
}

static void stream_thread(void *arg, int thread, int n_threads)
{
    struct stream *s = arg;
    double start;

    (void)n_threads;
#pragma omp barrier
    start = thread_seconds();
    if (s->t == QUANT_COUNT) {
        s->sum[thread] = read_all(s->bytes[thread], stream_bytes);
        s->seconds[thread] = (thread_seconds() - start) / (double)stream_bytes;
    } else {
        size_t done = multiply_all(s, s->bytes[thread]);
        s->seconds[thread] = (thread_seconds() - start) / (double)done;
    }
}

/* GB/s of n_threads together, the best of five, or of as many as a second holds. */
static double stream_speed(struct stream *s, int n_threads)
{
    double best = 0, end = thread_seconds() + 1;
    struct team team;

    team_init(&team, n_threads);
    for (int run = 0; run < 5 && (run == 0 || thread_seconds() < end); run++) {
        double speed = 0;

        team_run(&team, stream_thread, s);
        for (int i = 0; i < n_threads; i++)
            speed += 1e-9 / s->seconds[i];
        best = speed > best ? speed : best;
    }
    return best;
}

/* ---- Many columns --------------------------------------------------------- */

/* Multiply-adds per nanosecond on one thread. */
static double many_speed(enum quant t, const uint8_t *group, const struct cpu_column *x, int n_cols)
{
    struct cpu_rows w = { t, GROUPS, group, pack_group_bytes(t, COLUMNS) };
    cpu_dot_fn *dot = x->q ? kernels->dot[t] : kernels->dot_float[t];
    size_t acc_bytes = (size_t)(GROUPS * n_cols) * PACK_ROWS * sizeof(float);
    float *acc = take(acc_bytes);
    double best = 0;

    memset(acc, 0, acc_bytes);
    for (int run = 0; run < 20; run++) {
        int repeat = (MANY + 8 * n_cols - 1) / (8 * n_cols);
        double start = thread_seconds(), speed;

        for (int i = 0; i < repeat; i++)
            dot(&w, 0, COLUMNS, x, n_cols, acc);
        speed = 1e-9 * GROUPS * PACK_ROWS * COLUMNS * repeat * n_cols / (thread_seconds() - start);
        best = speed > best ? speed : best;
    }
    free(acc);
    return best;
}

/* ---- Input and output ----------------------------------------------------- */

static void make_columns(struct cpu_column *x, int n, bool quantised)
{
    for (int c = 0; c < n; c++) {
        float *f = take(COLUMNS * sizeof *f), *d = take(COLUMNS / 32 * sizeof *d);
        float *s = take(COLUMNS / 32 * sizeof *s);
        int8_t *q = take(COLUMNS);
        int16_t *sum = take(COLUMNS / 16 * sizeof *sum);

        for (int i = 0; i < COLUMNS; i++)
            f[i] = (float)(rand() % 2001 - 1000) / 1000;
        kernels->quantize(f, COLUMNS, q, d, s, sum);
        x[c] = (struct cpu_column){ f, quantised ? q : NULL, d, s, sum };
    }
}

static void print_type(struct stream *s, enum quant t, int n_threads,
                       const struct cpu_column *quantised, const struct cpu_column *floats)
{
    const struct cpu_column *x = quant_info[t].program == QUANT_FLOAT ? floats : quantised;

    s->t = t;
    s->x = x;
    s->n_cols = 1;
    printf("%-8s %6.1f |", quant_info[t].name, stream_speed(s, 1));
    for (size_t i = 0; i < N_FEW; i++) {
        s->n_cols = few[i];
        printf(" %5.1f", stream_speed(s, n_threads));
    }
    printf(" |");
    for (size_t i = 0; i < N_MANY; i++)
        printf(" %6.1f", many_speed(t, s->bytes[0], x, many[i]));
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const enum quant usual[] = { QUANT_Q8_0,   QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K,
                                        QUANT_IQ4_XS, QUANT_Q2_K, QUANT_F16,  QUANT_F32 };
    static struct cpu_column quantised[MANY], floats[MANY];
    static struct stream s;
    struct team all;
    int first = 1;

    kernels = cpu_kernels_pick(~0u);
    if (argc > 2 && strcmp(argv[1], "--cpu-isa") == 0) {
        kernels = cpu_kernels_by_name(argv[2]);
        first = 3;
    }
    if (!kernels) {
        fprintf(stderr, "bench_kernels: %s: not an instruction set of this machine\n", argv[2]);
        return 2;
    }
    team_init(&all, 0);
    if (all.n_threads > MAX_THREADS)
        all.n_threads = MAX_THREADS;
    team_flush_denormals();
    for (int i = 0; i < all.n_threads; i++) {
        struct arena arena;
        struct err e;
        uint8_t *bytes;

        if (arena_map(&arena, stream_bytes, "weights", &e) != ERR_OK) {
            fprintf(stderr, "bench_kernels: %s\n", e.msg);
            return 1;
        }
        bytes = arena_take(&arena, stream_bytes);
        for (size_t j = 0; j < stream_bytes; j++)
            bytes[j] = (uint8_t)(j * 2654435761u >> 13);
        s.bytes[i] = bytes;
    }
    make_columns(quantised, MANY, true);
    make_columns(floats, MANY, false);
    s.t = QUANT_COUNT;
    printf("%s; GB/s from memory, one thread | %d threads by columns | multiply-adds per ns of one "
           "thread by columns\n",
           kernels->isa, all.n_threads);
    printf("%-8s %6s |", "", "1");
    for (size_t i = 0; i < N_FEW; i++)
        printf(" %5d", few[i]);
    printf(" |");
    for (size_t i = 0; i < N_MANY; i++)
        printf(" %6d", many[i]);
    printf("\n");
    printf("%-8s %6.1f | %5.1f\n", "read", stream_speed(&s, 1), stream_speed(&s, all.n_threads));
    if (first == argc)
        for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
            print_type(&s, usual[i], all.n_threads, quantised, floats);
    for (int i = first; i < argc; i++) {
        enum quant t = quant_by_name(argv[i]);

        if (t == QUANT_COUNT || quant_refusal(t) || quant_info[t].plain != t) {
            fprintf(stderr, "bench_kernels: %s: not a type that has a kernel\n", argv[i]);
            return 2;
        }
        print_type(&s, t, all.n_threads, quantised, floats);
    }
    return 0;
}
