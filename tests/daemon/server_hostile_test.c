/* SPDX-License-Identifier: MIT */
/* tests/daemon/server_hostile_test.c - the listening side, asked improperly.
 *
 * Reading order: hostile bytes; addresses; crowds.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "daemon/server_parts.h"
#include "tests/daemon/server_support.h"

/* ---- Hostile bytes ------------------------------------------------------- */

struct poke {
    const char *bytes;
    size_t n;
};
#define P(bytes)                \
    {                           \
        bytes, sizeof bytes - 1 \
    }

static void raw_bytes_do_no_harm(void **state)
{
    static const struct poke pokes[] = {
        P(""),
        P("\0"),
        P("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        P("\0SP\0\0\x30\0\0\x02\0\0\0\0\0\0\0\x04"), /* a frame type that nanomsg aborts on */
        P("\0SP\0\0\x30\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        P("\0SP\0\0\x30\0\0\x01\x7f\xff\xff\xff\xff\xff\xff\xff"),
        P("\0SP\0\0\x30\0\0\x01\0\0\0\0\0\0\0\0"),
        P("\0SP\0\0\x30\0\0\x01\0\0\0\0\0\0\0\x03\x80\0\0"),
        P("\0SP\0\0\x30\0\0\x01\0\0\0\0\0\0\0\x04\0\0\0\0"), /* an id without its mark */
        P("\0SP\0\0\x31\0\0\x01\0\0\0\0\0\0\0\x04\x80\0\0\1"),
        P("\0SP\1\0\x30\0\0"),
        P("\0SP\0\0\x30\0\0\x01\0\0\0\0\0\x3f\xff\xff"), /* a frame that never comes */
    };
    const char *const at[] = { address, tcp_address };
    uint32_t random = 5;
    uint8_t noise[256];

    (void)state;
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < sizeof pokes / sizeof *pokes; i++) {
            int fd = sp_connect_bare(at[k]);
            assert_true(fd >= 0);
            (void)!send(fd, pokes[i].bytes, pokes[i].n, MSG_NOSIGNAL);
            close(fd);
        }
        for (int i = 0; i < 200; i++) {
            for (size_t j = 0; j < sizeof noise; j++) {
                random = random * 1664525 + 1013904223;
                noise[j] = (uint8_t)(random >> 24);
            }
            int fd = i % 2 ? sp_connect(at[k]) : sp_connect_bare(at[k]);
            assert_true(fd >= 0);
            (void)!send(fd, noise, sizeof noise, MSG_NOSIGNAL);
            close(fd);
        }
    }
    assert_true(alive());
}

static void a_frame_too_large_ends_the_connection(void **state)
{
    int fd = sp_connect(address);
    char byte;
    struct pollfd p = { .fd = fd, .events = POLLIN };

    (void)state;
    assert_int_equal(send(fd, "\x01\0\0\0\0\x10\0\0\0\x80\0\0\1", 13, MSG_NOSIGNAL), 13);
    assert_int_equal(poll(&p, 1, SP_PATIENCE_MS), 1);
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
    assert_true(alive());
}

/* What has come of it stays in memory, of which all have so much together. */
static void half_a_question_ends_the_connection(void **state)
{
    int fd = sp_connect(address);
    char byte;
    struct pollfd p = { .fd = fd, .events = POLLIN };

    (void)state;
    assert_int_equal(send(fd, "\x01\0\0\0\0\0\0\0\x0b\x80\0\0\x09\x08", 14, MSG_NOSIGNAL), 14);
    assert_int_equal(poll(&p, 1, 1200), 0); /* the sweep leaves it alone */
    for (struct conn *c = server->conns; c; c = c->next)
        c->read_s -= SERVER_SEND_MS * 1e-3;
    assert_int_equal(poll(&p, 1, SP_PATIENCE_MS), 1);
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
}

/* As large as may be: refused by the limit of its field, and the connection lives. */
static void a_long_question_is_answered(void **state)
{
    int fd = sp_connect(address);
    Latentd__SubmitRequest q = plain("long", 1);
    size_t n = 4000000;

    (void)state;
    q.text = (ProtobufCBinaryData){ n, malloc(n) };
    assert_non_null(q.text.data);
    memset(q.text.data, 'a', n);
    Latentd__Envelope *a = submit_with(fd, &q);
    if (a->error)
        fail_msg("%s", a->error->message);
    assert_true(a->submit_reply->prompt_tokens > 1000);
    envelope_free(&a);
    free(q.text.data);
    close(fd);
}

/* It goes away while its question is tokenized. */
static void nobody_waits_for_a_long_answer(void **state)
{
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_SUBMIT);
    Latentd__SubmitRequest q = plain("away", 1);
    size_t n = 2000000;

    (void)state;
    q.text = (ProtobufCBinaryData){ n, malloc(n) };
    assert_non_null(q.text.data);
    memset(q.text.data, 'b', n);
    m.body_case = LATENTD__ENVELOPE__BODY_SUBMIT;
    m.submit = &q;
    for (int i = 0; i < 3; i++) {
        int fd = sp_connect(address);
        assert_int_equal(sp_ask(fd, 0, 1, &m), 0);
        close(fd);
    }
    free(q.text.data);
    assert_true(alive());
}

static void a_question_may_come_byte_by_byte(void **state)
{
    static const char bytes[] = "\x01\0\0\0\0\0\0\0\x0b\x80\0\0\x09\x08\x01\x10\x09\xc2\x01\0";
    int fd = sp_connect(address);
    uint32_t id = 0;

    (void)state;
    for (size_t i = 0; i < sizeof bytes - 1; i++) {
        assert_int_equal(send(fd, bytes + i, 1, MSG_NOSIGNAL), 1);
        usleep(500);
    }
    Latentd__Envelope *a = sp_answer(fd, 0, &id);
    assert_non_null(a);
    assert_int_equal(id, 9);
    assert_non_null(a->health_reply);
    envelope_free(&a);
    close(fd);
}

/* ---- Addresses ----------------------------------------------------------- */

static enum err_code listen_at(const char *at, struct err *e)
{
    char bound[128];

    *e = (struct err){ 0 };
    return server_listen(server, at, bound, sizeof bound, e);
}

static void a_path_is_taken_with_care(void **state)
{
    const char *path = "file", *at = "ipc://file";
    struct sockaddr_un sun = { .sun_family = AF_UNIX };
    struct stat st;
    struct err e;

    (void)state;
    assert_int_equal(stat(address + 6, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(listen_at(at, &e), ERR_USAGE);
    assert_non_null(strstr(e.msg, "is no socket"));
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    unlink(path);

    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(sun.sun_path, sizeof sun.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof sun), 0);
    assert_int_equal(listen(fd, 1), 0);
    double begin = clock_seconds();
    assert_int_equal(listen_at(at, &e), ERR_IO);
    assert_true(clock_seconds() - begin >= 1.9);
    assert_non_null(strstr(e.msg, "a live process listens"));
    close(fd); /* dead now, its socket stays */
    if (listen_at(at, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    fd = sp_connect(at);
    assert_true(fd >= 0);
    close(fd);
}

static void addresses_that_are_refused(void **state)
{
    static const char *const rows[][2] = {
        {"ipc://",                 "path is missing"        },
        { "ipc:///nowhere/at/all", "directory"              },
        { "tcp://",                "name an address"        },
        { "tcp://:7000",           "name an address"        },
        { "tcp://127.0.0.1",       "name an address"        },
        { "udp://127.0.0.1:7000",  "no address to listen at"},
        { "/run/latentd.sock",     "no address to listen at"},
    };
    char at[300];
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_not_equal(listen_at(rows[i][0], &e), ERR_OK);
        if (!strstr(e.msg, rows[i][1]))
            fail_msg("%s: %s", rows[i][0], e.msg);
    }
    snprintf(at, sizeof at, "ipc:///nowhere/%0200d", 0);
    assert_int_equal(listen_at(at, &e), ERR_USAGE);
}

static void tcp_wants_its_token(void **state)
{
    static const char *const wrong[] = { NULL, "", "secre", "secret2", "Secret" };
    int fd = sp_connect(tcp_address);
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_HEALTH);
    Latentd__HealthRequest h = LATENTD__HEALTH_REQUEST__INIT;
    struct service without = { .book = book };
    struct server *other = NULL;
    struct err e;

    (void)state;
    assert_true(fd >= 0);
    m.body_case = LATENTD__ENVELOPE__BODY_HEALTH;
    m.health = &h;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        m.token = (char *)wrong[i];
        Latentd__Envelope *a = ask(fd, 1, &m);
        assert_int_equal(a->error->code, LATENTD__ERROR_CODE__ERROR_UNAUTHORIZED);
        envelope_free(&a);
    }
    m.token = (char *)"secret";
    Latentd__Envelope *a = ask(fd, 1, &m);
    assert_non_null(a->health_reply);
    envelope_free(&a);
    close(fd);
    assert_int_equal(server_start(&other, &without, &e), ERR_OK);
    assert_int_equal(server_listen(other, "tcp://127.0.0.1:0", NULL, 0, &e), ERR_USAGE);
    assert_non_null(strstr(e.msg, "token"));
    server_stop(&other);
}

/* What has its token and waits is no stranger, however long it waits. */
static void tcp_may_wait(void **state)
{
    int fd = sp_connect(tcp_address), near = sp_connect(address);
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_NEXT);
    Latentd__NextRequest q = LATENTD__NEXT_REQUEST__INIT;
    uint32_t id;

    (void)state;
    submit(near, "far", 2);
    m.token = (char *)"secret";
    m.body_case = LATENTD__ENVELOPE__BODY_NEXT;
    m.next = &q;
    q.id = (char *)"far";
    q.has_wait_ms = 1;
    q.wait_ms = 1500;
    assert_int_equal(sp_ask(fd, 1, 1, &m), 0);
    assert_int_equal(wait_for_waiters(1), 1);
    int idle_s = 0;
    socklen_t len = sizeof idle_s;
    assert_int_equal(getsockopt(server->conns->next->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, &len),
                     0);
    assert_in_range(idle_s, 1, 60); /* the kernel's own would be two hours */
    for (struct conn *c = server->conns; c; c = c->next)
        c->opened_s -= 60; /* the loop sweeps while the question waits */
    Latentd__Envelope *a = sp_answer(fd, 1, &id);
    assert_non_null(a);
    assert_non_null(a->next_reply);
    envelope_free(&a);
    close(fd);
    close(near);
}

/* ---- Crowds -------------------------------------------------------------- */

static void many_wait_at_once(void **state)
{
    enum { MANY = 300 };
    int fds[MANY];
    uint32_t id;

    (void)state;
    int first = sp_connect(address);
    submit(first, "m1", 9);
    for (int i = 0; i < MANY; i++) {
        fds[i] = sp_connect(address);
        assert_true(fds[i] >= 0);
        send_next(fds[i], 1, "m1", 0, 20000);
    }
    assert_int_equal(wait_for_waiters(MANY), MANY);
    assert_true(alive());
    for (int i = 0; i < 50; i++) /* they go, and nobody waits for them */
        close(fds[i]);
    assert_int_equal(wait_for_waiters(MANY - 50), MANY - 50);
    fake_book_produce(book, "m1", 1);
    for (int i = 50; i < MANY; i++) {
        Latentd__Envelope *a = sp_answer(fds[i], 0, &id);
        assert_non_null(a);
        assert_int_equal(a->next_reply->cursor, 1);
        envelope_free(&a);
        close(fds[i]);
    }
    close(first);
}

/* More questions on one connection than may be open: the rest is read when there is room. */
static void one_connection_asks_much(void **state)
{
    enum { MANY = 3 * SERVER_CONN_CALLS + 5 };
    int fd = sp_connect(address), seen[MANY] = { 0 };
    uint32_t id;

    (void)state;
    submit(fd, "much", 9);
    for (uint32_t i = 0; i < MANY; i++)
        send_next(fd, i, "much", 0, 20000);
    assert_int_equal(wait_for_waiters(SERVER_CONN_CALLS), SERVER_CONN_CALLS);
    usleep(50000);
    assert_int_equal(fake_book_waiters(book), SERVER_CONN_CALLS);
    fake_book_produce(book, "much", 1);
    for (int i = 0; i < MANY; i++) {
        Latentd__Envelope *a = sp_answer(fd, 0, &id);
        assert_non_null(a);
        assert_in_range(id, 0, MANY - 1);
        assert_int_equal(seen[id]++, 0);
        assert_int_equal(a->next_reply->cursor, 1);
        envelope_free(&a);
    }
    close(fd);
}

/* All together: where there are too many, the rest waits in the kernel and loses nothing. */
static void many_connections_ask_much(void **state)
{
    enum { MANY = SERVER_CALLS / SERVER_CONN_CALLS + 20 };
    int *fds = calloc(MANY, sizeof *fds);
    uint32_t id;

    (void)state;
    assert_non_null(fds);
    int first = sp_connect(address);
    submit(first, "crowd", 9);
    for (int i = 0; i < MANY; i++) {
        fds[i] = sp_connect(address);
        for (uint32_t k = 0; k < SERVER_CONN_CALLS; k++)
            send_next(fds[i], k, "crowd", 0, 20000);
    }
    for (int i = 0; i < SP_PATIENCE_MS && fake_book_waiters(book) < SERVER_CALLS; i++)
        usleep(1000);
    assert_true(alive());
    assert_in_range(fake_book_waiters(book), SERVER_CALLS, SERVER_CALLS + MANY);
    fake_book_produce(book, "crowd", 1);
    for (int i = 0; i < MANY; i++) {
        for (int k = 0; k < SERVER_CONN_CALLS; k++) {
            Latentd__Envelope *a = sp_answer(fds[i], 0, &id);
            assert_non_null(a);
            envelope_free(&a);
        }
        close(fds[i]);
    }
    close(first);
    free(fds);
}

/* Of one connection's long questions one is worked on: others come in between. */
static void long_questions_of_one_come_one_by_one(void **state)
{
    enum { MANY = 8 };
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_SUBMIT);
    Latentd__SubmitRequest q = plain("", 1);
    int status = -1, at_once = 0;
    size_t n = 1000000;

    (void)state;
    q.text = (ProtobufCBinaryData){ n, malloc(n) };
    assert_non_null(q.text.data);
    memset(q.text.data, 'a', n);
    m.body_case = LATENTD__ENVELOPE__BODY_SUBMIT;
    m.submit = &q;
    pid_t child = fork();
    if (child == 0) {
        int fd = sp_connect(address), answers = 0;
        char ids[MANY][8];
        uint32_t id;
        for (uint32_t i = 0; i < MANY; i++) {
            snprintf(ids[i], sizeof ids[i], "one%u", i);
            q.id = ids[i];
            sp_ask(fd, 0, i, &m);
        }
        while (answers < MANY && sp_answer(fd, 0, &id))
            answers++;
        _exit(answers != MANY);
    }
    while (waitpid(child, &status, WNOHANG) == 0) {
        int open = (int)server->counts.open_questions;
        at_once = open > at_once ? open : at_once;
        usleep(50);
    }
    assert_int_equal(status, 0);
    assert_int_equal(at_once, 1);
    free(q.text.data);
}

/* Asks for much and takes nothing: it is closed, and nobody else notices. */
static void who_never_reads_is_closed(void **state)
{
    int fd = sp_connect(address), one = 4096;
    const struct timeval patience = { .tv_usec = 200000 };
    struct pollfd p = { .fd = fd };
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_PLAN);
    Latentd__PlanRequest plan = LATENTD__PLAN_REQUEST__INIT;

    (void)state;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    m.body_case = LATENTD__ENVELOPE__BODY_PLAN;
    m.plan = &plan;
    plan.has_json = plan.json = 1;
    while (sp_ask(fd, 0, 1, &m) == 0)
        ;
    assert_true(alive());
    assert_int_equal(poll(&p, 1, 1500), 0);
    int closed = 0;
    for (int i = 0; i < 12 && !closed; i++) { /* its last answer may have moved just now */
        for (struct conn *c = server->conns; c; c = c->next)
            c->moved_s -= SERVER_SEND_MS * 1e-3;
        closed = poll(&p, 1, 5000);
    }
    assert_int_equal(closed, 1);
    assert_true(p.revents & POLLHUP);
    close(fd);
}

/* Connects `many` times, tells how often that went well, and lets go when `until` ends. */
static void crowd(int many, int tell, int until)
{
    int n = 0;
    char byte;

    while (n < many && sp_connect(address) >= 0)
        n++;
    (void)!write(tell, &n, sizeof n);
    (void)!read(until, &byte, 1);
    _exit(0);
}

static void ten_thousand_connections(void **state)
{
    enum { MANY = 10000 };
    struct rlimit files;
    int tell[2], until[2], n = 0, status = -1;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < MANY + 500) {
        print_message("ten_thousand_connections: only %lu files allowed\n",
                      (unsigned long)files.rlim_max);
        skip();
    }
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    assert_int_equal(pipe2(tell, O_CLOEXEC) | pipe2(until, O_CLOEXEC), 0);
    double begin = clock_seconds();
    pid_t child = fork();
    if (child == 0) {
        close(until[1]);
        crowd(MANY, tell[1], until[0]);
    }
    close(until[0]);
    close(tell[1]);
    assert_int_equal(read(tell[0], &n, sizeof n), sizeof n);
    print_message("%d connections in %.1f s\n", n, clock_seconds() - begin);
    assert_int_equal(n, MANY);
    assert_true(alive());
    close(until[1]);
    close(tell[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(alive());
}

static void answers_come_fast(void **state)
{
    enum { ROUNDS = 2000 };
    int fd = sp_connect(address);

    (void)state;
    submit(fd, "f1", ROUNDS + 1);
    double begin = clock_seconds();
    for (int i = 0; i < ROUNDS; i++) {
        fake_book_produce(book, "f1", 1);
        Latentd__Envelope *a = next(fd, "f1", (uint64_t)i, 20000);
        assert_int_equal(a->next_reply->cursor, i + 1);
        envelope_free(&a);
    }
    print_message("a round trip of Next: %.0f us\n", (clock_seconds() - begin) / ROUNDS * 1e6);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_bytes_do_no_harm),
        cmocka_unit_test(a_frame_too_large_ends_the_connection),
        cmocka_unit_test(half_a_question_ends_the_connection),
        cmocka_unit_test(a_long_question_is_answered),
        cmocka_unit_test(nobody_waits_for_a_long_answer),
        cmocka_unit_test(a_question_may_come_byte_by_byte),
        cmocka_unit_test(a_path_is_taken_with_care),
        cmocka_unit_test(addresses_that_are_refused),
        cmocka_unit_test(tcp_wants_its_token),
        cmocka_unit_test(tcp_may_wait),
        cmocka_unit_test(many_wait_at_once),
        cmocka_unit_test(one_connection_asks_much),
        cmocka_unit_test(many_connections_ask_much),
        cmocka_unit_test(long_questions_of_one_come_one_by_one),
        cmocka_unit_test(who_never_reads_is_closed),
        cmocka_unit_test(ten_thousand_connections),
        cmocka_unit_test(answers_come_fast),
    };

    return cmocka_run_group_tests_name("daemon/server_hostile", tests, start_server, stop_server);
}
