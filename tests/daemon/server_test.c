/* SPDX-License-Identifier: MIT */
/* tests/daemon/server_test.c - the listening side, asked properly and improperly.
 *
 * Clients here speak the wire by hand (tests/support/sp.h); behind the server stands a book
 * without a model (tests/support/fake_book.h).
 *
 * Reading order: asking; requests and streams; refusals; hostile bytes; addresses; crowds.
 */
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

static char folder[] = "/tmp/latentd-server-XXXXXX";
static char address[64], tcp_address[128];
static struct requests *book;
static struct server *server;
static struct gguf *gguf;
static struct tokenizer *tokenizer;
static uint32_t last_id;

/* ---- Asking -------------------------------------------------------------- */

static Latentd__Envelope question(Latentd__Method method)
{
    Latentd__Envelope m;

    latentd__envelope__init(&m);
    m.has_version = m.has_method = 1;
    m.version = PROTO_VERSION;
    m.method = method;
    return m;
}

/* Asks and waits for the answer to this very question. */
static Latentd__Envelope *ask(int fd, int tcp, const Latentd__Envelope *m)
{
    uint32_t id = 0, mine = ++last_id;

    assert_int_equal(sp_ask(fd, tcp, mine, m), 0);
    Latentd__Envelope *a = sp_answer(fd, tcp, 10000, &id);
    assert_non_null(a);
    assert_int_equal(id, mine);
    assert_int_equal(a->version, PROTO_VERSION);
    return a;
}

/* Asks once over a connection of its own; 1: Health was answered. */
static int alive(void)
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

static Latentd__Envelope *submit_with(int fd, Latentd__SubmitRequest *q)
{
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_SUBMIT);

    m.body_case = LATENTD__ENVELOPE__BODY_SUBMIT;
    m.submit = q;
    return ask(fd, 0, &m);
}

static Latentd__SubmitRequest plain(const char *id, uint32_t max_tokens)
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

static void submit(int fd, const char *id, uint32_t max_tokens)
{
    Latentd__SubmitRequest q = plain(id, max_tokens);
    Latentd__Envelope *a = submit_with(fd, &q);

    if (a->error)
        fail_msg("%s", a->error->message);
    assert_string_equal(a->submit_reply->id, id);
    envelope_free(&a);
}

static void send_next(int fd, uint32_t rid, const char *id, uint64_t cursor, uint32_t wait_ms)
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

static Latentd__Envelope *next(int fd, const char *id, uint64_t cursor, uint32_t wait_ms)
{
    uint32_t rid = ++last_id, got = 0;

    send_next(fd, rid, id, cursor, wait_ms);
    Latentd__Envelope *a = sp_answer(fd, 0, 10000, &got);
    assert_non_null(a);
    assert_int_equal(got, rid);
    return a;
}

/* ---- Requests and streams ------------------------------------------------ */

static void a_stream_comes_by_cursor(void **state)
{
    int fd = sp_connect(address);

    (void)state;
    submit(fd, "s1", 3);
    submit(fd, "s1", 3);
    assert_int_equal(fake_book_accepted(book, "s1"), 1);
    fake_book_produce(book, "s1", 2);
    Latentd__Envelope *a = next(fd, "s1", 0, 20000);
    assert_int_equal(a->next_reply->cursor, 2);
    assert_int_equal(a->next_reply->n_tokens, 2);
    assert_int_equal(a->next_reply->tokens[1], 2);
    assert_memory_equal(a->next_reply->text.data, "w1 w2 ", 6);
    assert_null(a->next_reply->end);
    envelope_free(&a);
    a = next(fd, "s1", 1, 20000); /* again from the middle */
    assert_int_equal(a->next_reply->tokens[0], 2);
    envelope_free(&a);
    fake_book_produce(book, "s1", 1);
    a = next(fd, "s1", 2, 20000);
    assert_int_equal(a->next_reply->cursor, 4);
    assert_non_null(a->next_reply->end);
    assert_int_equal(a->next_reply->end->reason, LATENTD__FINISH_REASON__FINISH_LENGTH);
    assert_int_equal(a->next_reply->end->produced_tokens, 3);
    envelope_free(&a);
    close(fd);
}

static void next_waits_and_is_woken(void **state)
{
    int fd = sp_connect(address);
    uint32_t got = 0;

    (void)state;
    submit(fd, "w1", 5);
    double begin = clock_seconds();
    Latentd__Envelope *a = next(fd, "w1", 0, 150);
    double took = clock_seconds() - begin;
    assert_true(took > 0.14 && took < 5);
    assert_int_equal(a->next_reply->cursor, 0);
    assert_int_equal(a->next_reply->n_tokens, 0);
    envelope_free(&a);
    send_next(fd, 77, "w1", 0, 20000);
    while (!fake_book_waiters(book))
        usleep(1000);
    fake_book_produce(book, "w1", 1);
    a = sp_answer(fd, 0, 5000, &got);
    assert_non_null(a);
    assert_int_equal(a->next_reply->cursor, 1);
    envelope_free(&a);
    a = next(fd, "w1", 9, 50); /* beyond the stream: waits */
    assert_int_equal(a->next_reply->cursor, 9);
    envelope_free(&a);
    close(fd);
}

static void submit_waits_for_the_journal(void **state)
{
    int fd = sp_connect(address);
    Latentd__SubmitRequest q = plain("h1", 2);
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_SUBMIT);
    struct pollfd p = { .fd = fd, .events = POLLIN };
    uint32_t got = 0;

    (void)state;
    m.body_case = LATENTD__ENVELOPE__BODY_SUBMIT;
    m.submit = &q;
    fake_book_hold(book, 1);
    assert_int_equal(sp_ask(fd, 0, 5, &m), 0);
    assert_int_equal(poll(&p, 1, 200), 0);
    fake_book_hold(book, 0);
    Latentd__Envelope *a = sp_answer(fd, 0, 5000, &got);
    assert_non_null(a);
    assert_string_equal(a->submit_reply->id, "h1");
    envelope_free(&a);
    close(fd);
}

static void a_chat_becomes_tokens(void **state)
{
    int fd = sp_connect(address);
    Latentd__SubmitRequest q = plain("c1", 2);
    Latentd__Chat chat = LATENTD__CHAT__INIT;
    Latentd__ChatMessage message = LATENTD__CHAT_MESSAGE__INIT, *messages[] = { &message };
    char *stops[] = { (char *)"\n\n" };

    (void)state;
    message.has_role = message.has_content = 1;
    message.role = LATENTD__ROLE__ROLE_USER;
    message.content = q.text;
    chat.messages = messages;
    chat.n_messages = 1;
    q.prompt_case = LATENTD__SUBMIT_REQUEST__PROMPT_CHAT;
    q.chat = &chat;
    q.stop = stops;
    q.n_stop = 1;
    Latentd__Envelope *a = submit_with(fd, &q);
    if (a->error)
        fail_msg("%s", a->error->message);
    assert_true(fake_book_last_prompt(book) > 2);
    assert_string_equal(fake_book_last_stop(book), "\n\n");
    assert_int_equal(fake_book_last_end_ids(book), 1);
    envelope_free(&a);
    message.role = LATENTD__ROLE__ROLE_NONE;
    q.id = (char *)"c2";
    a = submit_with(fd, &q);
    assert_string_equal(a->error->field, "chat.messages");
    envelope_free(&a);
    close(fd);
}

static void text_becomes_tokens_and_back(void **state)
{
    int fd = sp_connect(address);
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_TOKENIZE);
    Latentd__TokenizeRequest q = LATENTD__TOKENIZE_REQUEST__INIT;
    Latentd__DetokenizeRequest d = LATENTD__DETOKENIZE_REQUEST__INIT;

    (void)state;
    q.has_text = q.has_add_bos = 1;
    q.text = (ProtobufCBinaryData){ 8, (uint8_t *)"a\0\xff щё" };
    m.body_case = LATENTD__ENVELOPE__BODY_TOKENIZE;
    m.tokenize = &q;
    Latentd__Envelope *a = ask(fd, 0, &m);
    assert_true(a->tokenize_reply->n_ids > 2);
    d.ids = a->tokenize_reply->ids;
    d.n_ids = a->tokenize_reply->n_ids;
    m = question(LATENTD__METHOD__METHOD_DETOKENIZE);
    m.body_case = LATENTD__ENVELOPE__BODY_DETOKENIZE;
    m.detokenize = &d;
    Latentd__Envelope *b = ask(fd, 0, &m);
    assert_int_equal(b->detokenize_reply->text.len, 8);
    assert_memory_equal(b->detokenize_reply->text.data, "a\0\xff щё", 8);
    envelope_free(&b);
    d.ids[0] = 1 << 30;
    b = ask(fd, 0, &m);
    assert_string_equal(b->error->field, "ids");
    envelope_free(&b);
    envelope_free(&a);
    close(fd);
}

static void the_daemon_tells_of_itself(void **state)
{
    int fd = sp_connect(address);
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_STATUS);
    Latentd__StatusRequest s = LATENTD__STATUS_REQUEST__INIT;
    Latentd__MetricsRequest metrics = LATENTD__METRICS_REQUEST__INIT;
    Latentd__PlanRequest plan = LATENTD__PLAN_REQUEST__INIT;

    (void)state;
    m.body_case = LATENTD__ENVELOPE__BODY_STATUS;
    m.status = &s;
    Latentd__Envelope *a = ask(fd, 0, &m);
    assert_non_null(a->status_reply);
    assert_string_equal(a->status_reply->model, "fake ");
    assert_int_equal(a->status_reply->phase, LATENTD__PHASE__PHASE_SERVING);
    assert_false(a->status_reply->has_pages_total);
    envelope_free(&a);
    m = question(LATENTD__METHOD__METHOD_METRICS);
    m.body_case = LATENTD__ENVELOPE__BODY_METRICS;
    m.metrics = &metrics;
    a = ask(fd, 0, &m);
    assert_non_null(a->metrics_reply);
    struct str text = { 0 };
    str_append(&text, (char *)a->metrics_reply->text.data, a->metrics_reply->text.len);
    assert_non_null(strstr(text.data, "latentd_fake 1\n"));
    assert_non_null(strstr(text.data, "\nlatentd_connections "));
    assert_non_null(strstr(text.data, "\nlatentd_questions_open 1\n"));
    str_free(&text);
    envelope_free(&a);
    m = question(LATENTD__METHOD__METHOD_PLAN);
    m.body_case = LATENTD__ENVELOPE__BODY_PLAN;
    m.plan = &plan;
    a = ask(fd, 0, &m);
    assert_memory_equal(a->plan_reply->report.data, "a plan", 6);
    envelope_free(&a);
    close(fd);
}

static void list_cancel_and_drain(void **state)
{
    int fd = sp_connect(address);
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_CANCEL);
    Latentd__CancelRequest cancel = LATENTD__CANCEL_REQUEST__INIT;
    Latentd__ListRequest list = LATENTD__LIST_REQUEST__INIT;
    Latentd__DrainRequest drain = LATENTD__DRAIN_REQUEST__INIT;
    Latentd__SubmitRequest q = plain("l2", 4);

    (void)state;
    submit(fd, "l1", 4);
    cancel.id = (char *)"l1";
    m.body_case = LATENTD__ENVELOPE__BODY_CANCEL;
    m.cancel = &cancel;
    Latentd__Envelope *a = ask(fd, 0, &m);
    assert_non_null(a->cancel_reply);
    envelope_free(&a);
    a = next(fd, "l1", 0, 1000);
    assert_int_equal(a->next_reply->end->reason, LATENTD__FINISH_REASON__FINISH_CANCELLED);
    envelope_free(&a);
    m = question(LATENTD__METHOD__METHOD_LIST);
    m.body_case = LATENTD__ENVELOPE__BODY_LIST;
    m.list = &list;
    list.has_limit = 1;
    list.limit = 1;
    a = ask(fd, 0, &m);
    assert_int_equal(a->list_reply->n_requests, 1);
    assert_string_equal(a->list_reply->requests[0]->id, "l1");
    envelope_free(&a);
    m = question(LATENTD__METHOD__METHOD_DRAIN);
    m.body_case = LATENTD__ENVELOPE__BODY_DRAIN;
    m.drain = &drain;
    a = ask(fd, 0, &m);
    assert_non_null(a->drain_reply);
    envelope_free(&a);
    a = submit_with(fd, &q);
    assert_int_equal(a->error->code, LATENTD__ERROR_CODE__ERROR_DRAINING);
    envelope_free(&a);
    drain.has_undo = drain.undo = 1;
    a = ask(fd, 0, &m);
    envelope_free(&a);
    submit(fd, "l2", 4);
    close(fd);
}

/* ---- Refusals ------------------------------------------------------------ */

static void wrong_parameters_are_named(void **state)
{
    int fd = sp_connect(address);
    Latentd__Sampling p = LATENTD__SAMPLING__INIT;
    Latentd__SubmitRequest q = plain("p1", 4);

    (void)state;
    q.sampling = &p;
    p.has_top_p = 1;
    p.top_p = 1.5f;
    Latentd__Envelope *a = submit_with(fd, &q);
    assert_int_equal(a->error->code, LATENTD__ERROR_CODE__ERROR_INVALID_PARAMETER);
    assert_string_equal(a->error->field, "sampling.top_p");
    assert_non_null(strstr(a->error->message, "0 to 1"));
    assert_int_equal(a->method, LATENTD__METHOD__METHOD_SUBMIT);
    envelope_free(&a);
    p.top_p = 0.0f / 0.0f;
    a = submit_with(fd, &q);
    assert_string_equal(a->error->field, "sampling.top_p");
    envelope_free(&a);
    p.top_p = 1;
    q.has_priority = 1;
    q.priority = 101;
    a = submit_with(fd, &q);
    assert_string_equal(a->error->field, "priority");
    envelope_free(&a);
    q.priority = 0;
    q.max_tokens = 0;
    a = submit_with(fd, &q);
    assert_string_equal(a->error->field, "max_tokens");
    envelope_free(&a);
    close(fd);
}

static void the_book_says_no(void **state)
{
    static const struct {
        enum answer from;
        Latentd__ErrorCode code;
        int retry;
    } rows[] = {
        {ANSWER_QUEUE_FULL,    LATENTD__ERROR_CODE__ERROR_QUEUE_FULL,        1},
        { ANSWER_JOURNAL_FULL, LATENTD__ERROR_CODE__ERROR_JOURNAL_FULL,      1},
        { ANSWER_TOO_LONG,     LATENTD__ERROR_CODE__ERROR_PROMPT_TOO_LONG,   0},
        { ANSWER_CONFLICT,     LATENTD__ERROR_CODE__ERROR_ID_CONFLICT,       0},
        { ANSWER_INVALID,      LATENTD__ERROR_CODE__ERROR_INVALID_PARAMETER, 0},
    };
    int fd = sp_connect(address);
    Latentd__SubmitRequest q = plain("n1", 4);

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fake_book_refuse(book, rows[i].from);
        Latentd__Envelope *a = submit_with(fd, &q);
        assert_int_equal(a->error->code, rows[i].code);
        assert_int_equal(a->error->has_retry_ms, rows[i].retry);
        envelope_free(&a);
    }
    fake_book_refuse(book, ANSWER_OK);
    Latentd__Envelope *a = next(fd, "nobody", 0, 100);
    assert_int_equal(a->error->code, LATENTD__ERROR_CODE__ERROR_UNKNOWN_REQUEST);
    envelope_free(&a);
    close(fd);
}

static Latentd__ErrorCode code_for(const char *bytes, size_t n)
{
    int fd = sp_connect(address);
    uint32_t id;

    assert_int_equal(sp_send(fd, 0, 3, bytes, n), 0);
    Latentd__Envelope *a = sp_answer(fd, 0, 5000, &id);
    assert_non_null(a);
    assert_non_null(a->error);
    Latentd__ErrorCode code = a->error->code;
    envelope_free(&a);
    close(fd);
    return code;
}

static void envelopes_that_are_none(void **state)
{
    (void)state;
    assert_int_equal(code_for("GET / HTTP/1.1", 14), LATENTD__ERROR_CODE__ERROR_BAD_MESSAGE);
    assert_int_equal(code_for("", 0), LATENTD__ERROR_CODE__ERROR_BAD_MESSAGE);
    assert_int_equal(code_for("\x08\x02\x10\x01", 4), LATENTD__ERROR_CODE__ERROR_BAD_VERSION);
    assert_int_equal(code_for("\x08\x01\x10\x63", 4), LATENTD__ERROR_CODE__ERROR_UNKNOWN_METHOD);
    assert_int_equal(code_for("\x08\x01\x10\x01", 4), LATENTD__ERROR_CODE__ERROR_UNKNOWN_METHOD);
    assert_int_equal(code_for("\x08\x01\x10\x02\x82\x01\x00", 7),
                     LATENTD__ERROR_CODE__ERROR_UNKNOWN_METHOD);
    assert_int_equal(code_for("\x08\x01\x10\x01\x82\x01\x05\x4a\x03"
                              "a\0b",
                              12),
                     LATENTD__ERROR_CODE__ERROR_BAD_MESSAGE);
}

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
    assert_int_equal(poll(&p, 1, 5000), 1);
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
    assert_true(alive());
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
    Latentd__Envelope *a = sp_answer(fd, 0, 5000, &id);
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
    char path[100], at[160];
    struct sockaddr_un sun = { .sun_family = AF_UNIX };
    struct stat st;
    struct err e;

    (void)state;
    assert_int_equal(stat(address + 6, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(at, sizeof at, "ipc://%s", path);
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
    snprintf(at, sizeof at, "ipc:///tmp/%0200d", 0);
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

/* ---- Crowds -------------------------------------------------------------- */

static int wait_for_waiters(int want)
{
    int n = -1;

    for (int i = 0; i < 5000 && n != want; i++) {
        n = fake_book_waiters(book);
        usleep(1000);
    }
    return n;
}

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
        Latentd__Envelope *a = sp_answer(fds[i], 0, 10000, &id);
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
        Latentd__Envelope *a = sp_answer(fd, 0, 10000, &id);
        assert_non_null(a);
        assert_in_range(id, 0, MANY - 1);
        assert_int_equal(seen[id]++, 0);
        assert_int_equal(a->next_reply->cursor, 1);
        envelope_free(&a);
    }
    close(fd);
}

/* Asks for much and takes nothing: it is closed, and nobody else notices. */
static void who_never_reads_is_closed(void **state)
{
    int fd = sp_connect(address), one = 4096, n = 0;
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_PLAN);
    Latentd__PlanRequest plan = LATENTD__PLAN_REQUEST__INIT;

    (void)state;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &one, sizeof one);
    m.body_case = LATENTD__ENVELOPE__BODY_PLAN;
    m.plan = &plan;
    plan.has_json = plan.json = 1;
    while (n < 10000 && sp_ask(fd, 0, 1, &m) == 0)
        n++;
    assert_true(n < 10000);
    assert_true(alive());
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

/* ---- The server ---------------------------------------------------------- */

static int start_server(void **state)
{
    static char json[900000];
    struct service service = {
        .plan_text = {"a plan", 6          },
        .plan_json = { json,    sizeof json},
        .token = "secret",
    };
    struct err e = { 0 };

    (void)state;
    memset(json, 'x', sizeof json);
    if (!mkdtemp(folder))
        return -1;
    snprintf(address, sizeof address, "ipc://%s/s", folder);
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

static int stop_server(void **state)
{
    char path[128];

    (void)state;
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
    snprintf(path, sizeof path, "%s/file", folder);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_comes_by_cursor),
        cmocka_unit_test(next_waits_and_is_woken),
        cmocka_unit_test(submit_waits_for_the_journal),
        cmocka_unit_test(a_chat_becomes_tokens),
        cmocka_unit_test(text_becomes_tokens_and_back),
        cmocka_unit_test(the_daemon_tells_of_itself),
        cmocka_unit_test(list_cancel_and_drain),
        cmocka_unit_test(wrong_parameters_are_named),
        cmocka_unit_test(the_book_says_no),
        cmocka_unit_test(envelopes_that_are_none),
        cmocka_unit_test(raw_bytes_do_no_harm),
        cmocka_unit_test(a_frame_too_large_ends_the_connection),
        cmocka_unit_test(a_long_question_is_answered),
        cmocka_unit_test(nobody_waits_for_a_long_answer),
        cmocka_unit_test(a_question_may_come_byte_by_byte),
        cmocka_unit_test(a_path_is_taken_with_care),
        cmocka_unit_test(addresses_that_are_refused),
        cmocka_unit_test(tcp_wants_its_token),
        cmocka_unit_test(many_wait_at_once),
        cmocka_unit_test(one_connection_asks_much),
        cmocka_unit_test(who_never_reads_is_closed),
        cmocka_unit_test(ten_thousand_connections),
        cmocka_unit_test(answers_come_fast),
    };

    return cmocka_run_group_tests_name("daemon/server", tests, start_server, stop_server);
}
