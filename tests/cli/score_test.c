/* SPDX-License-Identifier: MIT */
/* tests/cli/score_test.c - perplexity against numbers worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cli/score.h"

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("got %.15g, want %.15g", got, want);
}

static void one_token(void **state)
{
    static const float even[4] = { 7, 7, 7, 7 };
    static const float far[3] = { 1000, 0, -1000 }; /* exp(1000) alone would overflow */
    const float two[2] = { 0, logf(3) };
    const float bad[3] = { 1, NAN, 2 };
    (void)state;

    near(score_token(even, 4, 2), log(4), 1e-12);
    near(score_token(far, 3, 0), 0, 1e-12);
    near(score_token(far, 3, 2), 2000, 1e-9);
    near(score_token(two, 2, 1), log(4.0 / 3), 1e-6);
    assert_true(isnan(score_token(bad, 3, 0)));
    assert_true(isnan(score_token(bad + 1, 2, 1)));
}

static void mean_and_error(void **state)
{
    struct score s = { 0 };
    (void)state;

    score_add(&s, 2);
    near(score_perplexity(&s), exp(2), 1e-12);
    near(score_error(&s), 0, 0);
    score_add(&s, 1);
    score_add(&s, 3);
    near(score_perplexity(&s), exp(2), 1e-12);
    near(score_error(&s), exp(2) * sqrt(2.0 / 3 / 2), 1e-12); /* variance 2/3 over n - 1 */
    for (int i = 0; i < 1000; i++)
        score_add(&s, 2);
    near(score_perplexity(&s), exp(2), 1e-9);
}

/* The reference text of the small models has 3200 tokens and 1524 scored ones. */
static void chunks_drop_what_is_incomplete(void **state)
{
    (void)state;
    assert_int_equal(score_chunk_count(3200, 256), 12);
    assert_int_equal(score_chunk_count(13 * 256 - 2, 256), 12);
    assert_int_equal(score_chunk_count(13 * 256 - 1, 256), 13);
    assert_int_equal(score_chunk_count(254, 256), 0);
    assert_int_equal(score_chunk_count(255, 256), 1);
    assert_int_equal(12 * (score_end(256) - score_first(256)), 1524);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_token),
        cmocka_unit_test(mean_and_error),
        cmocka_unit_test(chunks_drop_what_is_incomplete),
    };
    return cmocka_run_group_tests_name("cli/score", tests, NULL, NULL);
}
