/* SPDX-License-Identifier: MIT */
/* daemon/server_call.h - from the bytes of a question to the bytes of its answer.
 *
 * Knows nothing of sockets: server.c and the fuzzer call it.
 */
#ifndef DAEMON_SERVER_CALL_H
#define DAEMON_SERVER_CALL_H

#include "daemon/server.h"
#include "model/tokenizer.h"
#include "proto/envelope.h"

/* What a Submit says, as the book wants it. */
struct server_submit {
    struct request_spec spec;
    struct token_list prompt;
    struct request_bytes stops[REQUEST_STOPS_MAX];
    struct logit_bias *bias; /* [n_bias] */
    int32_t end_id;          /* of a chat format */
    int ready;
};

struct server_call {
    const struct service *service;
    Latentd__Envelope *question; /* NULL: it could not be read */
    struct server_submit submit;
    int64_t wait_ms;     /* how long it may wait; -1: until woken */
    int trusted;         /* it has proved that it may ask */
    char agent[64];      /* the program that asks, as it may stand in a log */
    char complaint[160]; /* what the operator should know about the client, or "" */
    uint8_t *answer;     /* [n_answer], owned; set once it is answered */
    size_t n_answer;
};

/* Reads a question.  want_token: it must prove that it may ask.  What cannot be read is answered
 * at once.  End with server_call_fini; starts as zeros. */
void server_call_read(struct server_call *c, const struct service *s, const void *bytes, size_t n,
                      int want_token);

/* Answers it if that is possible now; returns 0 if not: then w is called when it is worth trying
 * again.  w NULL: answers in any case, a Next without an event if need be. */
int server_call_try(struct server_call *c, struct requests_waiter *w);

void server_call_fini(struct server_call *c);

/* The answer "no", instead of any other.  field: may be NULL.  retry_ms: 0: do not. */
void server_call_refuse(struct server_call *c, Latentd__ErrorCode code, const char *field,
                        uint32_t retry_ms, const char *message);

/* ---- server_submit.c ---------------------------------------------------- */

/* Fills s from a Submit.  Free with server_submit_free, also after a failure.  field: set to the
 * field that is wrong, where it is one.
 * Errors: ERR_USAGE, a value out of its range; ERR_FULL, the model is not known yet;
 * ERR_UNSUPPORTED, the model has no such chat; ERR_NOMEM. */
enum err_code server_submit_read(struct server_submit *s, const Latentd__SubmitRequest *q,
                                 const struct service *service, const char **field, struct err *e);
void server_submit_free(struct server_submit *s);

#endif
