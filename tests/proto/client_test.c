/* SPDX-License-Identifier: MIT */
/* tests/proto/client_test.c - liblatent against the real server, and against one that loses,
 * repeats and garbles its answers.
 *
 * Reading order: the two servers; with the real one; restarts; with the bad one.
 */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/str.h"
#include "daemon/server.h"
#include "proto/sp.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "proto/envelope.h"
#include "proto/latent.h"
#include "tests/support/fake_book.h"
#include "tests/support/temp_dir.h"

/* In the folder of the test. */
static const char address[] = "ipc://s", bad_address[] = "ipc://bad";
static char tcp_address[128];
static struct requests *book;
static struct server *server;
static struct gguf *gguf;
static struct tokenizer *tokenizer;

/* ---- The real server ------------------------------------------------------ */

static void start_server(void)
{
    const struct service service = {
        .book = book,
        .gguf = gguf,
        .tokenizer = tokenizer,
        .token = "secret",
    };
    struct err e = { 0 };

    if (server_start(&server, &service, &e) != ERR_OK ||
        server_listen(server, address, NULL, 0, &e) != ERR_OK ||
        server_listen(server, "tcp://127.0.0.1:0", tcp_address, sizeof tcp_address, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

static struct latent *connect_to(const char *endpoint, const char *token)
{
    const struct latent_options o = { .endpoint = endpoint,
                                      .token = token,
                                      .resend_ms = 200,
                                      .connect_ms = 60000,
                                      .answer_ms = 60000,
                                      .agent = "client_test/1" };
    struct latent *c = NULL;
    struct latent_error e;

    if (latent_connect(&c, &o, &e) != LATENT_OK)
        fail_msg("%s", e.message);
    return c;
}

static void submit(struct latent *c, const char *id, int64_t max_tokens)
{
    struct latent_request r;
    struct latent_accepted a;
    struct latent_error e;

    latent_request_init(&r);
    r.id = id;
    r.text = "hello";
    r.text_len = 5;
    r.max_tokens = max_tokens;
    r.temperature = 0;
    if (latent_submit(c, &r, &a, &e) != LATENT_OK)
        fail_msg("%s", e.message);
    assert_true(a.prompt_tokens > 0);
    assert_int_equal(a.seed, 7);
}

/* What a stream gave, and whether it was each token once. */
struct heard {
    struct str text;
    int64_t n;
    int wrong, ended, stop_at;
    enum latent_reason reason;
};

static int hear(void *arg, const struct latent_chunk *chunk)
{
    struct heard *h = arg;

    for (size_t i = 0; i < chunk->n_tokens; i++)
        h->wrong += chunk->tokens[i] != ++h->n;
    str_append(&h->text, chunk->text, chunk->text_len);
    h->ended |= chunk->ended;
    h->reason = chunk->reason;
    return h->stop_at && h->n >= h->stop_at;
}

static void check_text(struct heard *h, int64_t n)
{
    struct str want = { 0 };

    for (int64_t i = 1; i <= n; i++)
        str_printf(&want, "w%lld ", (long long)i);
    assert_int_equal(h->wrong, 0);
    assert_int_equal(h->n, n);
    assert_string_equal(h->text.data, want.data);
    str_free(&want);
    str_free(&h->text);
}

/* ---- With the real one ---------------------------------------------------- */

static void a_stream_is_followed(void **state)
{
    struct latent *c = connect_to(address, NULL);
    struct latent_stream s;
    struct latent_error e;
    struct heard h = { .stop_at = 3 };

    (void)state;
    submit(c, "a1", 6);
    submit(c, "a1", 6);
    assert_int_equal(fake_book_accepted(book, "a1"), 1);
    latent_stream_init(&s, "a1", 0);
    fake_book_produce(book, "a1", 3);
    assert_int_equal(latent_follow(c, &s, hear, &h, &e), LATENT_STOPPED);
    assert_int_equal(s.cursor, 3);
    latent_close(&c);
    c = connect_to(address, NULL); /* elsewhere, with the cursor kept */
    fake_book_produce(book, "a1", 3);
    h.stop_at = 0;
    assert_int_equal(latent_follow(c, &s, hear, &h, &e), LATENT_OK);
    assert_true(h.ended);
    assert_int_equal(h.reason, LATENT_REASON_LENGTH);
    assert_string_equal(latent_reason_name(h.reason), "length");
    struct latent_chunk again;
    assert_int_equal(latent_next(c, &s, &again, &e), LATENT_OK);
    assert_true(again.ended && again.n_tokens == 0 && s.cursor == 7);
    check_text(&h, 6);
    latent_close(&c);
}

/* Tokens that are always there before the next question: no call waits for one. */
struct quick {
    struct heard h;
    int enough;
};

static int hear_and_produce(void *arg, const struct latent_chunk *chunk)
{
    struct quick *q = arg;

    hear(&q->h, chunk);
    q->enough = q->h.n >= 3;
    fake_book_produce(book, "quick", 1);
    return 0;
}

static int had_enough(void *arg, int connected)
{
    const struct quick *q = arg;

    return connected && q->enough;
}

static void a_quick_stream_asks_whether_to_go_on(void **state)
{
    struct quick q = { 0 };
    struct latent_options o = {
        .endpoint = address, .connect_ms = 60000, .waiting = had_enough, .arg = &q
    };
    struct latent *c;
    struct latent_stream s;
    struct latent_error e;

    (void)state;
    assert_int_equal(latent_connect(&c, &o, &e), LATENT_OK);
    submit(c, "quick", 2000);
    fake_book_produce(book, "quick", 1);
    latent_stream_init(&s, "quick", 0);
    assert_int_equal(latent_follow(c, &s, hear_and_produce, &q, &e), LATENT_STOPPED);
    check_text(&q.h, 3);
    q.enough = 0; /* the connection is as good as before */
    assert_int_equal(latent_cancel(c, "quick", &e), LATENT_OK);
    latent_close(&c);
}

static void every_field_of_a_request_arrives(void **state)
{
    static const int32_t tokens[] = { 1, 2, 3 };
    static const struct latent_bias bias[] = {
        {5, -1}
    };
    static const char *const stops[] = { "STOP" };
    static const struct latent_message messages[] = {
        {LATENT_USER, "hi", 2}
    };
    struct latent *c = connect_to(tcp_address, "secret");
    struct latent_request r;
    struct latent_error e;

    (void)state;
    latent_request_init(&r);
    r.id = "f1";
    r.tokens = tokens;
    r.n_tokens = 3;
    r.bias = bias;
    r.n_bias = 1;
    r.stops = stops;
    r.n_stops = 1;
    r.temperature = 1.5;
    r.priority = 7;
    if (latent_submit(c, &r, NULL, &e) != LATENT_OK)
        fail_msg("%s", e.message);
    assert_int_equal(fake_book_last_prompt(book), 3);
    assert_string_equal(fake_book_last_stop(book), "STOP");
    r.id = "f2";
    r.tokens = NULL;
    r.messages = messages;
    r.n_messages = 1;
    if (latent_submit(c, &r, NULL, &e) != LATENT_OK)
        fail_msg("%s", e.message);
    assert_int_equal(fake_book_last_end_ids(book), 1);
    r.text = "both";
    assert_int_equal(latent_submit(c, &r, NULL, &e), LATENT_USAGE);
    r.text = NULL;
    r.id = NULL;
    assert_int_equal(latent_submit(c, &r, NULL, &e), LATENT_USAGE);
    latent_close(&c);
}

static void refusals_are_values(void **state)
{
    struct latent *c = connect_to(address, NULL);
    struct latent_request r;
    struct latent_error e;
    struct latent_stream s;
    struct latent_chunk chunk;

    (void)state;
    latent_request_init(&r);
    r.id = "r1";
    r.text = "x";
    r.text_len = 1;
    r.top_p = 2;
    assert_int_equal(latent_submit(c, &r, NULL, &e), LATENT_INVALID_PARAMETER);
    assert_string_equal(e.field, "sampling.top_p");
    r.top_p = 1;
    fake_book_refuse(book, ANSWER_QUEUE_FULL);
    assert_int_equal(latent_submit(c, &r, NULL, &e), LATENT_QUEUE_FULL);
    assert_int_equal(e.retry_ms, 1000);
    assert_string_equal(latent_code_name(e.code), "queue_full");
    fake_book_refuse(book, ANSWER_OK);
    latent_stream_init(&s, "nobody", 0);
    assert_int_equal(latent_next(c, &s, &chunk, &e), LATENT_UNKNOWN_REQUEST);
    assert_int_equal(latent_cancel(c, "nobody", &e), LATENT_UNKNOWN_REQUEST);
    r.text_len = 5000000; /* refused on this side: nothing is read of it */
    r.text = calloc(1, r.text_len);
    assert_int_equal(latent_submit(c, &r, NULL, &e), LATENT_USAGE);
    free((void *)r.text);
    latent_close(&c);
    c = connect_to(tcp_address, "wrong");
    assert_int_equal(latent_cancel(c, "r1", &e), LATENT_UNAUTHORIZED);
    latent_close(&c);
}

static void the_daemon_tells_of_itself(void **state)
{
    struct latent *c = connect_to(address, NULL);
    struct latent_error e;
    struct latent_status s;
    struct latent_health h;
    const struct latent_info *infos;
    const int32_t *ids;
    const char *text;
    size_t n;
    uint32_t live;

    (void)state;
    assert_int_equal(latent_status(c, &s, &e), LATENT_OK);
    assert_string_equal(s.reuse, "any");
    assert_string_equal(s.kernel_set, "");
    assert_string_equal(latent_phase_name(s.phase), "serving");
    assert_int_equal(s.n_rank_list, 2);
    assert_string_equal(s.rank_list[1].device, "RANK1");
    assert_true(s.rank_list[1].rank == 1 && s.rank_list[1].load_done_bytes == 1001);
    assert_int_equal(latent_health(c, &h, &e), LATENT_OK);
    assert_true(h.green && h.last_ms == 250);
    assert_int_equal(latent_metrics(c, &text, &n, &e), LATENT_OK);
    assert_int_equal(strlen(text), n);
    assert_int_equal(latent_plan(c, 1, &text, &n, &e), LATENT_OK);
    assert_true(n == 900000 && text[0] == '{' && text[n - 1] == '}' && !text[n]);
    submit(c, "t1", 4);
    assert_int_equal(latent_list(c, NULL, 1, 10, &infos, &n, &e), LATENT_OK);
    assert_true(n >= 1);
    assert_string_equal(infos[0].id, "t1");
    assert_int_equal(latent_list(c, NULL, 1, 0, &infos, &n, &e), LATENT_INVALID_PARAMETER);
    assert_int_equal(latent_cancel(c, "t1", &e), LATENT_OK);
    assert_int_equal(latent_tokenize(c, "hello", 5, 0, 0, &ids, &n, &e), LATENT_OK);
    int32_t copy[16];
    assert_in_range(n, 1, 16);
    memcpy(copy, ids, n * sizeof *copy);
    assert_int_equal(latent_detokenize(c, copy, n, &text, &n, &e), LATENT_OK);
    assert_string_equal(text, "hello");
    assert_int_equal(latent_drain(c, 0, &live, &e), LATENT_OK);
    assert_int_equal(latent_drain(c, 1, &live, &e), LATENT_OK);
    latent_close(&c);
}

/* ---- Restarts ------------------------------------------------------------- */

static int produce_and_restart_done;

static void *produce_and_restart(void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 20; k++) {
            fake_book_produce(book, "re1", 1);
            usleep(1000);
        }
        server_stop(&server);
        usleep(30000);
        start_server();
    }
    produce_and_restart_done = 1;
    return NULL;
}

static void a_stream_survives_restarts(void **state)
{
    struct latent *c = connect_to(address, NULL);
    struct latent_stream s;
    struct latent_error e;
    struct heard h = { 0 };
    pthread_t thread;

    (void)state;
    submit(c, "re1", 100);
    latent_stream_init(&s, "re1", 0);
    assert_int_equal(pthread_create(&thread, NULL, produce_and_restart, NULL), 0);
    if (latent_follow(c, &s, hear, &h, &e) != LATENT_OK)
        fail_msg("%s", e.message);
    pthread_join(thread, NULL);
    assert_true(produce_and_restart_done);
    check_text(&h, 100);
    latent_close(&c);
}

struct client {
    char id[16];
    int rc;
};

static void *run_client(void *arg)
{
    struct client *me = arg;
    struct latent_options o = { .endpoint = address, .connect_ms = 60000 };
    struct latent *c;
    struct latent_request r;
    struct latent_stream s;
    struct latent_error e;
    struct heard h = { 0 };

    me->rc = 1;
    if (latent_connect(&c, &o, &e) != LATENT_OK)
        return NULL;
    latent_request_init(&r);
    r.id = me->id;
    r.text = "x";
    r.text_len = 1;
    r.max_tokens = 30;
    latent_stream_init(&s, me->id, 0);
    if (latent_submit(c, &r, NULL, &e) == LATENT_OK) {
        for (int i = 0; i < 30; i++)
            fake_book_produce(book, me->id, 1);
        me->rc = latent_follow(c, &s, hear, &h, &e) != LATENT_OK || h.n != 30 || h.wrong;
    }
    latent_close(&c);
    str_free(&h.text);
    return NULL;
}

static void each_thread_has_its_connection(void **state)
{
    enum { THREADS = 8 };
    struct client clients[THREADS];
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        snprintf(clients[i].id, sizeof clients[i].id, "th%d", i);
        assert_int_equal(pthread_create(&threads[i], NULL, run_client, &clients[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(clients[i].rc, 0);
    }
}

/* ---- A bad server --------------------------------------------------------- */

enum badness {
    LOSE_FIRST,
    GREET_SLOWLY,
    SEND_TWICE,
    SEND_GARBAGE,
    SEND_VERSION_2,
    JUMP,
    NEVER,
    OTHER_BODY
};

static struct bad {
    enum badness how;
    int fd;
    _Atomic int stop, n_questions;
    pthread_t thread;
} bad;

static size_t bad_answer(uint8_t *to, size_t max, uint64_t cursor)
{
    Latentd__Envelope a;
    Latentd__NextReply r = LATENTD__NEXT_REPLY__INIT;
    Latentd__HealthReply h = LATENTD__HEALTH_REPLY__INIT;
    int32_t token = (int32_t)cursor;

    latentd__envelope__init(&a);
    a.has_version = 1;
    a.version = bad.how == SEND_VERSION_2 ? 2 : 1;
    a.body_case = LATENTD__ENVELOPE__BODY_NEXT_REPLY;
    a.next_reply = &r;
    r.has_cursor = 1;
    r.cursor = cursor;
    r.tokens = &token;
    r.n_tokens = 1;
    if (bad.how == OTHER_BODY) {
        a.body_case = LATENTD__ENVELOPE__BODY_HEALTH_REPLY;
        a.health_reply = &h;
    }
    assert_true(latentd__envelope__get_packed_size(&a) < max);
    return latentd__envelope__pack(&a, to);
}

static void bad_reply(int fd, const struct sp_frame *f)
{
    uint8_t body[256], frame[300];
    uint64_t cursor = bad.how == JUMP ? 5 : 1;
    size_t n = bad_answer(body, sizeof body, cursor);

    if (bad.how == SEND_GARBAGE) {
        memset(body, 0xff, sizeof body);
        n = 40;
    }
    size_t head = sp_write_head(frame, 0, f->n_id, n);
    memcpy(frame + head, f->id, f->n_id);
    memcpy(frame + head + f->n_id, body, n);
    for (int i = 0; i <= (bad.how == SEND_TWICE); i++)
        (void)!send(fd, frame, head + f->n_id + n, MSG_NOSIGNAL);
}

static void bad_connection(int fd)
{
    uint8_t in[4096];
    size_t n = 0;
    struct pollfd p = { .fd = fd, .events = POLLIN };

    size_t first = bad.how == GREET_SLOWLY ? 3 : SP_GREETING;
    (void)!send(fd, sp_answerer, first, MSG_NOSIGNAL);
    if (first < SP_GREETING) {
        usleep(400000);
        (void)!send(fd, sp_answerer + first, SP_GREETING - first, MSG_NOSIGNAL);
    }
    if (recv(fd, in, SP_GREETING, MSG_WAITALL) != SP_GREETING)
        return;
    while (!bad.stop) {
        struct sp_frame f;
        if (poll(&p, 1, 20) != 1)
            continue;
        ssize_t got = recv(fd, in + n, sizeof in - n, 0);
        if (got <= 0)
            return;
        n += (size_t)got;
        int64_t used = sp_read(&f, 0, in, n, sizeof in);
        if (used <= 0)
            continue;
        bad.n_questions++;
        if (bad.how != NEVER && !(bad.how == LOSE_FIRST && bad.n_questions == 1))
            bad_reply(fd, &f);
        n -= (size_t)used;
        memmove(in, in + used, n);
    }
}

static void *run_bad(void *arg)
{
    struct pollfd p = { .fd = bad.fd, .events = POLLIN };

    (void)arg;
    while (!bad.stop) {
        if (poll(&p, 1, 20) != 1)
            continue;
        int fd = accept(bad.fd, NULL, NULL);
        bad_connection(fd);
        close(fd);
    }
    return NULL;
}

static void start_bad(enum badness how)
{
    struct sockaddr_un sun = { .sun_family = AF_UNIX };

    bad.how = how;
    bad.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bad.stop = bad.n_questions = 0;
    snprintf(sun.sun_path, sizeof sun.sun_path, "%s", bad_address + 6);
    assert_int_equal(bind(bad.fd, (struct sockaddr *)&sun, sizeof sun), 0);
    assert_int_equal(listen(bad.fd, 8), 0);
    assert_int_equal(pthread_create(&bad.thread, NULL, run_bad, NULL), 0);
}

static void stop_bad(void)
{
    bad.stop = 1;
    pthread_join(bad.thread, NULL);
    close(bad.fd);
    unlink(bad_address + 6);
}

static enum latent_code next_from_bad(enum badness how, struct latent_error *e)
{
    struct latent_stream s;
    struct latent_chunk chunk;

    start_bad(how);
    struct latent *c = connect_to(bad_address, NULL);
    latent_stream_init(&s, "any", 0);
    *e = (struct latent_error){ 0 };
    enum latent_code rc = latent_next(c, &s, &chunk, e);
    if (rc == LATENT_OK)
        assert_int_equal(chunk.tokens[0], 1);
    assert_int_equal(s.cursor, rc == LATENT_OK);
    latent_close(&c);
    stop_bad();
    return rc;
}

static void a_lost_answer_is_asked_for_again(void **state)
{
    struct latent_error e;

    (void)state;
    assert_int_equal(next_from_bad(LOSE_FIRST, &e), LATENT_OK);
    assert_true(bad.n_questions >= 2);
}

static void half_a_greeting_is_waited_for(void **state)
{
    struct latent_error e;
    clock_t begin = clock();

    (void)state;
    assert_int_equal(next_from_bad(GREET_SLOWLY, &e), LATENT_OK);
    assert_true(clock() - begin < CLOCKS_PER_SEC / 5); /* asleep */
}

static void wrong_answers_are_told(void **state)
{
    struct latent_error e;

    (void)state;
    assert_int_equal(next_from_bad(SEND_TWICE, &e), LATENT_OK);
    assert_int_equal(next_from_bad(SEND_GARBAGE, &e), LATENT_PROTOCOL);
    assert_int_equal(next_from_bad(JUMP, &e), LATENT_PROTOCOL);
    assert_non_null(strstr(e.message, "events 0 to 5"));
    assert_int_equal(next_from_bad(OTHER_BODY, &e), LATENT_PROTOCOL);
    assert_int_equal(next_from_bad(SEND_VERSION_2, &e), LATENT_BAD_VERSION);
    assert_non_null(strstr(e.message, "version 2"));
}

static int stop_waiting(void *arg, int connected)
{
    int *n = arg;

    return connected && ++*n >= 3;
}

static void waiting_has_an_end(void **state)
{
    int n = 0;
    struct latent_options o = { .endpoint = bad_address, .connect_ms = 60000, .answer_ms = 300 };
    struct latent *c;
    struct latent_stream s;
    struct latent_chunk chunk;
    struct latent_error e;

    (void)state;
    start_bad(NEVER);
    latent_stream_init(&s, "any", 0);
    assert_int_equal(latent_connect(&c, &o, &e), LATENT_OK);
    assert_int_equal(latent_next(c, &s, &chunk, &e), LATENT_TIMEOUT);
    latent_close(&c);
    o.answer_ms = 0;
    o.waiting = stop_waiting;
    o.arg = &n;
    assert_int_equal(latent_connect(&c, &o, &e), LATENT_OK);
    assert_int_equal(latent_next(c, &s, &chunk, &e), LATENT_STOPPED);
    latent_close(&c);
    stop_bad();
}

static void nobody_there_is_told_soon(void **state)
{
    struct latent_options o = { .endpoint = bad_address, .connect_ms = 200 };
    struct latent *c = NULL;
    struct latent_error e;

    (void)state;
    assert_int_equal(latent_connect(&c, &o, &e), LATENT_UNREACHABLE);
    assert_null(c);
    assert_non_null(strstr(e.message, "no such socket"));
    o.endpoint = "http://x";
    assert_int_equal(latent_connect(&c, &o, &e), LATENT_USAGE);
    o.endpoint = "tcp://127.0.0.1:1";
    assert_int_equal(latent_connect(&c, &o, &e), LATENT_UNREACHABLE);
    latent_close(&c);
}

/* ---- Both ----------------------------------------------------------------- */

static int start(void **state)
{
    struct err e = { 0 };

    if (temp_dir_enter(state) != 0)
        return -1;
    book = fake_book_open(NULL, 0);
    if (gguf_open(&gguf, TEST_DATA "/models/tiny-v3-q4_k_m.gguf", 0, &e) != ERR_OK ||
        tokenizer_open(&tokenizer, gguf, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    start_server();
    return 0;
}

static int stop(void **state)
{
    server_stop(&server);
    fake_book_close(book);
    tokenizer_close(&tokenizer);
    gguf_close(&gguf);
    return temp_dir_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_followed),
        cmocka_unit_test(a_quick_stream_asks_whether_to_go_on),
        cmocka_unit_test(every_field_of_a_request_arrives),
        cmocka_unit_test(refusals_are_values),
        cmocka_unit_test(the_daemon_tells_of_itself),
        cmocka_unit_test(a_stream_survives_restarts),
        cmocka_unit_test(each_thread_has_its_connection),
        cmocka_unit_test(a_lost_answer_is_asked_for_again),
        cmocka_unit_test(half_a_greeting_is_waited_for),
        cmocka_unit_test(wrong_answers_are_told),
        cmocka_unit_test(waiting_has_an_end),
        cmocka_unit_test(nobody_there_is_told_soon),
    };

    return cmocka_run_group_tests_name("proto/client", tests, start, stop);
}
