/* SPDX-License-Identifier: MIT */
/* tests/proto/envelope_test.c - messages survive the way there and back, and nothing else gets in.
 *
 * Reading order: the schema against limits.def; round trips; hostile bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"
#include "proto/envelope.h"

enum { MAX_DEPTH = 4, MAX_FIELDS = 64 };

/* ---- The schema --------------------------------------------------------- */

static int is_text(const ProtobufCFieldDescriptor *f)
{
    return f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_BYTES;
}

static int check_schema(const ProtobufCMessageDescriptor *m, int depth)
{
    int rows = 0;

    if (depth > MAX_DEPTH || m->n_fields > MAX_FIELDS)
        fail_msg("%s: %d messages deep, %u fields", m->short_name, depth, m->n_fields);
    for (unsigned i = 0; i < m->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->fields[i];
        const struct field_limit *limit = field_limit_find(m, f);
        int repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
        if ((is_text(f) || repeated) != (limit != NULL))
            fail_msg("%s.%s: a limit is missing, or needless", m->short_name, f->name);
        if (limit && (is_text(f) != (limit->bytes > 0) || repeated != (limit->count > 1)))
            fail_msg("%s.%s: the limit does not fit its type", m->short_name, f->name);
        rows += limit != NULL;
        if (f->type == PROTOBUF_C_TYPE_MESSAGE)
            rows += check_schema(f->descriptor, depth + 1);
    }
    return rows;
}

/* The schema has no message twice, so its rows are counted once each. */
static void every_field_has_its_limit(void **state)
{
    (void)state;
    assert_int_equal(check_schema(&latentd__envelope__descriptor, 1), n_field_limits);
}

static void put_varint(struct str *s, uint64_t v)
{
    for (; v > 0x7f; v >>= 7)
        str_append(s, (char[]){ (char)(v | 0x80) }, 1);
    str_append(s, (char[]){ (char)v }, 1);
}

/* One value of a field: `bytes` letters, or an empty message, or zero. */
static void put_field(struct str *s, const ProtobufCFieldDescriptor *f, uint64_t bytes)
{
    int varint = !is_text(f) && f->type != PROTOBUF_C_TYPE_MESSAGE;

    put_varint(s, (uint64_t)f->id << 3 | (varint ? 0 : 2));
    put_varint(s, varint ? 0 : bytes);
    for (uint64_t i = 0; !varint && i < bytes; i++)
        str_append(s, "x", 1);
}

static enum err_code scan_repeated(const struct field_limit *limit, uint64_t bytes, uint64_t count)
{
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(limit->message, limit->field);
    struct str s = { 0 };

    for (uint64_t i = 0; i < count; i++)
        put_field(&s, f, bytes);
    assert_false(s.failed);
    enum err_code rc = scan_message(limit->message, (uint8_t *)s.data, s.len, NULL, NULL);
    str_free(&s);
    return rc;
}

static void every_limit_holds(void **state)
{
    (void)state;
    for (int i = 0; i < n_field_limits; i++) {
        const struct field_limit *l = &field_limits[i];
        int ok = scan_repeated(l, l->bytes, l->count) == ERR_OK &&
                 scan_repeated(l, 0, (uint64_t)l->count + 1) == ERR_FORMAT;
        if (l->bytes)
            ok = ok && scan_repeated(l, (uint64_t)l->bytes + 1, 1) == ERR_FORMAT;
        if (!ok)
            fail_msg("%s.%s: not held at %u bytes, %u entries", l->message->short_name, l->field,
                     l->bytes, l->count);
    }
}

/* ---- Round trips -------------------------------------------------------- */

/* A submit with everything in it. */
struct example {
    Latentd__Envelope m;
    Latentd__SubmitRequest submit;
    Latentd__Sampling sampling;
    Latentd__LogitBias bias, *biases[1];
    Latentd__Chat chat;
    Latentd__ChatMessage message, *messages[1];
    char *stops[2];
};

static void fill_example(struct example *x)
{
    latentd__envelope__init(&x->m);
    latentd__submit_request__init(&x->submit);
    latentd__sampling__init(&x->sampling);
    latentd__logit_bias__init(&x->bias);
    latentd__chat__init(&x->chat);
    latentd__chat_message__init(&x->message);
    x->m.has_version = x->m.has_method = 1;
    x->m.version = PROTO_VERSION;
    x->m.method = LATENTD__METHOD__METHOD_SUBMIT;
    x->m.body_case = LATENTD__ENVELOPE__BODY_SUBMIT;
    x->m.submit = &x->submit;
    x->submit.id = (char *)"r-1";
    x->submit.prompt_case = LATENTD__SUBMIT_REQUEST__PROMPT_CHAT;
    x->submit.chat = &x->chat;
    x->message.has_role = x->message.has_content = 1;
    x->message.role = LATENTD__ROLE__ROLE_USER;
    x->message.content = (ProtobufCBinaryData){ 3, (uint8_t *)"a\0b" };
    x->messages[0] = &x->message;
    x->chat.messages = x->messages;
    x->chat.n_messages = 1;
    x->stops[0] = (char *)"\n\n";
    x->stops[1] = (char *)"щ";
    x->submit.stop = x->stops;
    x->submit.n_stop = 2;
    x->submit.has_priority = 1;
    x->submit.priority = -5;
    x->bias.has_id = x->bias.has_bias = 1;
    x->bias.id = 17;
    x->bias.bias = -0.5f;
    x->biases[0] = &x->bias;
    x->sampling.bias = x->biases;
    x->sampling.n_bias = 1;
    x->submit.sampling = &x->sampling;
}

static void encode(const Latentd__Envelope *m, uint8_t **bytes, size_t *n)
{
    struct err e = { 0 };

    if (envelope_encode(bytes, n, m, PROTO_QUESTION_MAX, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

static void a_message_comes_back(void **state)
{
    struct example x;
    uint8_t *bytes;
    size_t n;
    struct err e = { 0 };
    Latentd__Envelope *m = NULL;

    (void)state;
    fill_example(&x);
    encode(&x.m, &bytes, &n);
    if (envelope_decode(&m, bytes, n, n, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(m->body_case, LATENTD__ENVELOPE__BODY_SUBMIT);
    assert_string_equal(m->submit->stop[1], "щ");
    assert_int_equal(m->submit->chat->messages[0]->content.len, 3);
    assert_memory_equal(m->submit->chat->messages[0]->content.data, "a\0b", 3);
    assert_int_equal(m->submit->priority, -5);
    assert_int_equal(m->submit->sampling->bias[0]->id, 17);
    assert_false(m->submit->has_max_tokens);
    envelope_free(&m);
    assert_null(m);
    assert_int_equal(envelope_decode(&m, bytes, n, n - 1, NULL, &e), ERR_FORMAT);
    free(bytes);
}

static void nothing_beyond_a_limit_is_sent(void **state)
{
    struct example x;
    uint8_t *bytes;
    size_t n;
    struct err e = { 0 };

    (void)state;
    fill_example(&x);
    x.stops[1] = (char *)"\xff";
    assert_int_equal(envelope_encode(&bytes, &n, &x.m, PROTO_QUESTION_MAX, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "submit.stop"));
    fill_example(&x);
    assert_int_equal(envelope_encode(&bytes, &n, &x.m, 8, &e), ERR_FULL);
}

/* ---- Hostile bytes ------------------------------------------------------ */

struct hostile {
    const char *name, *bytes;
    size_t n;
    enum err_code code;
    const char *says;
};
#define H(name, bytes, code, says)                \
    {                                             \
        name, bytes, sizeof bytes - 1, code, says \
    }
#define V "\x08\x01" /* version 1 */

static const struct hostile hostile[] = {
    H("nothing", "", ERR_FORMAT, "version is missing"),
    H("text", "GET / HTTP/1.1\r\n\r\n", ERR_FORMAT, "not an Envelope"),
    H("version 2", "\x08\x02\x10\x01", ERR_UNSUPPORTED, "version 2"),
    H("version 2, a body of another type", "\x08\x02\x80\x01\x05", ERR_UNSUPPORTED, "version 2"),
    H("version as text", "\x0a\x01\x31", ERR_FORMAT, "version is missing"),
    H("a varint that never ends", V "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", ERR_FORMAT,
      "not an Envelope"),
    H("a length beyond the end", V "\x82\x01\xff\xff\xff\xff\x0f", ERR_FORMAT, "not an Envelope"),
    H("a length of 2^63", V "\x82\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f", ERR_FORMAT,
      "not an Envelope"),
    H("a group", V "\x83\x01\x84\x01", ERR_FORMAT, "not an Envelope"),
    H("field number 0", V "\x02\x00", ERR_FORMAT, "not an Envelope"),
    H("a broken body", V "\x82\x01\x02\x0a\x05", ERR_FORMAT, "submit: broken"),
    H("method twice", V "\x10\x01\x10\x02", ERR_FORMAT, "method is there twice"),
    H("two bodies", V "\x82\x01\x00\x8a\x01\x00", ERR_FORMAT, "submit and next"),
    H("one body twice", V "\x82\x01\x00\x82\x01\x00", ERR_FORMAT, "submit is there twice"),
    H("two prompts", V "\x82\x01\x04\x1a\x00\x22\x00", ERR_FORMAT, "text and tokens"),
    H("a body that is a number", V "\x80\x01\x00", ERR_FORMAT, "not of its type"),
    H("a NUL in a stop string",
      V "\x82\x01\x05\x4a\x03"
        "a\0b",
      ERR_FORMAT, "submit.stop: stop holds a NUL"),
    H("an id that is no UTF-8", V "\x82\x01\x04\x0a\x02\xc3\x28", ERR_FORMAT, "id is not UTF-8"),
    H("packed ids cut off", V "\x82\x01\x05\x22\x03\x0a\x01\x80", ERR_FORMAT, "not of its type"),
};

static void hostile_bytes_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        const struct hostile *h = &hostile[i];
        Latentd__Envelope *m = NULL;
        struct err e = { 0 };
        enum err_code rc = envelope_decode(&m, h->bytes, h->n, PROTO_QUESTION_MAX, NULL, &e);
        if (rc != h->code || !strstr(e.msg, h->says))
            fail_msg("%s: code %d, \"%s\"", h->name, rc, e.msg);
    }
}

/* Unknown fields pass, also deeply nested ones, but not without end. */
static void unknown_fields_are_ignored(void **state)
{
    struct str inner = { 0 }, s = { 0 };
    Latentd__Envelope *m = NULL;
    struct err e = { 0 };

    (void)state;
    for (int i = 0; i < 10000; i++) { /* field 500, a message of field 500, and so on */
        struct str outer = { 0 };
        put_varint(&outer, 500 << 3 | 2);
        put_varint(&outer, inner.len < 60000 ? inner.len : 0);
        str_append(&outer, inner.data ? inner.data : "", inner.len < 60000 ? inner.len : 0);
        str_free(&inner);
        inner = outer;
    }
    str_puts(&s, V);
    str_append(&s, inner.data, inner.len);
    if (envelope_decode(&m, s.data, s.len, PROTO_QUESTION_MAX, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    envelope_free(&m);
    for (int i = 0; i < PROTO_UNKNOWN_MAX; i++)
        str_append(&s, "\xa0\x1f\x00", 3);
    assert_int_equal(envelope_decode(&m, s.data, s.len, PROTO_QUESTION_MAX, NULL, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "unknown fields"));
    str_free(&s);
    str_free(&inner);
}

/* A valid message with bytes changed: it is read or refused, and what is read can be sent. */
static void changed_bytes_do_no_harm(void **state)
{
    struct example x;
    uint8_t *bytes, copy[512], *again;
    size_t n, n_again;
    uint32_t random = 1;
    int n_read = 0, n_refused = 0;

    (void)state;
    fill_example(&x);
    encode(&x.m, &bytes, &n);
    assert_true(n < sizeof copy);
    for (int i = 0; i < 20000; i++) {
        memcpy(copy, bytes, n);
        for (int k = 0; k <= i % 4; k++) {
            random = random * 1664525 + 1013904223;
            copy[(random >> 8) % n] = (uint8_t)(random >> 24);
        }
        Latentd__Envelope *m = NULL;
        if (envelope_decode(&m, copy, n - (size_t)(i % 3), PROTO_QUESTION_MAX, NULL, NULL)) {
            n_refused++;
            continue;
        }
        n_read++;
        if (envelope_encode(&again, &n_again, m, PROTO_QUESTION_MAX, NULL) == ERR_OK)
            free(again);
        envelope_free(&m);
    }
    free(bytes);
    assert_true(n_read > 100 && n_refused > 1000);
}

static void methods_have_names(void **state)
{
    (void)state;
    assert_string_equal(envelope_method_name(LATENTD__METHOD__METHOD_DRAIN), "drain");
    assert_string_equal(envelope_method_name((Latentd__Method)12), "?");
    assert_string_equal(envelope_method_name((Latentd__Method)-1), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_has_its_limit),
        cmocka_unit_test(every_limit_holds),
        cmocka_unit_test(a_message_comes_back),
        cmocka_unit_test(nothing_beyond_a_limit_is_sent),
        cmocka_unit_test(hostile_bytes_are_named),
        cmocka_unit_test(unknown_fields_are_ignored),
        cmocka_unit_test(changed_bytes_do_no_harm),
        cmocka_unit_test(methods_have_names),
    };

    return cmocka_run_group_tests_name("proto/envelope", tests, NULL, NULL);
}
