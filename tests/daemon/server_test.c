/* SPDX-License-Identifier: MIT */
/* tests/daemon/server_test.c - the listening side, asked properly, and what it refuses. */
#include "tests/daemon/server_support.h"

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
    assert_true(clock_seconds() - begin > 0.14);
    assert_int_equal(a->next_reply->cursor, 0);
    assert_int_equal(a->next_reply->n_tokens, 0);
    envelope_free(&a);
    send_next(fd, 77, "w1", 0, 20000);
    assert_int_equal(wait_for_waiters(1), 1);
    fake_book_produce(book, "w1", 1);
    a = sp_answer(fd, 0, &got);
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
    Latentd__Envelope *a = sp_answer(fd, 0, &got);
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
    struct str bos = { 0 };
    tokenizer_decode(tokenizer, tokenizer_bos(tokenizer), 1, &bos);
    q.has_parse_special = q.parse_special = q.add_bos = 1;
    q.text = (ProtobufCBinaryData){ bos.len, (uint8_t *)bos.data };
    m = question(LATENTD__METHOD__METHOD_TOKENIZE);
    m.body_case = LATENTD__ENVELOPE__BODY_TOKENIZE;
    m.tokenize = &q;
    a = ask(fd, 0, &m);
    assert_int_equal(a->tokenize_reply->n_ids, 1);
    assert_int_equal(a->tokenize_reply->ids[0], tokenizer_bos(tokenizer));
    envelope_free(&a);
    str_free(&bos);
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
    assert_int_equal(a->status_reply->n_rank_list, 2);
    assert_string_equal(a->status_reply->rank_list[1]->host, "host1");
    assert_int_equal(a->status_reply->rank_list[1]->load_total_bytes, 1001);
    assert_false(a->status_reply->rank_list[1]->has_recent_compute_us);
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
    int before = fake_book_refused(book);

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
    assert_int_equal(fake_book_refused(book), before + 4);
    a = next(fd, NULL, 0, 100);
    assert_int_equal(a->error->code, LATENTD__ERROR_CODE__ERROR_INVALID_PARAMETER);
    assert_string_equal(a->error->field, "id");
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

static char field_for[64]; /* of the last code_for */

static Latentd__ErrorCode code_for(const char *bytes, size_t n)
{
    int fd = sp_connect(address);
    uint32_t id;

    assert_int_equal(sp_send(fd, 0, 3, bytes, n), 0);
    Latentd__Envelope *a = sp_answer(fd, 0, &id);
    assert_non_null(a);
    assert_non_null(a->error);
    Latentd__ErrorCode code = a->error->code;
    snprintf(field_for, sizeof field_for, "%s", a->error->field ? a->error->field : "");
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
    assert_string_equal(field_for, "stop");
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
    };

    return cmocka_run_group_tests_name("daemon/server", tests, start_server, stop_server);
}
