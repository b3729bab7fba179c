/* SPDX-License-Identifier: MIT */
/* tests/rank/clock_test.c - the clock of the host is set back by an hour, as soon as anybody has
 * read it: what waits for a moment must not wait an hour longer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "rank/comm_start.h"
#include "rank/load_watch.h"

int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    int rc = (int)syscall(SYS_clock_gettime, clock_id, tp);

    if (clock_id == CLOCK_REALTIME)
        tp->tv_sec += 3600;
    return rc;
}

static void loading_is_told(void *arg, const struct comm *c)
{
    (void)c;
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void loading_is_told_all_the_time(void **state)
{
    struct comm_options o;
    struct comm *c = NULL;
    atomic_int told = 0;
    (void)state;

    comm_options_default(&o);
    assert_int_equal(comm_create_self(&c, &o, NULL), ERR_OK);
    load_watch_tell(loading_is_told, &told);
    struct load_watch *w = load_watch_begin(c);
    for (double until = clock_seconds() + 60; told < 3 && clock_seconds() < until;)
        (void)poll(NULL, 0, 10);
    load_watch_end(w);
    load_watch_tell(NULL, NULL);
    comm_free(&c);
    assert_true(told >= 3);
}

static void a_start_ends_in_time(void **state)
{
    int status;
    (void)state;

    pid_t pid = fork();
    if (pid == 0) {
        struct comm_guard g = { 0 };
        comm_guard_start(&g, 100);
        (void)sleep(10);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 70);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading_is_told_all_the_time),
        cmocka_unit_test(a_start_ends_in_time),
    };

    log_set_quiet(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
