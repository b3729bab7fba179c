/* SPDX-License-Identifier: MIT */
/* tests/kernels/dot_test.c - matrix kernels: every type, table, width and slice.
 *
 * One test per computable type, made from quants.def.  The portable table is held against
 * sums in double precision, all others against the portable one by memcmp.  A type that is
 * added to the list is tested without touching this file.
 */
#include "kernels/cpu/cpu_kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/team.h"
#include "kernels/packing.h"
#include "tests/kernels/tables.h"

enum { GROUPS = 2, ROWS = GROUPS * PACK_ROWS, MAX_COLS = 70 };

/* Slices of 1, 3, 5... atoms; a sanitizer makes all ten times as long. */
#ifdef __SANITIZE_ADDRESS__
enum { SLICE_STEP = 6 * PACK_ATOM };
#else
enum { SLICE_STEP = 2 * PACK_ATOM };
#endif

static const int widths[] = { 1, 2, 3, 4, 5, 17, MAX_COLS };

/* ---- Random input --------------------------------------------------------- */

static uint64_t seed;

static uint32_t random_bits(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static float random_float(void)
{
    return ((float)(random_bits() & 0xffff) - 32767.5f) / 8192;
}

static void random_bytes(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)random_bits();
}

/* Any bytes are a block, but random scales may be NaN or make all others invisible. */
static bool is_plausible(const float *w, uint32_t n)
{
    float max = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(w[i]))
            return false;
        max = fmaxf(max, fabsf(w[i]));
    }
    return max > 1e-3f && max < 1e4f;
}

static int non_zeros(const float *w, uint32_t n)
{
    int count = 0;

    for (uint32_t i = 0; i < n; i++)
        count += w[i] != 0;
    return count;
}

/* Every byte that can becomes `end`, most of them codes at an end of their range, without losing
 * a value: there sums in few bits are largest. */
static void push_to_end(enum quant t, uint8_t *one, uint8_t end)
{
    const struct quant_info *info = &quant_info[t];
    float w[256];

    quant_dequantize_row(t, one, info->values, w);
    int before = non_zeros(w, info->values);
    for (uint32_t i = info->header; i < info->header + info->bytes; i++) {
        uint8_t was = one[i];

        one[i] = end;
        quant_dequantize_row(t, one, info->values, w);
        if (!is_plausible(w, info->values) || non_zeros(w, info->values) < before)
            one[i] = was;
    }
}

/* Row r of a matrix; some have their codes at an end. */
static void random_row(enum quant t, int r, uint8_t *row, int64_t n)
{
    static const uint8_t ends[] = { 0x00, 0xff, 0x80, 0x7f };
    const struct quant_info *info = &quant_info[t];
    uint8_t one[1024];
    float w[256];

    do {
        random_bytes(one, info->header + info->bytes);
        quant_dequantize_row(t, one, info->values, w);
    } while (!is_plausible(w, info->values));
    memcpy(row, one, info->header);
    for (int64_t k = 0; k < n; k += info->values) {
        do {
            random_bytes(one + info->header, info->bytes);
            quant_dequantize_row(t, one, info->values, w);
        } while (!is_plausible(w, info->values));
        if (r % 8 == 7)
            push_to_end(t, one, ends[r / 8 % 4]);
        memcpy(row + quant_row_bytes(t, (size_t)k), one + info->header, info->bytes);
    }
}

/* ---- Groups and their columns --------------------------------------------- */

struct fixture {
    enum quant t;
    int64_t n;
    uint8_t *groups;
    size_t group_bytes;
    float *weights; /* [ROWS][n] */
    struct cpu_column x[MAX_COLS];
    bool quantised;
};

static void *take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

    if (!p)
        abort();
    return p;
}

static void make_weights(struct fixture *f)
{
    size_t row_bytes = quant_row_bytes(f->t, (size_t)f->n);
    uint8_t *rows = take(ROWS * row_bytes);

    f->group_bytes = pack_group_bytes(f->t, f->n);
    f->groups = take(GROUPS * f->group_bytes);
    f->weights = take((size_t)ROWS * (size_t)f->n * sizeof(float));
    for (int r = 0; r < ROWS; r++) {
        random_row(f->t, r, rows + (size_t)r * row_bytes, f->n);
        quant_dequantize_row(f->t, rows + (size_t)r * row_bytes, f->n, f->weights + r * f->n);
    }
    for (size_t g = 0; g < GROUPS; g++)
        pack_group(f->t, rows + g * PACK_ROWS * row_bytes, row_bytes, PACK_ROWS, f->n,
                   f->groups + g * f->group_bytes);
    free(rows);
}

/* Exactly so many bytes, so that a sanitizer sees any read beyond. */
static void *take_exactly(size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);

    if (!p)
        abort();
    return p;
}

/* sign: of values that are all 127 as int8; 0: random ones */
static struct cpu_column make_column(int64_t n, bool quantised, int sign)
{
    size_t size = (size_t)n;
    float *values = take_exactly(size * sizeof *values);
    struct cpu_column x = { .f = values };

    for (int64_t i = 0; i < n; i++) {
        float random = random_float() * (float)(1 << (random_bits() % 8));
        if (sign != 0)
            random = (float)sign * (1 - fabsf(random_float()) / 2048);
        values[i] = i / 32 % 7 == 5 ? 0 : random;
    }
    if (quantised) {
        int8_t *q = take_exactly(size);
        float *d = take_exactly(size / 32 * sizeof *d), *s = take_exactly(size / 32 * sizeof *s);
        int16_t *sum = take_exactly(size / 16 * sizeof *sum);

        cpu_kernels_portable.quantize(values, n, q, d, s, sum);
        x = (struct cpu_column){ values, q, d, s, sum };
    }
    return x;
}

static void make_fixture(struct fixture *f, enum quant t, int64_t n)
{
    f->t = t;
    f->n = n;
    f->quantised = quant_info[t].program != QUANT_FLOAT;
    make_weights(f);
    for (int c = 0; c < MAX_COLS; c++)
        f->x[c] = make_column(n, f->quantised, c % 5 == 1 ? 1 : c % 5 == 3 ? -1 : 0);
}

static void free_fixture(struct fixture *f)
{
    for (int c = 0; c < MAX_COLS; c++) {
        free((void *)f->x[c].f);
        free((void *)f->x[c].q);
        free((void *)f->x[c].d);
        free((void *)f->x[c].s);
        free((void *)f->x[c].sum);
    }
    free(f->weights);
    free(f->groups);
}

/* ---- The comparisons ------------------------------------------------------ */

/* Where row r of column c stands among the outputs. */
static int output(int n_cols, int c, int r)
{
    return (r / PACK_ROWS * n_cols + c) * PACK_ROWS + r % PACK_ROWS;
}

static double activation(const struct cpu_column *x, int64_t k, bool ints)
{
    return ints ? (double)x->d[k / 32] * x->q[k] : (double)x->f[k];
}

/* got[g][c][r] against sums in double of the dequantised weights. */
static void check_numbers(const struct fixture *f, bool ints, int n_cols, const float *got)
{
    /* ik's IQ6_K rounds its cubic to integers for int8 activations, and only for them. */
    double limit = ints && f->t == QUANT_IQ6_K ? 1e-2 : 2e-5;

    for (int c = 0; c < n_cols; c++)
        for (int r = 0; r < ROWS; r++) {
            double sum = 0, size = 0;

            for (int64_t k = 0; k < f->n; k++) {
                double term = f->weights[r * f->n + k] * activation(&f->x[c], k, ints);
                sum += term;
                size += fabs(term);
            }
            double found = (double)got[output(n_cols, c, r)];
            if (!(fabs(found - sum) <= limit * size))
                fail_msg("n %d, column %d, row %d: got %.9g, want %.9g", (int)f->n, c, r, found,
                         sum);
        }
}

/* In one call, or slice by slice into the same acc. */
static void run(const struct fixture *f, cpu_dot_fn *dot, int n_cols, int64_t slice, float *acc)
{
    struct cpu_rows w = { f->t, GROUPS, f->groups, f->group_bytes };

    for (int i = 0; i < n_cols * ROWS; i++)
        acc[i] = 0;
    for (int64_t k = 0; k < f->n; k += slice)
        dot(&w, k, f->n - k < slice ? f->n - k : slice, f->x, n_cols, acc);
}

/* Whether got has the bits that want has for its first n_cols columns. */
static bool same_outputs(const float *got, int n_cols, const float *want)
{
    size_t bytes = (size_t)n_cols * PACK_ROWS * sizeof *got;

    for (int g = 0; g < GROUPS; g++)
        if (memcmp(got + output(n_cols, 0, g * PACK_ROWS),
                   want + output(MAX_COLS, 0, g * PACK_ROWS), bytes) != 0)
            return false;
    return true;
}

static void compare_tables(const struct fixture *f, bool ints)
{
    const struct cpu_kernels *tables[MAX_TABLES];
    int n_tables = runnable_tables(tables);
    float want[MAX_COLS * ROWS];

    run(f, ints ? tables[0]->dot[f->t] : tables[0]->dot_float[f->t], MAX_COLS, f->n, want);
    check_numbers(f, ints, MAX_COLS, want);
    for (int i = 0; i < n_tables; i++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            for (int64_t slice = PACK_ATOM; slice < f->n + SLICE_STEP; slice += SLICE_STEP) {
                size_t bytes = (size_t)widths[w] * ROWS * sizeof(float);
                float *got = take_exactly(bytes);

                run(f, ints ? tables[i]->dot[f->t] : tables[i]->dot_float[f->t], widths[w], slice,
                    got);
                if (!same_outputs(got, widths[w], want))
                    fail_msg("%s, %s activations, n %d, %d columns, slices of %d: other bits",
                             tables[i]->isa, ints ? "int8" : "float", (int)f->n, widths[w],
                             (int)slice);
                free(got);
            }
}

static void same_bits(void **state)
{
    enum quant t = (enum quant)(intptr_t)*state;
    static const int64_t float_sizes[] = { 1, 35, 256, 611 };
    static const int64_t quant_blocks[] = { 1, 11, 27 }; /* of 32 columns, or of 256 */
    bool is_float = quant_info[t].program == QUANT_FLOAT;

    seed = (uint64_t)t + 1;
    for (int i = 0; i < (is_float ? 4 : 3); i++) {
        int64_t values = quant_info[t].values;
        int64_t n =
            is_float ? float_sizes[i] : (quant_blocks[i] * 32 + values - 1) / values * values;
        struct fixture f;

        make_fixture(&f, t, n);
        if (!is_float)
            compare_tables(&f, true);
        compare_tables(&f, false);
        free_fixture(&f);
    }
}

static void best_is_first(void **state)
{
    (void)state;
    assert_ptr_equal(cpu_kernels_pick(0), &cpu_kernels_portable);
    assert_ptr_equal(cpu_kernels_by_name("portable"), &cpu_kernels_portable);
    assert_null(cpu_kernels_by_name("none"));
    assert_ptr_equal(cpu_kernels_by_name(cpu_kernels_pick(~0u)->isa), cpu_kernels_pick(~0u));
    for (int t = 0; t < QUANT_COUNT; t++) {
        enum quant_program program = quant_info[t].program;

        for (const struct cpu_kernels *const *k = cpu_kernels_all; *k; k++) {
            assert_int_equal((*k)->dot[t] != NULL,
                             program == QUANT_SCALE32 || program == QUANT_SCALE16);
            assert_int_equal((*k)->dot_float[t] != NULL, program != QUANT_NONE);
        }
    }
}

#define TEST_FLOAT(NAME) \
    { "same_bits " #NAME, same_bits, NULL, NULL, (void *)(intptr_t)QUANT_##NAME },
#define TEST_SCALE32(NAME) TEST_FLOAT(NAME)
#define TEST_SCALE16(NAME) TEST_FLOAT(NAME)
#define TEST_NONE(NAME)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_is_first),
#define X(NAME, name, id, values, bytes, header, program) TEST_##program(NAME)
#include "kernels/quants.def"
#undef X
    };

    team_flush_denormals();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
