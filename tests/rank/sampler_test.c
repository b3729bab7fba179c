/* SPDX-License-Identifier: MIT */
/* tests/rank/sampler_test.c - the sampler against a naive one, and each parameter alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "rank/philox.h"
#include "rank/sampler.h"

enum { DRAWS = 6000 };

static struct sampling off(float temperature)
{
    return (struct sampling){ .temperature = temperature, .top_p = 1, .repeat_penalty = 1 };
}

static int32_t choose(const struct sampling *p, const float *logits, int n, const int32_t *history,
                      size_t n_history, int64_t position)
{
    struct sampler *s = NULL;
    int32_t token = -1;

    assert_int_equal(sampling_check(p, NULL), ERR_OK);
    assert_int_equal(sampler_create(&s, n, NULL), ERR_OK);
    assert_int_equal(sampler_choose(s, p, logits, history, n_history, position, &token, NULL),
                     ERR_OK);
    sampler_free(&s);
    return token;
}

/* ---- The generator ------------------------------------------------------ */

static void philox_gives_the_published_numbers(void **state)
{
    static const uint32_t vectors[3][10] = {
        {0,           0,          0,          0,          0,          0,          0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e,                                                                                      0xa20bc7c6, 0x6d5451fd},
        { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb,                                                                                      0x5001e420, 0x24126ea1},
    };
    uint32_t out[4];

    (void)state;
    for (int i = 0; i < 3; i++) {
        philox4x32(out, vectors[i], vectors[i] + 4);
        assert_memory_equal(out, vectors[i] + 6, sizeof out);
    }
}

static void uniform_is_in_range_and_even(void **state)
{
    double sum = 0, squares = 0;

    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        double u = philox_uniform(5, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        squares += u * u;
    }
    assert_true(fabs(sum / DRAWS - 1 / 2.) < 4 * sqrt(1 / 12. / DRAWS));
    assert_true(fabs(squares / DRAWS - 1 / 3.) < 4 * sqrt(4 / 45. / DRAWS));
    assert_true(philox_uniform(5, 7) != philox_uniform(6, 7));
    assert_true(philox_uniform(5, 7) != philox_uniform(5 + (1ull << 32), 7));
    assert_true(philox_uniform(5, 7) != philox_uniform(5, 7 + (1ll << 32)));
}

/* ---- Distributions ------------------------------------------------------ */

/* Draws at positions 0 ... DRAWS-1 and compares the counts with `want` [n] by chi square.
 * A token with probability 0 must never come. */
static void expect_distribution(const struct sampling *p, const float *logits, const double *want,
                                int n)
{
    struct sampler *s = NULL;
    int seen[16] = { 0 }, freedom = -1;
    double chi2 = 0;

    assert_int_equal(sampler_create(&s, n, NULL), ERR_OK);
    for (int i = 0; i < DRAWS; i++) {
        int32_t token = -1;
        assert_int_equal(sampler_choose(s, p, logits, NULL, 0, i, &token, NULL), ERR_OK);
        seen[token]++;
    }
    sampler_free(&s);
    for (int i = 0; i < n; i++) {
        double expected = want[i] * DRAWS;
        if (want[i] == 0) {
            assert_int_equal(seen[i], 0);
            continue;
        }
        chi2 += (seen[i] - expected) * (seen[i] - expected) / expected;
        freedom++;
    }
    /* Mean `freedom`, variance twice that; four deviations, the seeds being fixed. */
    if (!(chi2 <= freedom + 4 * sqrt(2. * freedom)))
        fail_msg("chi square %.2f with %d degrees of freedom", chi2, freedom);
}

/* Probabilities 0.4 0.3 0.2 0.1, in the order of the ids 2 0 3 1; 4 is forbidden. */
static const float five[5] = { -1.2039728f, -2.3025851f, -0.9162907f, -1.6094379f, -INFINITY };

static void softmax_is_drawn(void **state)
{
    static const double want[5] = { .3, .1, .4, .2, 0 };
    struct sampling p = off(1);

    (void)state;
    for (p.seed = 0; p.seed < 5; p.seed++)
        expect_distribution(&p, five, want, 5);
}

static void temperature_flattens_and_sharpens(void **state)
{
    struct sampling p = off(2);
    double want[5], sum = 0;

    (void)state;
    for (int i = 0; i < 5; i++)
        sum += want[i] = exp(five[i] / 2.);
    for (int i = 0; i < 5; i++)
        want[i] /= sum;
    expect_distribution(&p, five, want, 5);

    static const double sharp[5] = { 0, 0, 1, 0, 0 };
    p = off(1e-3f);
    expect_distribution(&p, five, sharp, 5);
    p = off(1e-44f);
    expect_distribution(&p, five, sharp, 5);
}

static void top_k_keeps_the_best(void **state)
{
    static const double two[5] = { .3 / .7, 0, .4 / .7, 0, 0 }, one[5] = { 0, 0, 1, 0, 0 };
    static const double all[5] = { .3, .1, .4, .2, 0 };
    struct sampling p = off(1);

    (void)state;
    p.top_k = 1;
    expect_distribution(&p, five, one, 5);
    p.top_k = 2;
    expect_distribution(&p, five, two, 5);
    p.top_k = 1000000;
    expect_distribution(&p, five, all, 5);
}

static void top_p_keeps_the_smallest_set_that_reaches_it(void **state)
{
    static const double one[5] = { 0, 0, 1, 0, 0 }, two[5] = { .3 / .7, 0, .4 / .7, 0, 0 };
    static const double three[5] = { .3 / .9, 0, .4 / .9, .2 / .9, 0 };
    struct sampling p = off(1);

    (void)state;
    p.top_p = 0;
    expect_distribution(&p, five, one, 5);
    p.top_p = 0.39f;
    expect_distribution(&p, five, one, 5);
    p.top_p = 0.41f;
    expect_distribution(&p, five, two, 5);
    p.top_p = 0.75f;
    expect_distribution(&p, five, three, 5);
    p.top_k = 2; /* 0.75 of what top-k left needs both */
    expect_distribution(&p, five, two, 5);
}

static void min_p_is_relative_to_the_best(void **state)
{
    static const double two[5] = { .3 / .7, 0, .4 / .7, 0, 0 }, one[5] = { 0, 0, 1, 0, 0 };
    struct sampling p = off(1);

    (void)state;
    p.min_p = 0.51f; /* of 0.4: at least 0.204 */
    expect_distribution(&p, five, two, 5);
    p.min_p = 1;
    expect_distribution(&p, five, one, 5);
}

static void cuts_ignore_the_temperature(void **state)
{
    struct sampling p = off(100);
    double want[5] = { 0 };

    (void)state;
    p.top_p = 0.41f;
    want[0] = 1 / (1 + exp((five[2] - five[0]) / 100.));
    want[2] = 1 - want[0];
    expect_distribution(&p, five, want, 5);
}

/* ---- Against a naive sampler -------------------------------------------- */

struct item {
    float logit;
    int id;
};

static int by_order(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

static int naive(const struct sampling *p, const float *logits, int n, int64_t position)
{
    struct item *item = calloc((size_t)n, sizeof *item);
    double total = 0, sum = 0;
    int kept = 0, cut = 0;

    assert_non_null(item);
    for (int i = 0; i < n; i++)
        item[i] = (struct item){ logits[i], i };
    qsort(item, (size_t)n, sizeof *item, by_order);
    while (kept < n && item[kept].logit > -INFINITY && (!p->top_k || kept < p->top_k))
        kept++;
    for (int i = 0; i < kept; i++)
        total += exp((double)item[i].logit - item[0].logit);
    while (cut < kept && (p->top_p >= 1 || sum < p->top_p * total))
        sum += exp((double)item[cut++].logit - item[0].logit);
    while (cut > 1 && exp((double)item[cut - 1].logit - item[0].logit) < p->min_p)
        cut--;
    total = 0;
    for (int i = 0; i < cut; i++)
        total += exp(((double)item[i].logit - item[0].logit) / p->temperature);
    double mass = philox_uniform(p->seed, position) * total;
    int at = 0;
    for (sum = 0; at < cut; at++)
        if ((sum += exp(((double)item[at].logit - item[0].logit) / p->temperature)) > mass)
            break;
    int id = item[at].id;
    free(item);
    return id;
}

/* All the ways to select, with many equal logits: 0 of the coarse grid is both +0 and -0. */
static void choices_equal_the_naive_ones(void **state)
{
    static const int top_k[] = { 0, 1, 2, 5, 40, 1000, 1024, 1025, 2999, 3000, 5000 };
    enum { N = 3000 };
    float logits[N];
    struct sampler *s = NULL;

    (void)state;
    srand(3);
    assert_int_equal(sampler_create(&s, N, NULL), ERR_OK);
    for (int round = 0; round < 200; round++) {
        float grid = round % 2 ? 4 : 4096;
        for (int i = 0; i < N; i++) {
            float x = (float)(rand() % 20000 - 10000) / 1000;
            logits[i] = rand() % 50 ? roundf(x * grid) / grid : -INFINITY;
        }
        struct sampling p = off(0.1f + (float)(rand() % 40) / 10);
        p.top_k = top_k[rand() % 11];
        p.top_p = rand() % 2 ? 1 : (float)(rand() % 1000) / 1000;
        p.min_p = rand() % 2 ? 0 : (float)(rand() % 1000) / 1000;
        p.seed = (uint64_t)rand();
        int32_t token = -1;
        assert_int_equal(sampler_choose(s, &p, logits, NULL, 0, round, &token, NULL), ERR_OK);
        assert_int_equal(token, naive(&p, logits, N, round));
    }
    sampler_free(&s);
}

/* ---- Greedy, ties, determinism ------------------------------------------ */

static void greedy_takes_the_lowest_id_among_equals(void **state)
{
    static const float logits[] = { -1, -0.0f, 0, -0.0f, -INFINITY };
    static const float equal[] = { 3, 3, 3 };
    struct sampling p = off(0);

    (void)state;
    assert_int_equal(choose(&p, logits, 5, NULL, 0, 0), 1);
    assert_int_equal(choose(&p, equal, 3, NULL, 0, 9), 0);
    p = off(1);
    p.top_k = 1;
    assert_int_equal(choose(&p, logits, 5, NULL, 0, 0), 1);
    p.top_k = 0;
    p.top_p = 0;
    assert_int_equal(choose(&p, logits, 5, NULL, 0, 0), 1);
}

static void the_choice_depends_on_seed_and_position_alone(void **state)
{
    struct sampler *s = NULL;
    struct sampling p = off(1);
    int32_t first[64], again;
    int differ_by_seed = 0, differ_by_position = 0;

    (void)state;
    p.seed = 0x123456789ABCDEF0u;
    assert_int_equal(sampler_create(&s, 5, NULL), ERR_OK);
    for (int i = 0; i < 64; i++)
        assert_int_equal(sampler_choose(s, &p, five, NULL, 0, i, &first[i], NULL), ERR_OK);
    for (int i = 63; i >= 0; i--) {
        assert_int_equal(sampler_choose(s, &p, five, NULL, 0, i, &again, NULL), ERR_OK);
        assert_int_equal(again, first[i]);
        differ_by_position += first[i] != first[0];
    }
    p.seed++;
    for (int i = 0; i < 64; i++) {
        assert_int_equal(sampler_choose(s, &p, five, NULL, 0, i, &again, NULL), ERR_OK);
        differ_by_seed += again != first[i];
    }
    assert_true(differ_by_position > 10);
    assert_true(differ_by_seed > 10);
    sampler_free(&s);
}

/* ---- Bias and penalties ------------------------------------------------- */

static void bias_moves_and_forbids(void **state)
{
    static const float logits[] = { 1, 2, 3 };
    static const struct logit_bias up[] = { { 0, 1.5f }, { 0, 1 } }, never[] = { { 2, -INFINITY } };
    struct sampling p = off(0);

    (void)state;
    p.bias = up;
    p.n_bias = 2;
    assert_int_equal(choose(&p, logits, 3, NULL, 0, 0), 0);
    p.bias = never;
    p.n_bias = 1;
    assert_int_equal(choose(&p, logits, 3, NULL, 0, 0), 1);
}

static void repetition_divides_or_multiplies(void **state)
{
    static const float positive[] = { 2, 3 }, negative[] = { -2, -1.5f };
    static const int32_t one[] = { 1, 1, 1 };
    struct sampling p = off(0);

    (void)state;
    p.penalty_last_n = 64;
    p.repeat_penalty = 1.4f; /* 3 / 1.4 = 2.14 still wins; the count does not matter */
    assert_int_equal(choose(&p, positive, 2, one, 3, 0), 1);
    p.repeat_penalty = 1.6f; /* 1.875; and -1.5 * 1.6 = -2.4 */
    assert_int_equal(choose(&p, positive, 2, one, 1, 0), 0);
    assert_int_equal(choose(&p, negative, 2, one, 1, 0), 0);
    p.repeat_penalty = 1.3f; /* -1.95 */
    assert_int_equal(choose(&p, negative, 2, one, 1, 0), 1);
}

static void presence_and_frequency_are_taken_off(void **state)
{
    static const float logits[] = { 2, 3 };
    static const int32_t one[] = { 1, 1, 1 };
    struct sampling p = off(0);

    (void)state;
    p.penalty_last_n = -1;
    p.presence_penalty = 0.9f;
    assert_int_equal(choose(&p, logits, 2, one, 3, 0), 1);
    p.presence_penalty = 1.1f;
    assert_int_equal(choose(&p, logits, 2, one, 1, 0), 0);
    p.presence_penalty = 0;
    p.frequency_penalty = 0.4f;
    assert_int_equal(choose(&p, logits, 2, one, 2, 0), 1);
    assert_int_equal(choose(&p, logits, 2, one, 3, 0), 0);
    p.presence_penalty = 0.3f; /* both: 2 * 0.4 + 0.3 */
    assert_int_equal(choose(&p, logits, 2, one, 2, 0), 0);
    p.presence_penalty = -0.3f; /* a reward */
    assert_int_equal(choose(&p, logits, 2, one, 3, 0), 1);
}

static void the_window_ends_at_penalty_last_n(void **state)
{
    static const float logits[] = { 2, 3, 1 };
    static const int32_t history[] = { 1, 2, 2, -7, 99 }; /* foreign ids count as nothing */
    struct sampling p = off(0);

    (void)state;
    p.presence_penalty = 2;
    p.penalty_last_n = 4;
    assert_int_equal(choose(&p, logits, 3, history, 5, 0), 1);
    p.penalty_last_n = 5;
    assert_int_equal(choose(&p, logits, 3, history, 5, 0), 0);
    p.penalty_last_n = -1;
    assert_int_equal(choose(&p, logits, 3, history, 5, 0), 0);
    p.penalty_last_n = 0;
    assert_int_equal(choose(&p, logits, 3, history, 5, 0), 1);
}

static void nothing_is_left_from_the_call_before(void **state)
{
    float logits[] = { 2, 3 }, kept[2];
    static const int32_t one[] = { 1 };
    static const struct logit_bias up[] = {
        {0, 5}
    };
    struct sampler *s = NULL;
    struct sampling p = off(0), plain = off(0);
    int32_t token = -1;

    (void)state;
    memcpy(kept, logits, sizeof kept);
    p.penalty_last_n = -1;
    p.frequency_penalty = 2;
    p.bias = up;
    p.n_bias = 1;
    assert_int_equal(sampler_create(&s, 2, NULL), ERR_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sampler_choose(s, &p, logits, one, 1, 0, &token, NULL), ERR_OK);
        assert_int_equal(token, 0);
        assert_int_equal(sampler_choose(s, &plain, logits, one, 1, 0, &token, NULL), ERR_OK);
        assert_int_equal(token, 1);
    }
    assert_memory_equal(kept, logits, sizeof kept);
    sampler_free(&s);
}

/* ---- Errors ------------------------------------------------------------- */

static void expect_error(const struct sampling *p, const float *logits, int n, enum err_code want)
{
    struct sampler *s = NULL;
    int32_t token = -5;
    static const int32_t history[] = { 0 };
    struct err e = { 0 };

    assert_int_equal(sampler_create(&s, n, NULL), ERR_OK);
    assert_int_equal(sampler_choose(s, p, logits, history, 1, 0, &token, &e), want);
    assert_int_equal(token, -5);
    assert_true(e.msg[0]);
    sampler_free(&s);
}

static void broken_logits_are_errors(void **state)
{
    static const float nan_last[] = { 1, 2, NAN }, inf[] = { 1, INFINITY, 2 };
    static const float none[] = { -INFINITY, -INFINITY }, fine[] = { 3e38f, 1 };
    static const struct logit_bias all[] = {
        {0,  -INFINITY},
        { 1, -INFINITY}
    };
    static const struct logit_bias huge[] = { { 0, 3e38f } }, foreign[] = { { 2, 1 } };

    (void)state;
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < 2; k++) {
            struct sampling p = off((float)t);
            p.top_k = k;
            expect_error(&p, nan_last, 3, ERR_NUMERIC);
            expect_error(&p, inf, 3, ERR_NUMERIC);
            expect_error(&p, none, 2, ERR_NUMERIC);
            p.bias = all;
            p.n_bias = 2;
            expect_error(&p, fine, 2, ERR_USAGE);
            expect_error(&p, none, 2, ERR_NUMERIC);
            p.bias = huge;
            p.n_bias = 1;
            expect_error(&p, fine, 2, ERR_NUMERIC);
            p.bias = foreign;
            expect_error(&p, fine, 2, ERR_USAGE);
            p.n_bias = 0;
            p.penalty_last_n = 1;
            p.repeat_penalty = 1e-9f;
            expect_error(&p, fine, 2, ERR_NUMERIC);
        }
}

static void parameters_are_checked(void **state)
{
    static const struct logit_bias nan_bias[] = {
        {0, NAN}
    };
    struct sampling good, p;
    struct err e;

    (void)state;
    sampling_default(&good);
    assert_int_equal(sampling_check(&good, &e), ERR_OK);
#define REFUSED(field, value, name)                      \
    p = good;                                            \
    p.field = (value);                                   \
    assert_int_equal(sampling_check(&p, &e), ERR_USAGE); \
    assert_non_null(strstr(e.msg, name))
    REFUSED(temperature, -0.1f, "temperature");
    REFUSED(temperature, NAN, "temperature");
    REFUSED(temperature, INFINITY, "temperature");
    REFUSED(top_k, -1, "top-k");
    REFUSED(top_p, 1.1f, "top-p");
    REFUSED(top_p, NAN, "top-p");
    REFUSED(min_p, -0.1f, "min-p");
    REFUSED(min_p, NAN, "min-p");
    REFUSED(repeat_penalty, 0, "repeat penalty");
    REFUSED(repeat_penalty, NAN, "repeat penalty");
    REFUSED(presence_penalty, INFINITY, "presence penalty");
    REFUSED(frequency_penalty, NAN, "frequency penalty");
    REFUSED(penalty_last_n, -2, "penalty window");
#undef REFUSED
    good.bias = nan_bias;
    good.n_bias = 1;
    assert_int_equal(sampling_check(&good, &e), ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(uniform_is_in_range_and_even),
        cmocka_unit_test(softmax_is_drawn),
        cmocka_unit_test(temperature_flattens_and_sharpens),
        cmocka_unit_test(top_k_keeps_the_best),
        cmocka_unit_test(top_p_keeps_the_smallest_set_that_reaches_it),
        cmocka_unit_test(min_p_is_relative_to_the_best),
        cmocka_unit_test(cuts_ignore_the_temperature),
        cmocka_unit_test(choices_equal_the_naive_ones),
        cmocka_unit_test(greedy_takes_the_lowest_id_among_equals),
        cmocka_unit_test(the_choice_depends_on_seed_and_position_alone),
        cmocka_unit_test(bias_moves_and_forbids),
        cmocka_unit_test(repetition_divides_or_multiplies),
        cmocka_unit_test(presence_and_frequency_are_taken_off),
        cmocka_unit_test(the_window_ends_at_penalty_last_n),
        cmocka_unit_test(nothing_is_left_from_the_call_before),
        cmocka_unit_test(broken_logits_are_errors),
        cmocka_unit_test(parameters_are_checked),
    };
    return cmocka_run_group_tests_name("rank/sampler", tests, NULL, NULL);
}
