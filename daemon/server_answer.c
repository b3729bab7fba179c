/* SPDX-License-Identifier: MIT */
/* daemon/server_answer.c - see server_answer.h. */
#include "daemon/server_answer.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/utf8.h"

void answer_begin(const struct server_call *c, Latentd__Envelope *a)
{
    latentd__envelope__init(a);
    a->has_version = a->has_method = 1;
    a->version = PROTO_VERSION;
    a->method = c->question ? c->question->method : LATENTD__METHOD__METHOD_NONE;
    if (envelope_method_name(a->method)[0] == '?')
        a->method = LATENTD__METHOD__METHOD_NONE;
}

void server_call_refuse(struct server_call *c, Latentd__ErrorCode code, const char *field,
                        uint32_t retry_ms, const char *message)
{
    Latentd__Envelope a;
    Latentd__Error error = LATENTD__ERROR__INIT;
    struct err e = { 0 };
    char text[sizeof e.msg], name[REQUEST_ID_MAX];

    /* A name in a message may have been cut in the middle of a character. */
    snprintf(text, sizeof text, "%s", message);
    text[utf8_valid_prefix(text, strlen(text))] = '\0';
    snprintf(name, sizeof name, "%s", field ? field : "");
    answer_begin(c, &a);
    a.error = &error;
    error.has_code = 1;
    error.code = code;
    error.message = text;
    error.field = field ? name : NULL;
    error.has_retry_ms = retry_ms > 0;
    error.retry_ms = retry_ms;
    if (envelope_encode(&c->answer, &c->n_answer, &a, PROTO_ANSWER_MAX, &e) != ERR_OK)
        log_error("an answer cannot be written: %s", e.msg);
}

int answer_send(struct server_call *c, const Latentd__Envelope *a)
{
    struct err e = { 0 };
    enum err_code rc = envelope_encode(&c->answer, &c->n_answer, a, PROTO_ANSWER_MAX, &e);

    if (rc == ERR_FULL)
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_TOO_LARGE, NULL, 0, e.msg);
    else if (rc != ERR_OK)
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_INTERNAL, NULL, 0, e.msg);
    return 1;
}

/* The book begins its sentence with the field that is wrong. */
static const char *field_of(const char *message, char *name, size_t size)
{
    size_t n = strcspn(message, ": ");

    if (n >= size)
        return NULL;
    memcpy(name, message, n);
    name[n] = '\0';
    return strncmp(name, "sampling.", 9) == 0 || protobuf_c_message_descriptor_get_field_by_name(
                                                     &latentd__submit_request__descriptor, name)
               ? name
               : NULL;
}

int answer_no(struct server_call *c, enum answer from, const struct err *e)
{
    static const struct {
        Latentd__ErrorCode code;
        uint32_t retry_ms;
    } rows[] = {
        [ANSWER_INVALID] = {LATENTD__ERROR_CODE__ERROR_INVALID_PARAMETER, 0              },
        [ANSWER_CONFLICT] = { LATENTD__ERROR_CODE__ERROR_ID_CONFLICT,      0              },
        [ANSWER_TOO_LONG] = { LATENTD__ERROR_CODE__ERROR_PROMPT_TOO_LONG,  0              },
        [ANSWER_QUEUE_FULL] = { LATENTD__ERROR_CODE__ERROR_QUEUE_FULL,       ANSWER_RETRY_MS},
        [ANSWER_JOURNAL_FULL] = { LATENTD__ERROR_CODE__ERROR_JOURNAL_FULL,     ANSWER_RETRY_MS},
        [ANSWER_DRAINING] = { LATENTD__ERROR_CODE__ERROR_DRAINING,         0              },
        [ANSWER_UNKNOWN] = { LATENTD__ERROR_CODE__ERROR_UNKNOWN_REQUEST,  0              },
        [ANSWER_NO_MEMORY] = { LATENTD__ERROR_CODE__ERROR_INTERNAL,         ANSWER_RETRY_MS},
    };
    Latentd__ErrorCode code = LATENTD__ERROR_CODE__ERROR_INTERNAL;
    uint32_t retry_ms = 0;
    char name[32];

    if ((size_t)from < sizeof rows / sizeof *rows && rows[from].code) {
        code = rows[from].code;
        retry_ms = rows[from].retry_ms;
    }
    server_call_refuse(c, code, from == ANSWER_INVALID ? field_of(e->msg, name, sizeof name) : NULL,
                       retry_ms, *e->msg ? e->msg : answer_name(from));
    return 1;
}

int answer_err(struct server_call *c, enum err_code rc, const char *field, const struct err *e)
{
    Latentd__ErrorCode code = rc == ERR_USAGE         ? LATENTD__ERROR_CODE__ERROR_INVALID_PARAMETER
                              : rc == ERR_FULL        ? LATENTD__ERROR_CODE__ERROR_STARTING
                              : rc == ERR_UNSUPPORTED ? LATENTD__ERROR_CODE__ERROR_UNSUPPORTED
                                                      : LATENTD__ERROR_CODE__ERROR_INTERNAL;

    server_call_refuse(c, code, rc == ERR_USAGE ? field : NULL,
                       rc == ERR_FULL ? ANSWER_RETRY_MS : 0, *e->msg ? e->msg : err_text(rc));
    return 1;
}

/* Texts of the daemon are of bounded arrays: what was cut in a character loses its rest. */
char *answer_text(char *text)
{
    text[utf8_valid_prefix(text, strlen(text))] = '\0';
    return *text ? text : NULL;
}
