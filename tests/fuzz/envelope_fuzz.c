/* SPDX-License-Identifier: MIT */
/* tests/fuzz/envelope_fuzz.c - any bytes as a question to the daemon.
 *
 * What the decoder lets in can be written and read again.  Whatever came, the daemon has an answer,
 * and the answer is a message of the protocol; the book behind it is tests/support/fake_book.h.
 * What the book would accept of a request, the journal can read again.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <string.h>

#include "base/log.h"
#include "daemon/book.h"
#include "daemon/server_call.h"
#include "proto/sp.h"
#include "model/gguf.h"
#include "tests/support/fake_book.h"

static void check_round_trip(const Latentd__Envelope *m)
{
    Latentd__Envelope *again = NULL;
    uint8_t *bytes = NULL;
    size_t n = 0;

    if (envelope_encode(&bytes, &n, m, PROTO_QUESTION_MAX, NULL) != ERR_OK ||
        envelope_decode(&again, bytes, n, PROTO_QUESTION_MAX, NULL, NULL) != ERR_OK)
        abort();
    envelope_free(&again);
    free(bytes);
}

static void check_answer(const struct server_call *c)
{
    Latentd__Envelope *a = NULL;

    if (!c->answer || envelope_decode(&a, c->answer, c->n_answer, PROTO_ANSWER_MAX, NULL, NULL))
        abort();
    if (!a->error == (a->body_case == LATENTD__ENVELOPE__BODY__NOT_SET))
        abort();
    envelope_free(&a);
}

static void check_wire(const uint8_t *data, size_t size)
{
    struct sp_frame f;

    for (int tcp = 0; tcp < 2; tcp++) {
        int64_t n = sp_read(&f, tcp, data, size, PROTO_QUESTION_MAX);
        if (n > (int64_t)size || (n > 0 && f.body + f.n_body != data + n))
            abort();
    }
}

static void check_request(const Latentd__SubmitRequest *q, const struct service *service)
{
    struct server_submit s = { 0 };
    struct request_spec again;
    struct str blob = { 0 }, blob_again = { 0 };
    char *memory = NULL;
    const char *field;

    if (server_submit_read(&s, q, service, &field, NULL) == ERR_OK &&
        request_spec_check(&s.spec, tokenizer_size(service->tokenizer), NULL) == ERR_OK) {
        request_spec_put(&blob, &s.spec, 7);
        if (request_spec_get(&again, &memory, blob.data, blob.len, NULL) != ERR_OK)
            abort();
        request_spec_put(&blob_again, &again, 7);
        if (blob.len != blob_again.len || memcmp(blob.data, blob_again.data, blob.len) != 0)
            abort();
    }
    free(memory);
    str_free(&blob);
    str_free(&blob_again);
    server_submit_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct service service = { .token = "secret" };
    static struct gguf *gguf;
    static struct tokenizer *tokenizer;
    Latentd__Envelope *m = NULL;

    if (!gguf) {
        log_set_quiet(1);
        if (gguf_open(&gguf, "tests/data/models/tiny-v3-q4_k_m.gguf", 0, NULL) ||
            tokenizer_open(&tokenizer, gguf, NULL))
            abort();
        service.gguf = gguf;
        service.tokenizer = tokenizer;
    }
    check_wire(data, size);
    if (envelope_decode(&m, data, size, PROTO_QUESTION_MAX, NULL, NULL) == ERR_OK)
        check_round_trip(m);
    if (m && m->body_case == LATENTD__ENVELOPE__BODY_SUBMIT)
        check_request(m->submit, &service);
    envelope_free(&m);
    service.book = fake_book_open(NULL, 0);
    for (int want_token = 0; want_token < 2; want_token++) {
        struct server_call c = { 0 };
        server_call_read(&c, &service, data, size, want_token);
        server_call_try(&c, NULL);
        check_answer(&c);
        server_call_fini(&c);
    }
    fake_book_close(service.book);
    return 0;
}
