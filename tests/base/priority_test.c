/* SPDX-License-Identifier: MIT */
/* tests/base/priority_test.c - who comes first, and what that leaves alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

#include "base/priority.h"

/* SCHED_RESET_ON_FORK stands beside the policy. */
static int policy(void)
{
    return sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
}

/* Root may lack the capability, and others may have the limit: who tries, knows. */
static int may_have_real_time(void)
{
    struct sched_param first = { .sched_priority = 1 }, none = { 0 };

    return sched_setscheduler(0, SCHED_RR, &first) == 0 &&
           sched_setscheduler(0, SCHED_OTHER, &none) == 0;
}

static void *tell_policy(void *arg)
{
    *(int *)arg = policy();
    return NULL;
}

static void *at_once(void *arg)
{
    int *policies = arg;
    pthread_t child;

    priority_at_once();
    policies[0] = policy();
    if (pthread_create(&child, NULL, tell_policy, &policies[1]) == 0)
        pthread_join(child, NULL);
    return NULL;
}

static void real_time_is_of_one_thread(void **state)
{
    int policies[2] = { -1, -1 };
    pthread_t t;

    (void)state;
    if (!may_have_real_time())
        skip();
    assert_int_equal(pthread_create(&t, NULL, at_once, policies), 0);
    pthread_join(t, NULL);
    assert_int_equal(policies[0], SCHED_RR);
    assert_int_equal(policies[1], SCHED_OTHER);
    assert_int_equal(policy(), SCHED_OTHER);
}

static void *at_once_of_batch(void *arg)
{
    struct sched_param none = { 0 };

    if (sched_setscheduler(0, SCHED_BATCH, &none) == 0)
        priority_at_once();
    *(int *)arg = policy();
    return NULL;
}

static void a_policy_that_was_given_stays(void **state)
{
    int found = -1;
    pthread_t t;

    (void)state;
    assert_int_equal(pthread_create(&t, NULL, at_once_of_batch, &found), 0);
    pthread_join(t, NULL);
    assert_int_equal(found, SCHED_BATCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(real_time_is_of_one_thread),
                                        cmocka_unit_test(a_policy_that_was_given_stays) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
