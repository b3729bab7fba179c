/* SPDX-License-Identifier: MIT */
/* tests/rank/router_test.c - the vendor's routing rule, case by case. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rank/router.h"

static void choose(const struct hparams *hp, const float *logits, const float *bias, int groups,
                   int32_t *experts, float *weights)
{
    float scratch[64];
    router_choose(hp, cpu_kernels_pick(0), logits, bias, groups, scratch, experts, weights);
}

static void assert_near(float got, double want)
{
    if (!(fabs(got - want) <= 1e-6))
        fail_msg("got %.9g, want %.9g", (double)got, want);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void bias_selects_but_does_not_weigh(void **state)
{
    struct hparams hp = { .n_experts = 4,
                          .n_experts_used = 2,
                          .gating = GATING_SIGMOID,
                          .weights_norm = 1,
                          .weights_scale = 2.5,
                          .n_groups = 1,
                          .n_groups_used = 1 };
    const float logits[4] = { 2, 1, 0, -1 }, bias[4] = { 0, 0, 0, 1 };
    int32_t e[2];
    float w[2];

    (void)state;
    choose(&hp, logits, bias, 1, e, w);
    assert_int_equal(e[0], 3); /* sigmoid(-1) + 1 is the largest */
    assert_int_equal(e[1], 0);
    double a = sigmoid(-1), b = sigmoid(2);
    assert_near(w[0], 2.5 * a / (a + b));
    assert_near(w[1], 2.5 * b / (a + b));
}

static void equal_scores_take_the_lowest_index(void **state)
{
    struct hparams hp = { .n_experts = 6,
                          .n_experts_used = 3,
                          .gating = GATING_SOFTMAX,
                          .weights_scale = 1,
                          .n_groups = 1 };
    const float logits[6] = { 0, 1, 1, 0, 1, 1 };
    int32_t e[3];
    float w[3];

    (void)state;
    choose(&hp, logits, NULL, 1, e, w);
    assert_int_equal(e[0], 1);
    assert_int_equal(e[1], 2);
    assert_int_equal(e[2], 4);
    assert_near(w[0], exp(1) / (2 + 4 * exp(1))); /* not normalised over the chosen */
}

static void groups_limit_the_choice(void **state)
{
    /* groups {0,1} {2,3} {4,5}: best single score in group 0, best pair in group 1 */
    const float logits[6] = { 3, -9, 2, 1.9f, 1, 1 };
    struct hparams hp = { .n_experts = 6,
                          .n_experts_used = 2,
                          .gating = GATING_SIGMOID,
                          .weights_scale = 1,
                          .n_groups = 3,
                          .n_groups_used = 1 };
    int32_t e[2];
    float w[2];

    (void)state;
    choose(&hp, logits, NULL, 1, e, w);
    assert_int_equal(e[0], 2); /* the two largest decide: group 1 */
    assert_int_equal(e[1], 3);
    hp.group_score_max = 1;
    choose(&hp, logits, NULL, 1, e, w);
    assert_int_equal(e[0], 0); /* the largest decides: group 0 */
    assert_int_equal(e[1], 1);
    choose(&hp, logits, NULL, 0, e, w);
    assert_int_equal(e[0], 0); /* groups off */
    assert_int_equal(e[1], 2);
}

static void softmax_over_the_selected(void **state)
{
    struct hparams hp = { .n_experts = 3,
                          .n_experts_used = 2,
                          .gating = GATING_SOFTMAX_SELECTED,
                          .weights_scale = 1,
                          .n_groups = 1 };
    const float logits[3] = { 1, 5, 3 };
    int32_t e[2];
    float w[2];

    (void)state;
    choose(&hp, logits, NULL, 1, e, w);
    assert_int_equal(e[0], 1);
    assert_near(w[0], 1 / (1 + exp(-2)));
    assert_near(w[1], exp(-2) / (1 + exp(-2)));
}

static void not_a_number_stays_visible(void **state)
{
    struct hparams hp = { .n_experts = 3,
                          .n_experts_used = 2,
                          .gating = GATING_SIGMOID,
                          .weights_norm = 1,
                          .weights_scale = 1,
                          .n_groups = 1 };
    const float logits[3] = { NAN, NAN, NAN };
    int32_t e[2];
    float w[2];

    (void)state;
    choose(&hp, logits, NULL, 1, e, w);
    assert_true(e[0] >= 0 && e[0] < 3 && e[1] >= 0 && e[1] < 3 && e[0] != e[1]);
    assert_true(isnan(w[0]) && isnan(w[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bias_selects_but_does_not_weigh),
        cmocka_unit_test(equal_scores_take_the_lowest_index),
        cmocka_unit_test(groups_limit_the_choice),
        cmocka_unit_test(softmax_over_the_selected),
        cmocka_unit_test(not_a_number_stays_visible),
    };
    return cmocka_run_group_tests_name("rank/router", tests, NULL, NULL);
}
