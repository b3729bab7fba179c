/* SPDX-License-Identifier: MIT */
/* tests/daemon/server_support.h - a server to ask: started before the tests of a file, stopped
 * after them.
 *
 * Clients here speak the wire by hand (tests/support/sp.h); behind the server stands a book
 * without a model (tests/support/fake_book.h).
 */
#ifndef TESTS_DAEMON_SERVER_SUPPORT_H
#define TESTS_DAEMON_SERVER_SUPPORT_H

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/str.h"
#include "daemon/server.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "tests/support/fake_book.h"
#include "tests/support/sp.h"
#include "tests/support/temp_dir.h"

static const char address[] = "ipc://s"; /* in the folder of the test */
static char tcp_address[128];
static struct requests *book;
static struct server *server;
static struct gguf *gguf;
static struct tokenizer *tokenizer;
static uint32_t last_id;

/* ---- Asking -------------------------------------------------------------- */

static inline Latentd__Envelope question(Latentd__Method method)
{
    Latentd__Envelope m;

    latentd__envelope__init(&m);
    m.has_version = m.has_method = 1;
    m.version = PROTO_VERSION;
    m.method = method;
    return m;
}

/* Asks and waits for the answer to this very question. */
static inline Latentd__Envelope *ask(int fd, int tcp, const Latentd__Envelope *m)
{
    uint32_t id = 0, mine = ++last_id;

    assert_int_equal(sp_ask(fd, tcp, mine, m), 0);
    Latentd__Envelope *a = sp_answer(fd, tcp, &id);
    assert_non_null(a);
    assert_int_equal(id, mine);
    assert_int_equal(a->version, PROTO_VERSION);
    return a;
}

/* Asks once over a connection of its own; 1: Health was answered. */
static inline int alive(void)
{
    int fd = sp_connect(address), ok;
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_HEALTH);
    Latentd__HealthRequest h = LATENTD__HEALTH_REQUEST__INIT;

    assert_true(fd >= 0);
    m.body_case = LATENTD__ENVELOPE__BODY_HEALTH;
    m.health = &h;
    Latentd__Envelope *a = ask(fd, 0, &m);
    ok = a->body_case == LATENTD__ENVELOPE__BODY_HEALTH_REPLY && a->health_reply->green;
    envelope_free(&a);
    close(fd);
    return ok;
}

static inline Latentd__Envelope *submit_with(int fd, Latentd__SubmitRequest *q)
{
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_SUBMIT);

    m.body_case = LATENTD__ENVELOPE__BODY_SUBMIT;
    m.submit = q;
    return ask(fd, 0, &m);
}

static inline Latentd__SubmitRequest plain(const char *id, uint32_t max_tokens)
{
    Latentd__SubmitRequest q;

    latentd__submit_request__init(&q);
    q.id = (char *)id;
    q.prompt_case = LATENTD__SUBMIT_REQUEST__PROMPT_TEXT;
    q.text = (ProtobufCBinaryData){ 5, (uint8_t *)"hello" };
    q.has_max_tokens = 1;
    q.max_tokens = max_tokens;
    return q;
}

static inline void submit(int fd, const char *id, uint32_t max_tokens)
{
    Latentd__SubmitRequest q = plain(id, max_tokens);
    Latentd__Envelope *a = submit_with(fd, &q);

    if (a->error)
        fail_msg("%s", a->error->message);
    assert_string_equal(a->submit_reply->id, id);
    envelope_free(&a);
}

static inline void send_next(int fd, uint32_t rid, const char *id, uint64_t cursor,
                             uint32_t wait_ms)
{
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_NEXT);
    Latentd__NextRequest q = LATENTD__NEXT_REQUEST__INIT;

    q.id = (char *)id;
    q.has_cursor = q.has_wait_ms = 1;
    q.cursor = cursor;
    q.wait_ms = wait_ms;
    m.body_case = LATENTD__ENVELOPE__BODY_NEXT;
    m.next = &q;
    assert_int_equal(sp_ask(fd, 0, rid, &m), 0);
}

static inline Latentd__Envelope *next(int fd, const char *id, uint64_t cursor, uint32_t wait_ms)
{
    uint32_t rid = ++last_id, got = 0;

    send_next(fd, rid, id, cursor, wait_ms);
    Latentd__Envelope *a = sp_answer(fd, 0, &got);
    assert_non_null(a);
    assert_int_equal(got, rid);
    return a;
}

static inline int wait_for_waiters(int want)
{
    int n = fake_book_waiters(book);

    for (double end = clock_seconds() + 60; n != want && clock_seconds() < end;) {
        usleep(1000);
        n = fake_book_waiters(book);
    }
    return n;
}

/* ---- The server ---------------------------------------------------------- */

static inline int start_server(void **state)
{
    struct service service = {
        .token = "secret",
    };
    struct err e = { 0 };

    if (temp_dir_enter(state) != 0)
        return -1;
    book = fake_book_open(NULL, 0);
    service.book = book;
    if (gguf_open(&gguf, TEST_DATA "/models/tiny-v3-q4_k_m.gguf", 0, &e) != ERR_OK ||
        tokenizer_open(&tokenizer, gguf, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    service.gguf = gguf;
    service.tokenizer = tokenizer;
    if (server_start(&server, &service, &e) != ERR_OK ||
        server_listen(server, address, NULL, 0, &e) != ERR_OK ||
        server_listen(server, "tcp://127.0.0.1:0", tcp_address, sizeof tcp_address, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return 0;
}

static inline int stop_server(void **state)
{
    int fd = sp_connect(address); /* a question stays open over the end */
    submit(fd, "stop", 2);
    send_next(fd, 1, "stop", 0, 20000);
    wait_for_waiters(1);
    double begin = clock_seconds();
    server_stop(&server);
    print_message("stopped in %.3f s\n", clock_seconds() - begin);
    close(fd);
    if (fake_book_waiters(book) || access(address + 6, F_OK) == 0)
        return -1;
    fake_book_close(book);
    tokenizer_close(&tokenizer);
    gguf_close(&gguf);
    return temp_dir_remove(state);
}

#endif
