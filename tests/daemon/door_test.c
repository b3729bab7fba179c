/* SPDX-License-Identifier: MIT */
/* tests/daemon/door_test.c - who is let in at the ranks' socket, and that nobody holds it up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/door.h"
#include "rank/dial.h"
#include "rank/link.h"

enum { PATIENCE_MS = 60000 };

static struct door door;

static int open_door(void **state)
{
    struct err e = { 0 };

    (void)state;
    log_set_quiet(1);
    return door_open(&door, 1, &e) != ERR_OK;
}

static int close_door(void **state)
{
    (void)state;
    door_close(&door);
    return 0;
}

/* One of the door's two addresses: 'u' or 't'. */
static int call(char kind)
{
    struct err e = { 0 };
    const char *comma = strchr(door.addresses, ',');
    char near[200], far[200];
    int fd = -1;

    (void)snprintf(near, sizeof near, "%.*s", (int)(comma - door.addresses), door.addresses);
    /* The host's own name need not resolve where this runs. */
    (void)snprintf(far, sizeof far, "tcp:localhost%s", strrchr(comma, ':'));
    assert_int_equal(dial(&fd, kind == 'u' ? near : far, &e), ERR_OK);
    return fd;
}

static struct str hello(const char *token)
{
    struct link_hello h = { .version = LINK_VERSION, .pid = 4711 };
    struct str payload = { 0 };
    struct err e = { 0 };

    (void)snprintf(h.token, sizeof h.token, "%s", token);
    assert_int_equal(link_put_hello(&payload, &h, &e), ERR_OK);
    return payload;
}

static void say_hello(int fd, const char *token)
{
    struct str payload = hello(token);

    assert_int_equal(link_send(fd, LINK_HELLO, payload.data, payload.len, NULL), ERR_OK);
    str_free(&payload);
}

/* Over TCP it may take a moment. */
static int answer(int *fd, pid_t *pid)
{
    for (int i = 0; i < PATIENCE_MS; i++) {
        if (door_answer(&door, fd, pid))
            return 1;
        usleep(1000);
    }
    return 0;
}

/* What was not read before closing resets the connection. */
static int is_closed(int fd)
{
    char c;
    ssize_t n = recv(fd, &c, 1, MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno == ECONNRESET);
}

static void lets_in_who_has_the_token(void **state)
{
    (void)state;
    for (const char *kind = "ut"; *kind; kind++) {
        int fd = call(*kind), inside = -1;
        pid_t pid = -1;

        assert_false(door_answer(&door, &inside, &pid));
        say_hello(fd, door.token);
        assert_true(answer(&inside, &pid));
        assert_int_equal(pid, *kind == 'u' ? 4711 : 0);
        assert_int_equal(write(fd, "x", 1), 1);
        char c = 0;
        assert_int_equal(read(inside, &c, 1), 1);
        assert_int_equal(c, 'x');
        close(inside);
        close(fd);
    }
}

static void sends_others_away(void **state)
{
    char wrong[65];
    int inside, fds[3] = { call('u'), call('t'), call('t') };
    pid_t pid;

    (void)state;
    memcpy(wrong, door.token, sizeof wrong);
    wrong[63] = wrong[63] == '0' ? '1' : '0';
    say_hello(fds[0], wrong);
    say_hello(fds[1], wrong);
    /* a length that no HELLO has: nothing is allocated for it */
    assert_int_equal(write(fds[2], "\xff\xff\xff\x03\x01", 5), 5);
    for (int i = 0; i < 3; i++) {
        int closed = 0;
        for (int ms = 0; ms < PATIENCE_MS && !closed; ms++) {
            assert_false(door_answer(&door, &inside, &pid));
            closed = is_closed(fds[i]);
            usleep(1000);
        }
        assert_true(closed);
        close(fds[i]);
    }
}

static void is_not_held_up(void **state)
{
    int silent[2 * DOOR_CALLERS], inside = -1, n = 2 * DOOR_CALLERS;
    struct pollfd p[DOOR_FDS];
    pid_t pid;

    (void)state;
    for (int i = 0; i < n; i++) {
        silent[i] = call(i & 1 ? 't' : 'u');
        assert_int_equal(write(silent[i], "\x50\0", 2), 2); /* the beginning of a frame */
        assert_false(door_answer(&door, &inside, &pid));
    }
    /* Once all has come there is nothing that poll would return for at once. */
    int ms = 0;
    do {
        usleep(20000);
        assert_false(door_answer(&door, &inside, &pid));
    } while (poll(p, (nfds_t)door_fds(&door, p), 0) != 0 && (ms += 20) < PATIENCE_MS);
    assert_true(ms < PATIENCE_MS);

    int fd = call('t');
    say_hello(fd, door.token);
    assert_true(answer(&inside, &pid));
    close(inside);
    close(fd);
    for (int i = 0; i < n; i++)
        close(silent[i]);
    assert_false(door_answer(&door, &inside, &pid));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lets_in_who_has_the_token),
        cmocka_unit_test(sends_others_away),
        cmocka_unit_test(is_not_held_up),
    };

    return cmocka_run_group_tests(tests, open_door, close_door);
}
