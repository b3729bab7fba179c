/* SPDX-License-Identifier: MIT */
/* tests/kernels/quants_test.c - the tensor types, against decoders that are not ours.
 *
 * tests/data/types/NAME.q holds 8 rows of 512 columns, or one group of 256 columns of an
 * interleaved type, and NAME.f32 what they mean; tests/tools/make_type_vectors.py tells
 * where from.  All weights must be equal to the bit.
 */
#include "kernels/quants.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 8, COLUMNS = 512, GROUP_COLUMNS = 256 };

/* Is this a type that files have and that quant_dequantize_row takes? */
static int is_plain(enum quant t)
{
    return quant_info[t].program != QUANT_NONE && quant_info[t].gguf_id != QUANT_NO_ID;
}

/* ---- Against files -------------------------------------------------------- */

/* The file of a type in tests/data/types, which must have `bytes`. */
static void *read_data(enum quant t, const char *suffix, size_t bytes)
{
    char path[512], name[32] = "";
    uint8_t *data = malloc(bytes + 1);
    FILE *f;

    for (size_t i = 0; quant_info[t].name[i]; i++)
        name[i] = (char)tolower(quant_info[t].name[i]);
    snprintf(path, sizeof path, "%s/types/%s.%s", TEST_DATA, name, suffix);
    f = fopen(path, "rb");
    if (!f)
        fail_msg("%s: cannot be opened", path);
    if (fread(data, 1, bytes + 1, f) != bytes)
        fail_msg("%s: does not have %zu bytes", path, bytes);
    fclose(f);
    return data;
}

/* Plain rows of type t against floats; `of` is the type they were read as. */
static void expect_weights(enum quant t, const uint8_t *rows, int n_rows, int columns,
                           const float *want, enum quant of)
{
    size_t row_bytes = quant_row_bytes(t, (size_t)columns);
    float got[COLUMNS];

    for (int r = 0; r < n_rows; r++, want += columns) {
        quant_dequantize_row(t, rows + (size_t)r * row_bytes, columns, got);
        for (int k = 0; k < columns; k++)
            if (!(got[k] == want[k]))
                fail_msg("%s: row %d, column %d: got %.9g, want %.9g", quant_info[of].name, r, k,
                         (double)got[k], (double)want[k]);
    }
}

static void plain_types_mean_what_others_read(void **state)
{
    (void)state;
    for (int i = 0; i < QUANT_COUNT; i++) {
        enum quant t = (enum quant)i;
        uint8_t *rows;
        float *want;

        if (!is_plain(t))
            continue;
        rows = read_data(t, "q", ROWS * quant_row_bytes(t, COLUMNS));
        want = read_data(t, "f32", (size_t)ROWS * COLUMNS * sizeof *want);
        expect_weights(t, rows, ROWS, COLUMNS, want, t);
        free(rows);
        free(want);
    }
}

static void interleaved_types_become_plain(void **state)
{
    (void)state;
    for (int i = 0; i < QUANT_COUNT; i++) {
        enum quant t = (enum quant)i, plain = quant_info[i].plain;
        size_t n_rows = quant_info[i].interleave;
        uint8_t *group, *rows;
        float *want;

        if (n_rows == 1)
            continue;
        assert_true(quant_info[plain].program != QUANT_NONE);
        group = read_data(t, "q", n_rows * quant_row_bytes(t, GROUP_COLUMNS));
        want = read_data(t, "f32", n_rows * GROUP_COLUMNS * sizeof *want);
        rows = malloc(n_rows * quant_row_bytes(plain, GROUP_COLUMNS));
        memset(rows, 0xff, n_rows * quant_row_bytes(plain, GROUP_COLUMNS));
        quant_deinterleave(t, group, GROUP_COLUMNS, rows);
        expect_weights(plain, rows, (int)n_rows, GROUP_COLUMNS, want, t);
        free(group);
        free(rows);
        free(want);
    }
}

/* ---- The table ------------------------------------------------------------ */

static void types_are_found(void **state)
{
    static const uint32_t unknown[] = { 4, 5, 31, 33, 36, 38, 66, 142, 1000, QUANT_NO_ID };

    (void)state;
    for (int t = 0; t < QUANT_COUNT; t++) {
        assert_int_equal(quant_by_name(quant_info[t].name), t);
        if (quant_info[t].gguf_id != QUANT_NO_ID)
            assert_int_equal(quant_by_id(quant_info[t].gguf_id), t);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_int_equal(quant_by_id(unknown[i]), QUANT_COUNT);
    assert_int_equal(quant_by_name("q4_k"), QUANT_Q4_K);
    assert_int_equal(quant_by_name("iq2_Xs_R4"), QUANT_IQ2_XS_R4);
    assert_int_equal(quant_by_name("Q4"), QUANT_COUNT);
    assert_int_equal(quant_by_name(""), QUANT_COUNT);
}

/* Every type is computable, becomes one that is, or says why not. */
static void refusals_have_reasons(void **state)
{
    (void)state;
    for (int i = 0; i < QUANT_COUNT; i++) {
        enum quant t = (enum quant)i;
        int usable = quant_info[quant_info[t].plain].program != QUANT_NONE;

        assert_int_equal(usable, quant_refusal(t) == NULL);
    }
    assert_non_null(quant_refusal(QUANT_NVFP4));
    assert_non_null(quant_refusal(QUANT_Q2_0));
    assert_non_null(quant_refusal(QUANT_Q8_K_R8));
    assert_non_null(quant_refusal(QUANT_I8));
    assert_null(quant_refusal(QUANT_IQ1_M_R4));
}

static void rows_have_headers(void **state)
{
    (void)state;
    assert_int_equal(quant_row_bytes(QUANT_Q4_K, 512), 2 * 144);
    assert_int_equal(quant_row_bytes(QUANT_IQ4_KS, 512), 4 + 2 * 136);
    assert_int_equal(quant_row_bytes(QUANT_Q8_KV, 64), 8 + 64);
    assert_int_equal(quant_row_bytes(QUANT_BF16_R16, 6), 12);
}

/* ---- Codes ---------------------------------------------------------------- */

static uint64_t random_u64(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static void random_fill(uint8_t *bytes, size_t n, uint64_t *x)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(random_u64(x) >> 32);
}

struct range {
    int min, max;
};

static void widen(struct range *r, int v)
{
    r->min = v < r->min ? v : r->min;
    r->max = v > r->max ? v : r->max;
}

/* What codes and integer scales random blocks reach. */
static void observe(enum quant t, struct range *codes, struct range *scales)
{
    uint64_t x = 0x9e3779b97f4a7c15;
    uint8_t block[256], header[8] = { 0 };
    struct quant_ints ints[8];

    for (int i = 0; i < 20000; i++) {
        random_fill(block, sizeof block, &x);
        quant_info[t].decode(header, block, ints);
        for (uint32_t b = 0; b < quant_info[t].values / 32; b++) {
            for (int k = 0; k < 32; k++)
                widen(codes, ints[b].q[k]);
            for (int h = 0; h < 2 && quant_info[t].program == QUANT_SCALE16; h++)
                widen(scales, ints[b].s[h]);
        }
    }
}

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);

    if (!f)
        fail_msg("%s: cannot be opened", path);
    if (fread(text, 1, (1 << 16) - 1, f) == 0)
        fail_msg("%s: is empty", path);
    fclose(f);
    return text;
}

/* The table of docs/kernels.md says of every type how it is computed and how large its
 * codes and integer scales get, which kernels rely on. */
static void documented_ranges_are_true(void **state)
{
    static const char *const programs[] = { "float", "scale32", "scale16", "" };
    char *docs = read_text(TEST_DATA "/../../docs/kernels.md");
    int missing = 0;

    (void)state;
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant_info *info = &quant_info[t];
        struct range codes = { 127, -128 }, scales = { 127, -128 };
        char line[256], range[2][32] = { "", "" };

        if (info->program == QUANT_NONE)
            continue;
        if (info->decode) {
            observe((enum quant)t, &codes, &scales);
            snprintf(range[0], sizeof range[0], "%d … %d", codes.min, codes.max);
        }
        if (info->program == QUANT_SCALE16)
            snprintf(range[1], sizeof range[1], "%d … %d", scales.min, scales.max);
        snprintf(line, sizeof line, "\n| %s | %s | %s | %s |", info->name, programs[info->program],
                 range[0], range[1]);
        if (!strstr(docs, line)) {
            print_error("docs/kernels.md lacks:%s\n", line);
            missing++;
        }
    }
    free(docs);
    assert_int_equal(missing, 0);
}

/* ---- Values that are not finite ------------------------------------------- */

/* Can a scale be finite and its weights not, but for those whose code is 0? */
static int may_be_huge(enum quant t)
{
    return quant_info[t].header > 2 || t == QUANT_MXFP4;
}

static void nonfinite_scales_are_found(void **state)
{
    uint64_t x = 0x2545f4914f6cdd1d;
    uint8_t row[COLUMNS * 4 + 8];
    float w[COLUMNS];

    (void)state;
    for (int i = 0; i < QUANT_COUNT * 400; i++) {
        enum quant t = (enum quant)(i % QUANT_COUNT);
        int64_t found, first = 0;
        float largest = 0;

        if (quant_info[t].program == QUANT_NONE)
            continue;
        random_fill(row, sizeof row, &x);
        if (i % 3 == 0)
            memset(row, 0, sizeof row);
        found = quant_find_nonfinite(t, row, COLUMNS);
        quant_dequantize_row(t, row, COLUMNS, w);
        while (first < COLUMNS && isfinite(w[first]))
            largest = fmaxf(largest, fabsf(w[first++]));
        if (first == COLUMNS) /* scales that are merely huge may be reported */
            assert_true(found == -1 || largest > 0x1p100f);
        else if (found < 0 || found > first || (found < first && !may_be_huge(t)))
            fail_msg("%s: found %d, but weight %d is not finite", quant_info[t].name, (int)found,
                     (int)first);
    }
}

static void iq1_m_scale_is_assembled(void **state)
{
    uint8_t block[56] = { 0 };

    (void)state;
    block[55] = 0x70; /* the upper four bits of the exponent, then the lowest */
    block[53] = 0xc0;
    assert_int_equal(quant_find_nonfinite(QUANT_IQ1_M, block, 256), 0);
    block[53] = 0x80;
    assert_int_equal(quant_find_nonfinite(QUANT_IQ1_M, block, 256), -1);
}

/* ---- Short floats --------------------------------------------------------- */

static uint32_t bits_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

/* Between each two neighbours the middle goes to the even one, and what is beside it to
 * the nearer. */
static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float a = half_to_float((uint16_t)h);
        float b = h == 0x7bff ? 65536.0f : half_to_float((uint16_t)(h + 1)), middle = (a + b) / 2;
        uint16_t even = (uint16_t)(h + (h & 1));

        assert_true(a < b);
        assert_int_equal(half_from_float(a), h);
        assert_int_equal(half_from_float(-a), h | 0x8000);
        assert_int_equal(half_from_float(middle), even);
        assert_int_equal(half_from_float(nextafterf(middle, 0)), h);
        assert_int_equal(half_from_float(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_true(half_to_float(1) == 0x1p-24f && half_to_float(0xbc00) == -1.0f);
    assert_true(isinf(half_to_float(0x7c00)) && isnan(half_to_float(0x7e00)));
    assert_int_equal(half_from_float(1e10f), 0x7c00);
    assert_int_equal(half_from_float(-INFINITY), 0xfc00);
    assert_true(isnan(half_to_float(half_from_float(NAN))));
}

static void bf16_rounds_to_nearest_even(void **state)
{
    uint64_t x = 88172645463325252;
    float nan;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        union {
            uint32_t u;
            float f;
        } v = { (uint32_t)random_u64(&x) };
        uint16_t b = bf16_from_float(v.f);
        uint32_t down = v.u >> 16, rest = v.u & 0xffff;

        if (isnan(v.f))
            assert_true(isnan(bf16_to_float(b)));
        else
            assert_int_equal(b, down + (rest > 0x8000 || (rest == 0x8000 && down % 2 == 1)));
    }
    assert_int_equal(bf16_from_float(0x1.01p0f), 0x3f80); /* ties */
    assert_int_equal(bf16_from_float(0x1.03p0f), 0x3f82);
    assert_int_equal(bits_of(bf16_to_float(0x8001)), 0x80010000);
    memcpy(&nan, &(uint32_t){ 0x7f800001 }, sizeof nan); /* upper half: an infinity */
    assert_true(isnan(bf16_to_float(bf16_from_float(nan))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_types_mean_what_others_read),
        cmocka_unit_test(interleaved_types_become_plain),
        cmocka_unit_test(types_are_found),
        cmocka_unit_test(refusals_have_reasons),
        cmocka_unit_test(rows_have_headers),
        cmocka_unit_test(documented_ranges_are_true),
        cmocka_unit_test(nonfinite_scales_are_found),
        cmocka_unit_test(iq1_m_scale_is_assembled),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
