/* SPDX-License-Identifier: MIT */
/* tests/kernels/vector_test.c - the functions of cpu_kernels on single rows, and attention.
 *
 * For each function: the portable table against double precision, the others against the
 * portable one by memcmp, with lengths that 16 does not divide and with values at the ends
 * of what a float holds.  Results that are NaN need only be NaN: no ISA promises its bits.
 */
#include "kernels/cpu/cpu_kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/team.h"
#include "tests/kernels/tables.h"

enum { N = 1011 };

static const int lengths[] = { 1, 15, 16, 17, 31, 64, 100, 576, N };

static const float extremes[] = {
    0.0f,       -0.0f,          INFINITY,        -INFINITY, NAN,        1e-38f,   -1e-38f,
    1e-42f,     -1e-45f,        3.4e38f,         -3.4e38f,  88.72f,     88.73f,   89.5f,
    -87.33f,    -87.34f,        -103.9f,         -104.1f,   1e5f,       -1e5f,    0x1p23f,
    -0x1p23f,   0x1.fffffep22f, -0x1.fffffep22f, 0x1p18f,   0x1.8p-33f, 0x1p-33f, -0x1.8p-33f,
    0x1.4p-31f, 65504.0f,       65519.9f,        65520.0f,  6e-8f,      2.9e-8f,  -3.1e-8f,
    126.5f,     0x1.fffffep18f,
};
enum { N_EXTREMES = sizeof extremes / sizeof *extremes };

static uint64_t seed = 1;

static float random_float(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return ((float)(seed >> 40) - 0x1p23f) / 0x1p20f; /* within 8 */
}

static void random_floats(float *p, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = random_float();
}

/* Runs of random values with all extremes among them. */
static void wild_floats(float *p, int n)
{
    random_floats(p, n);
    for (int i = 3, e = 0; i < n; i += 5)
        p[i] = extremes[e++ % N_EXTREMES];
}

static uint32_t bits_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

static void same_floats(const char *what, const char *isa, const float *got, const float *want,
                        int n)
{
    for (int i = 0; i < n; i++)
        if (bits_of(got[i]) != bits_of(want[i]) && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s, %s, %d of %d: got %.9g, want %.9g", what, isa, i, n, (double)got[i],
                     (double)want[i]);
}

static void near(const char *what, double got, double want, double limit)
{
    if (!(fabs(got - want) <= limit))
        fail_msg("%s: got %.9g, want %.9g", what, got, want);
}

/* ---- exp and its users ---------------------------------------------------- */

/* Units in the last place between got and want. */
static double ulps(float got, double want)
{
    return fabs((double)got - want) / ldexp(1, ilogb(want) - 23);
}

static void exp_is_accurate(void **state)
{
    double worst = 0;

    (void)state;
    for (int i = 0; i < 176000; i++) {
        float x = -87.3f + 0.001f * (float)i;
        float p, sum = cpu_kernels_portable.softmax_part(&p, &x, 1, 0);

        assert_memory_equal(&p, &sum, sizeof p);
        worst = fmax(worst, ulps(p, exp((double)x)));
        if (!(worst <= 1.5))
            fail_msg("exp(%.9g): %g ulp", (double)x, worst);
    }
    for (int i = 0; i < N_EXTREMES; i++) {
        float p, x = extremes[i];
        double want = exp((double)x);

        cpu_kernels_portable.softmax_part(&p, &x, 1, 0);
        if (want > 3.4028235e38)
            assert_true(isinf(p));
        else if (want < 1.1754944e-38)
            assert_true(p == 0);
        else if (isnan(x))
            assert_true(isnan(p));
        else
            assert_true(ulps(p, want) <= 1.5);
    }
}

static void softmax(const struct cpu_kernels *k)
{
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        float x[N], got[N], want[N], got_sum, want_sum;
        int n = lengths[l];

        wild_floats(x, n);
        want_sum = cpu_kernels_portable.softmax_part(want, x, n, 3.5f);
        got_sum = k->softmax_part(got, x, n, 3.5f);
        same_floats("softmax_part", k->isa, got, want, n);
        same_floats("softmax_part's sum", k->isa, &got_sum, &want_sum, 1);
        got_sum = k->softmax_part(x, x, n, 3.5f); /* in place */
        same_floats("softmax_part in place", k->isa, x, want, n);
        same_floats("softmax_part's sum in place", k->isa, &got_sum, &want_sum, 1);
    }
}

static void sigmoid_and_swiglu(const struct cpu_kernels *k)
{
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        float x[N], b[N], got[N], want[N];
        int n = lengths[l];

        wild_floats(x, n);
        random_floats(b, n);
        cpu_kernels_portable.sigmoid(want, x, n);
        k->sigmoid(got, x, n);
        same_floats("sigmoid", k->isa, got, want, n);
        for (int i = 0; i < n; i++)
            if (fabsf(x[i]) < 30)
                near("sigmoid", want[i], 1 / (1 + exp(-(double)x[i])), 2e-7 * want[i]);

        memcpy(want, x, sizeof want);
        memcpy(got, x, sizeof got);
        cpu_kernels_portable.swiglu(want, b, n);
        k->swiglu(got, b, n);
        same_floats("swiglu", k->isa, got, want, n);
        for (int i = 0; i < n; i++)
            if (fabsf(x[i]) < 30 && fabsf(x[i]) > 1e-30f)
                near("swiglu", want[i], x[i] / (1 + exp(-(double)x[i])) * b[i],
                     5e-7 * fabsf(want[i]));
    }
}

/* ---- Activations ---------------------------------------------------------- */

static void quantize(const struct cpu_kernels *k)
{
    enum { BLOCKS = 40 };

    float x[32 * BLOCKS], d[BLOCKS], s[BLOCKS], want_d[BLOCKS], want_s[BLOCKS];
    int8_t q[32 * BLOCKS], want_q[32 * BLOCKS];
    int16_t sum[2 * BLOCKS], want_sum[2 * BLOCKS];

    random_floats(x, 32 * BLOCKS);
    for (int b = 0; b < BLOCKS; b++)
        if (b % 2) { /* one extreme value a block; block 1 is zero */
            float big = extremes[b / 2 % N_EXTREMES];
            for (int i = 0; i < 32; i++)
                x[32 * b + i] *= b == 1 ? 0 : isfinite(big) ? big / 8 : 1;
            x[32 * b + b % 32] = big;
        }
    cpu_kernels_portable.quantize(x, 32 * BLOCKS, want_q, want_d, want_s, want_sum);
    k->quantize(x, 32 * BLOCKS, q, d, s, sum);
    same_floats("quantize's d", k->isa, d, want_d, BLOCKS);
    same_floats("quantize's s", k->isa, s, want_s, BLOCKS);
    assert_memory_equal(q, want_q, sizeof q);
    assert_memory_equal(sum, want_sum, sizeof sum);
    for (int i = 0; i < 32 * BLOCKS; i++) {
        assert_in_range(want_q[i] + 127, 0, 254);
        if (isfinite(want_d[i / 32]) && want_d[i / 32] > 1e-36f)
            near("quantize", (double)want_d[i / 32] * want_q[i], x[i],
                 (double)want_d[i / 32] * 0.50001);
    }
    for (int h = 0; h < 2 * BLOCKS; h++) {
        int expected = 0;

        for (int i = 0; i < 16; i++)
            expected += want_q[16 * h + i];
        assert_int_equal(want_sum[h], expected);
    }
}

/* A NaN or an infinity must reach the result of a matrix: by way of d. */
static void quantize_keeps_nonfinite(const struct cpu_kernels *k)
{
    float x[32] = { 0 }, d, s;
    int8_t q[32];
    int16_t sum[2];

    x[7] = NAN;
    k->quantize(x, 32, q, &d, &s, sum);
    assert_true(isnan(d));
    x[7] = -INFINITY;
    k->quantize(x, 32, q, &d, &s, sum);
    assert_true(isinf(d));
}

/* ---- Fixed-point sums ----------------------------------------------------- */

static void accumulate(const struct cpu_kernels *k)
{
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        int n = lengths[l], bad = 0;
        float v[N];
        int64_t got[N + 1], want[N];

        for (int wild = 0; wild < 2; wild++) {
            (wild ? wild_floats : random_floats)(v, n);
            bad = 0;
            got[n] = -7; /* must stay */
            for (int i = 0; i < n; i++) {
                got[i] = want[i] = (int64_t)(random_float() * 0x1p50f);
                if (fabsf(v[i]) < 0x1p23f && fabsf(v[i]) >= 0x1p-126f)
                    want[i] += (int64_t)rint(v[i] * 0x1p32);
                else if (!(fabsf(v[i]) < 0x1p23f))
                    bad++;
            }
            assert_int_equal(k->accumulate(got, v, n), bad);
            assert_memory_equal(got, want, (size_t)n * sizeof *want);
            assert_int_equal(got[n], -7);
        }
    }
}

static void settle(const struct cpu_kernels *k)
{
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        int n = lengths[l];
        float x[N], want[N];
        int64_t fix[N];

        random_floats(x, n);
        for (int i = 0; i < n; i++) {
            int shift = i * 7 % 63;

            seed = seed * 6364136223846793005u + 1442695040888963407u;
            fix[i] = (int64_t)seed >> (l % 2 ? shift : 20 + shift % 40);
            if (i % 9 == 4) /* would round twice through double */
                fix[i] = (INT64_C(1) << 54) + (INT64_C(1) << 30) + 1;
            want[i] = x[i] + (float)fix[i] * 0x1p-32f;
        }
        k->settle(x, fix, n);
        same_floats("settle", k->isa, x, want, n);
        for (int i = 0; i < n; i++)
            assert_int_equal(fix[i], 0);
    }
}

static void add_fixed(const struct cpu_kernels *k)
{
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        int n = lengths[l];
        int64_t sum[N], fix[N], want[N];

        for (int i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            fix[i] = (int64_t)seed >> 2;
            sum[i] = fix[i] ^ 0x123456789;
            want[i] = sum[i] + fix[i];
        }
        k->add_fixed(sum, fix, n);
        assert_memory_equal(sum, want, (size_t)n * sizeof *sum);
    }
}

/* ---- Norm, dot product, scale, halves ------------------------------------- */

static void norm_dot_scale(const struct cpu_kernels *k)
{
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        int n = lengths[l];
        float a[N], b[N], got[N], want[N], got_dot, want_dot;
        double dot = 0, squares = 0, size = 0;

        random_floats(a, n);
        random_floats(b, n);
        for (int i = 0; i < n; i++) {
            dot += (double)a[i] * b[i];
            size += fabs((double)a[i] * b[i]);
            squares += (double)a[i] * a[i];
        }
        want_dot = cpu_kernels_portable.dot_f32(a, b, n);
        got_dot = k->dot_f32(a, b, n);
        near("dot_f32", want_dot, dot, 1e-6 * size);
        same_floats("dot_f32", k->isa, &got_dot, &want_dot, 1);

        cpu_kernels_portable.rms_norm(want, a, b, n, 1e-6f);
        k->rms_norm(got, a, b, n, 1e-6f);
        same_floats("rms_norm", k->isa, got, want, n);
        for (int i = 0; i < n; i++)
            near("rms_norm", want[i], a[i] / sqrt(squares / n + 1e-6) * b[i],
                 1e-6 * fabsf(want[i]));
        memcpy(got, a, sizeof got);
        k->rms_norm(got, got, b, n, 1e-6f);
        same_floats("rms_norm in place", k->isa, got, want, n);

        memcpy(got, a, sizeof got);
        k->scale(got, 0.37f, n);
        for (int i = 0; i < n; i++)
            want[i] = a[i] * 0.37f;
        same_floats("scale", k->isa, got, want, n);
    }
}

static void halves(const struct cpu_kernels *k)
{
    uint16_t all[65536 + 5], back[65536 + 5];
    float *f = malloc(sizeof all / sizeof *all * sizeof *f);
    float x[N];

    for (int i = 0; i < 65536 + 5; i++)
        all[i] = (uint16_t)i;
    k->half_to_f32(f, all, 65536 + 5);
    for (int i = 0; i < 65536; i++) {
        float want = half_to_float((uint16_t)i);
        same_floats("half_to_f32", k->isa, &f[i], &want, 1);
    }
    k->f32_to_half(back, f, 65536 + 5);
    for (int i = 0; i < 65536; i++)
        if (!isnan(f[i]))
            assert_int_equal(back[i], i);
        else
            assert_true((back[i] & 0x7fff) > 0x7c00);
    for (int round = 0; round < 20; round++) {
        wild_floats(x, N);
        for (int i = 0; i < N; i++)
            x[i] *= ldexpf(1, round * 2 - 25);
        k->f32_to_half(back, x, N);
        for (int i = 0; i < N; i++)
            if (!isnan(x[i]))
                assert_int_equal(back[i], half_from_float(x[i]));
    }
    free(f);
}

/* ---- Attention ------------------------------------------------------------ */

static void attention_scores(const struct cpu_kernels *k)
{
    enum { QUERIES = 7, KEYS = 9, A = 83, B = 20, STRIDE = 90, S = 12 };
    static float a[QUERIES * STRIDE], b[QUERIES * STRIDE], ka[KEYS * STRIDE], kb[KEYS * STRIDE];

    random_floats(a, QUERIES * STRIDE);
    random_floats(b, QUERIES * STRIDE);
    random_floats(ka, KEYS * STRIDE);
    random_floats(kb, KEYS * STRIDE);
    for (int nq = 1; nq <= QUERIES; nq++)
        for (int nk = 1; nk <= KEYS; nk++)
            for (int n = A; n >= 16; n -= 67) {
                float s[QUERIES * S];

                memset(s, 0, sizeof s);
                k->scores(s, S, a, STRIDE, b, STRIDE, nq, ka, STRIDE, kb, STRIDE, nk, n, B, 0.125f);
                for (int q = 0; q < QUERIES; q++)
                    for (int j = 0; j < S; j++) {
                        const struct cpu_kernels *p = &cpu_kernels_portable;
                        float want = 0;

                        if (q < nq && j < nk)
                            want = 0.125f * (p->dot_f32(a + q * STRIDE, ka + j * STRIDE, n) +
                                             p->dot_f32(b + q * STRIDE, kb + j * STRIDE, B));
                        same_floats("scores", k->isa, &s[q * S + j], &want, 1);
                    }
            }
}

static void attention_values(const struct cpu_kernels *k)
{
    enum { QUERIES = 9, KEYS = 21, DIMS = 83, STRIDE = 90 };
    static float p[QUERIES * KEYS], v[KEYS * STRIDE], start[QUERIES * STRIDE];

    random_floats(p, QUERIES * KEYS);
    random_floats(v, KEYS * STRIDE);
    random_floats(start, QUERIES * STRIDE);
    for (int nq = 1; nq <= QUERIES; nq++)
        for (int dims = 16; dims <= DIMS; dims += 67) {
            float got[QUERIES * STRIDE], want[QUERIES * STRIDE];

            memcpy(got, start, sizeof got);
            memcpy(want, start, sizeof want);
            k->values(got, STRIDE, p, KEYS, nq, v, STRIDE, KEYS, dims);
            for (int q = 0; q < nq; q++)
                for (int i = 0; i < dims; i++)
                    for (int j = 0; j < KEYS; j++)
                        want[q * STRIDE + i] =
                            fmaf(p[q * KEYS + j], v[j * STRIDE + i], want[q * STRIDE + i]);
            same_floats("values", k->isa, got, want, QUERIES * STRIDE);
        }
}

/* ---- Every function on every table ---------------------------------------- */

typedef void check_fn(const struct cpu_kernels *k);

static check_fn *const checks[] = {
    softmax,   sigmoid_and_swiglu, quantize, quantize_keeps_nonfinite, accumulate,       settle,
    add_fixed, norm_dot_scale,     halves,   attention_scores,         attention_values,
};

static void all_functions(void **state)
{
    const struct cpu_kernels *tables[MAX_TABLES];
    int n = runnable_tables(tables);

    (void)state;
    for (int i = 0; i < n; i++)
        for (size_t c = 0; c < sizeof checks / sizeof *checks; c++)
            checks[c](tables[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_accurate),
        cmocka_unit_test(all_functions),
    };

    team_flush_denormals();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
