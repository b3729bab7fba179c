/* SPDX-License-Identifier: MIT */
/* tests/placement/solver_test.c - what the planner places by itself against every alternative.
 *
 * All numbers of experts on each of two GPUs are forced by rules, the same in every layer, and
 * predicted; the planner's own choice must be as fast as the best of those that fit.
 */
#include "plan_support.h"

#include <math.h>

/* Microseconds of a decode step that depend on where experts are. */
static double expert_us(const struct plan *p)
{
    double us = 0;

    for (int i = 0; i < p->predict.n_terms; i++)
        if (p->predict.terms[i].phase == PHASE_DECODE &&
            (strstr(p->predict.terms[i].name, "expert") ||
             strstr(p->predict.terms[i].name, "crossing")))
            us += p->predict.terms[i].us;
    return us;
}

static double planned_us(const char *path, const char *devices, const char *rules, int *fits)
{
    struct case_plan c;

    support_open(&c, path, devices, rules);
    support_plan(&c);
    double us = expert_us(&c.plan);
    *fits = c.plan.fits;
    support_close(&c);
    return us;
}

static void check_against_all(const char *path, const char *devices, int n_experts, int step)
{
    double best = INFINITY;
    int fits, tried = 0;
    char rules[128], best_rules[128] = "";

    for (int a = 0; a <= n_experts; a += step)
        for (int b = 0; a + b <= n_experts; b += step) {
            size_t n = (size_t)snprintf(rules, sizeof rules, "_exps=");
            if (a > 0)
                n += (size_t)snprintf(rules + n, sizeof rules - n, "CUDA0:%d+", a);
            if (b > 0)
                n += (size_t)snprintf(rules + n, sizeof rules - n, "CUDA1:%d+", b);
            snprintf(rules + n, sizeof rules - n, "CPU");
            if (a + b == n_experts)
                rules[strlen(rules) - 4] = '\0';
            double us = planned_us(path, devices, rules, &fits);
            tried += fits;
            if (fits && us < best) {
                best = us;
                snprintf(best_rules, sizeof best_rules, "%s", rules);
            }
        }
    double own = planned_us(path, devices, NULL, &fits);
    print_message("%s: own %.1f us, best of %d %.1f us with %s\n", devices, own, tried, best,
                  best_rules);
    assert_true(fits && tried > 0);
    if (!(own <= 1.03 * best))
        fail_msg("%s: %.1f us, and %s takes %.1f us", devices, own, best_rules, best);
}

static void small_model(void **state)
{
    char path[512];

    (void)state;
    snprintf(path, sizeof path, "%s/models/tiny-v3-q4_k_m.gguf", TEST_DATA);
    check_against_all(path, "host(ram=8G,bw=20G,gpus=2*RTX3090,ranks=1)", 16, 1);
    check_against_all(path, "host(ram=8G,bw=20G,gpus=RTX4090+RTX3060,ranks=1)", 16, 1);
}

/* The GPUs have room for some of the experts only. */
static void limited_memory(void **state)
{
    char path[512];

    (void)state;
    support_fixture("rules/v3-q4_k.head.gguf", path, sizeof path);
    check_against_all(path, "host(ram=512G,bw=400G,gpus=RTXPRO6000+A6000,ranks=1)", 256, 16);
    support_fixture("rules/v2lite-q4_k.head.gguf", path, sizeof path);
    check_against_all(path, "host(ram=64G,bw=50G,gpus=RTX3080+T4,ranks=2)", 64, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_model),
        cmocka_unit_test(limited_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
