/* SPDX-License-Identifier: MIT */
/* tests/daemon/ranks_test.c - what becomes of an mpirun that brings no rank and does not
 * leave, and of a start that the system refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/ranks.h"
#include "tests/support/temp_dir.h"

static int n_refused; /* forks to come that fail, as where a user has too many processes */

pid_t fork(void)
{
    if (n_refused == 0)
        return _Fork();
    n_refused--;
    errno = EAGAIN;
    return -1;
}

static void unexpected(void *arg, int fd)
{
    (void)arg;
    (void)fd;
    fail_msg("a rank reported");
}

/* It notes that it runs, does not hear SIGTERM, and stays longer than the test. */
static const char deaf[] = "#!/bin/sh\n"
                           "trap '' TERM\n"
                           "echo >>starts\n"
                           "exec sleep 300\n";

static int count_starts(void)
{
    struct stat st;

    return stat("starts", &st) == 0 ? (int)st.st_size : 0;
}

/* Ranks by a deaf mpirun; until it has been started so often. */
static void run_until(int n_starts)
{
    struct err e = { 0 };
    struct ranks *r = NULL;

    (void)remove("starts");
    assert_int_equal(temp_file("mpirun", deaf), 0);
    assert_int_equal(chmod("mpirun", 0700), 0);
    struct ranks_options o = { .program = "/bin/false",
                               .n_ranks = 2,
                               .launch = "./mpirun",
                               .run_dir = "run",
                               .start_ms = 300,
                               .on_link = unexpected };
    assert_int_equal(ranks_create(&r, &o, &e), ERR_OK);
    double end = clock_seconds() + 60;
    while (count_starts() < n_starts && clock_seconds() < end) {
        struct pollfd fds[RANKS_FDS];
        int64_t wait_ms;
        int n = ranks_fds(r, fds, &wait_ms);
        (void)poll(fds, (nfds_t)n, wait_ms < 50 ? (int)wait_ms : 50);
        assert_int_equal(ranks_poll(r, &e), ERR_OK);
    }
    assert_true(count_starts() >= n_starts);
    (void)ranks_stop(&r);
}

static void a_hung_start_is_ended_and_another_made(void **state)
{
    (void)state;
    run_until(2);
}

static void a_start_that_is_refused_is_tried_again(void **state)
{
    (void)state;
    n_refused = 2;
    run_until(1);
    assert_int_equal(n_refused, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hung_start_is_ended_and_another_made),
        cmocka_unit_test(a_start_that_is_refused_is_tried_again),
    };

    log_set_quiet(1);
    return cmocka_run_group_tests(tests, temp_dir_enter, temp_dir_remove);
}
