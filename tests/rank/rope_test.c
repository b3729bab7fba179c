/* SPDX-License-Identifier: MIT */
/* tests/rank/rope_test.c - frequencies and scales of the published models. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rank/rope.h"

static struct hparams yarn(double theta, double factor, double fast, double slow)
{
    return (struct hparams){ .d_nope = 128,
                             .d_rope = 64,
                             .rope_theta = theta,
                             .rope_yarn = 1,
                             .rope_factor = factor,
                             .yarn_context = 4096,
                             .yarn_beta_fast = fast,
                             .yarn_beta_slow = slow,
                             .yarn_log_mul = 0.1 };
}

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-8 * fabs(want)))
        fail_msg("got %.12g, want %.12g", got, want);
}

/* Computed by hand from the vendor's formula, ten digits. */
static void frequencies_are_the_vendors(void **state)
{
    static const struct {
        int pair;
        double v3, kimi, kimi_peers;
    } want[] = {
        {0,   1,             1,             1            },
        { 8,  0.1,           0.0668740305,  0.0668740305 },
        { 10, 0.0562341325,  0.0340072782,  0.0285165197 },
        { 12, 0.0268793601,  0.0172936334,  0.0117092309 },
        { 16, 0.0055,        0.00447213595, 0.00158388148},
        { 20, 7.90569415e-4, 3.61404677e-5, 3.61404677e-5},
        { 31, 3.33380358e-6, 8.76441291e-7, 8.76441291e-7},
    };
    struct hparams v3 = yarn(1e4, 40, 32, 1), kimi = yarn(5e4, 32, 1, 1);
    struct hparams peers = yarn(5e4, 32, 32, 1);
    struct rope a, b, c;

    (void)state;
    assert_int_equal(rope_init(&a, &v3, NULL), ERR_OK);
    assert_int_equal(rope_init(&b, &kimi, NULL), ERR_OK);
    assert_int_equal(rope_init(&c, &peers, NULL), ERR_OK);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_near(a.freq[want[i].pair], want[i].v3);
        assert_near(b.freq[want[i].pair], want[i].kimi);
        assert_near(c.freq[want[i].pair], want[i].kimi_peers);
    }
}

static void softmax_scales_are_the_published(void **state)
{
    struct hparams v3 = yarn(1e4, 40, 32, 1), glm = { .d_nope = 192, .d_rope = 64 };

    (void)state;
    if (!(fabs(rope_softmax_scale(&v3) - 0.13523378) < 2e-8))
        fail_msg("V3: %.9g", (double)rope_softmax_scale(&v3));
    glm.rope_factor = 1;
    assert_true(rope_softmax_scale(&glm) == 0.0625f);
}

static void rotation_turns_interleaved_pairs(void **state)
{
    struct hparams plain = { .d_rope = 4, .rope_theta = 100, .rope_factor = 1 };
    float x[4] = { 1, 0, 0, 2 }, angles[4];
    struct rope r;

    (void)state;
    assert_int_equal(rope_init(&r, &plain, NULL), ERR_OK);
    rope_angles(&r, 3, angles); /* angles 3 and 0.3 */
    rope_rotate(x, angles, r.n_pairs);
    double want[4] = { cos(3), sin(3), -2 * sin(0.3), 2 * cos(0.3) };
    for (int i = 0; i < 4; i++)
        if (!(fabs(x[i] - want[i]) < 1e-6))
            fail_msg("value %d: %.9g, want %.9g", i, (double)x[i], want[i]);
}

static void temperature_grows_with_the_logarithm(void **state)
{
    struct hparams m = { .attn_temp_scale = 0.1, .attn_temp_length = 8192 };

    (void)state;
    assert_true(rope_query_temperature(&m, 8191) == 1);
    if (!(fabs(rope_query_temperature(&m, 3 * 8192) - (1 + 0.1 * log(4))) < 1e-6))
        fail_msg("%.9g", (double)rope_query_temperature(&m, 3 * 8192));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_are_the_vendors),
        cmocka_unit_test(softmax_scales_are_the_published),
        cmocka_unit_test(rotation_turns_interleaved_pairs),
        cmocka_unit_test(temperature_grows_with_the_logarithm),
    };
    return cmocka_run_group_tests_name("rank/rope", tests, NULL, NULL);
}
