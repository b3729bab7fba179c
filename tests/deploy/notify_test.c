/* SPDX-License-Identifier: MIT */
/* tests/deploy/notify_test.c - notify_test LATENTD MODEL: the daemon as a service manager sees it.
 *
 * It is started as the unit does, with a socket of ours in place of the manager's: it must say that
 * it is ready, feed the watchdog while it serves, and end with status 0 when it is told to.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/support/temp_dir.h"

enum { WATCHDOG_MS = 1000, PATIENCE_MS = 60000 };

static const char *latentd, *model;
static pid_t running; /* 0: none */

struct manager {
    int socket;
    pid_t pid;
    char last[1024];   /* the message that came last */
    char status[1024]; /* the one that came last with a STATUS= */
    int fed;           /* times that the watchdog was fed */
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void open_manager(struct manager *m)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };

    *m = (struct manager){ .socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) };
    assert_true(m->socket >= 0);
    (void)snprintf(a.sun_path, sizeof a.sun_path, "%.80s/notify", temp_dir);
    (void)unlink(a.sun_path);
    assert_int_equal(bind(m->socket, (struct sockaddr *)&a, sizeof a), 0);
}

/* As the unit's ExecStart=, with paths of this folder.  config: the file's text. */
static void start(struct manager *m, const char *config)
{
    char listen[600], notify[600];

    assert_int_equal(temp_file("latentd.conf", config), 0);
    (void)snprintf(listen, sizeof listen, "ipc://%s/latentd.sock", temp_dir);
    (void)snprintf(notify, sizeof notify, "%s/notify", temp_dir);
    running = m->pid = fork();
    assert_true(m->pid >= 0);
    if (m->pid == 0) {
        (void)setenv("NOTIFY_SOCKET", notify, 1);
        (void)setenv("WATCHDOG_USEC", "1000000", 1);
        (void)execl(latentd, latentd, "--config", "latentd.conf", "--listen", listen, "--state-dir",
                    "state", (char *)NULL);
        _exit(127);
    }
}

/* After a test that failed in between. */
static int kill_it(void **state)
{
    (void)state;
    if (running) {
        (void)kill(running, SIGKILL);
        (void)waitpid(running, NULL, 0);
    }
    running = 0;
    return 0;
}

/* Takes messages until one has a line that begins with `what`; 0 if none comes in time. */
static int hears(struct manager *m, const char *what, int64_t within_ms)
{
    int64_t end = now_ms() + within_ms;

    for (;;) {
        struct pollfd p = { .fd = m->socket, .events = POLLIN };
        int64_t left = end - now_ms();
        if (left < 0 || poll(&p, 1, (int)left) <= 0)
            return 0;
        ssize_t n = recv(m->socket, m->last, sizeof m->last - 1, 0);
        assert_true(n >= 0);
        m->last[n] = 0;
        m->fed += strstr(m->last, "WATCHDOG=1") != NULL;
        if (strstr(m->last, "STATUS="))
            memcpy(m->status, m->last, sizeof m->status);
        const char *at = strstr(m->last, what);
        if (at && (at == m->last || at[-1] == '\n'))
            return 1;
    }
}

/* The exit status, or -1 if it does not end in time. */
static int ends(struct manager *m, int64_t within_ms)
{
    int64_t end = now_ms() + within_ms;
    int status;

    while (waitpid(m->pid, &status, WNOHANG) == 0) {
        if (now_ms() > end)
            return -1;
        (void)usleep(2000);
    }
    running = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_life(void **state)
{
    struct manager m;
    char config[700];

    (void)state;
    open_manager(&m);
    (void)snprintf(config, sizeof config, "model = %s\nctx-size = 1024\n", model);
    start(&m, config);
    assert_true(hears(&m, "READY=1", PATIENCE_MS));
    assert_true(hears(&m, "STATUS=", PATIENCE_MS));

    /* Fed again and again, loading or not; within an interval, where the machine is not too busy.
     */
    int64_t shortest = PATIENCE_MS;
    for (int i = 0; i < 6; i++) {
        int64_t begin = now_ms();
        if (!hears(&m, "WATCHDOG=1", PATIENCE_MS))
            fail_msg("the watchdog is not fed any more, after %d times", m.fed);
        shortest = now_ms() - begin < shortest ? now_ms() - begin : shortest;
    }
    assert_true(shortest < WATCHDOG_MS);

    /* Served: the status says so, and it stops when it is told to. */
    while (!strstr(m.status, " running"))
        assert_true(hears(&m, "STATUS=", PATIENCE_MS));
    int64_t begin = now_ms();
    assert_int_equal(kill(m.pid, SIGTERM), 0);
    int status = ends(&m, PATIENCE_MS);
    int64_t took = now_ms() - begin;
    assert_int_equal(status, 0);
    assert_true(hears(&m, "STOPPING=1", PATIENCE_MS));
    print_message("SIGTERM, idle: ended after %d ms\n", (int)took);
    close(m.socket);
}

/* What no restart would mend has a status of its own (RestartPreventExitStatus=). */
static void test_wrong(void **state)
{
    struct manager m;
    char config[700];

    (void)state;
    open_manager(&m);
    start(&m, "modle = x\n");
    assert_int_equal(ends(&m, PATIENCE_MS), 2);
    assert_false(hears(&m, "READY=1", 0));

    (void)snprintf(config, sizeof config, "model = %s\nctx-size = 2000000000\nfit = off\n", model);
    start(&m, config);
    assert_int_equal(ends(&m, PATIENCE_MS), 3);

    start(&m, "model = /nowhere/model.gguf\n");
    assert_int_equal(ends(&m, PATIENCE_MS), 1);
    close(m.socket);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_life, kill_it),
        cmocka_unit_test_teardown(test_wrong, kill_it),
    };

    if (argc != 3)
        return 2;
    latentd = argv[1];
    model = argv[2];
    return cmocka_run_group_tests(tests, temp_dir_enter, temp_dir_remove);
}
