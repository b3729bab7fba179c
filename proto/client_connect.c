/* SPDX-License-Identifier: MIT */
/* proto/client_connect.c - liblatent's connections, and a question with its answer.
 *
 * Reading order: errors; opening; asking.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "proto/client_parts.h"

enum { STEP_MS = 100 };

/* ---- Errors ------------------------------------------------------------- */

static enum latent_code fail_with(struct latent_error *e, enum latent_code code, const char *fmt,
                                  va_list args)
{
    *e = (struct latent_error){ .code = code };
    vsnprintf(e->message, sizeof e->message, fmt, args);
    e->message[utf8_valid_prefix(e->message, strlen(e->message))] = '\0';
    return code;
}

enum latent_code client_fail(struct latent_error *e, enum latent_code code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fail_with(e, code, fmt, args);
    va_end(args);
    return code;
}

const char *latent_code_name(enum latent_code code)
{
    static const char *const theirs[] = {
        "ok",
        "bad_message",
        "bad_version",
        "unknown_method",
        "unauthorized",
        "invalid_parameter",
        "too_large",
        "prompt_too_long",
        "unknown_request",
        "id_conflict",
        "queue_full",
        "journal_full",
        "starting",
        "draining",
        "unsupported",
        "internal",
    };
    static const char *const ours[] = { "usage",    "unreachable", "timeout",
                                        "protocol", "no_memory",   "stopped" };

    if ((unsigned)code < sizeof theirs / sizeof *theirs)
        return theirs[code];
    if ((unsigned)code - LATENT_USAGE < sizeof ours / sizeof *ours)
        return ours[code - LATENT_USAGE];
    return "unknown";
}

/* ---- Opening ------------------------------------------------------------ */

int client_is_over(const struct latent *c)
{
    return c->waiting && c->waiting(c->arg, client_wire_connected(c->wire));
}

static enum latent_code wait_connected(const struct latent *c, struct latent_error *e)
{
    int64_t begin = client_now_ms(), left = c->connect_ms;

    while (!client_wire_connect(c->wire, left < STEP_MS ? (int)left : STEP_MS)) {
        left = begin + c->connect_ms - client_now_ms();
        if (left <= 0)
            return client_fail(e, LATENT_UNREACHABLE, "%s: %s", c->endpoint,
                               client_wire_why(c->wire));
        if (client_is_over(c))
            return client_fail(e, LATENT_STOPPED, "%s: no longer waited for", c->endpoint);
    }
    return LATENT_OK;
}

enum latent_code latent_connect(struct latent **out, const struct latent_options *options,
                                struct latent_error *e)
{
    static const struct latent_options defaults;
    const struct latent_options *o = options ? options : &defaults;
    struct latent *c = calloc(1, sizeof *c);
    enum latent_code rc;

    if (!c)
        return client_fail(e, LATENT_NO_MEMORY, "connection: no memory");
    c->endpoint = strdup(o->endpoint ? o->endpoint : LATENT_DEFAULT_ENDPOINT);
    c->token = o->token ? strdup(o->token) : NULL;
    c->agent = o->agent ? strdup(o->agent) : NULL;
    c->connect_ms = o->connect_ms ? o->connect_ms : 2000;
    c->answer_ms = o->answer_ms;
    c->resend_ms = o->resend_ms ? o->resend_ms : 30000;
    c->waiting = o->waiting;
    c->arg = o->arg;
    if (!c->endpoint || (o->token && !c->token) || (o->agent && !c->agent))
        rc = client_fail(e, LATENT_NO_MEMORY, "connection: no memory");
    else
        rc = client_wire_open(&c->wire, c->endpoint, e);
    if (rc == LATENT_OK)
        rc = wait_connected(c, e);
    if (rc != LATENT_OK)
        latent_close(&c);
    else
        *out = c;
    return rc;
}

void latent_close(struct latent **connection)
{
    struct latent *c = *connection;

    *connection = NULL;
    if (!c)
        return;
    client_wire_close(&c->wire);
    envelope_free(&c->answer);
    free(c->infos);
    free(c->ranks);
    free(c->endpoint);
    free(c->token);
    free(c->agent);
    free(c);
}

/* ---- Asking ------------------------------------------------------------- */

void client_question(const struct latent *c, Latentd__Envelope *q, Latentd__Method method)
{
    latentd__envelope__init(q);
    q->has_version = q->has_method = 1;
    q->version = PROTO_VERSION;
    q->method = method;
    q->token = c->token;
    q->agent = c->agent;
}

static enum latent_code send_question(struct latent *c, const Latentd__Envelope *q,
                                      struct latent_error *e)
{
    struct err inner = { 0 };
    uint8_t *bytes;
    size_t n;
    enum err_code rc = envelope_encode(&bytes, &n, q, PROTO_QUESTION_MAX, &inner);

    if (rc != ERR_OK)
        return client_fail(e, rc == ERR_NOMEM ? LATENT_NO_MEMORY : LATENT_USAGE, "%s", inner.msg);
    int failed = client_wire_ask(c->wire, bytes, n);
    free(bytes);
    return failed ? client_fail(e, LATENT_NO_MEMORY, "question: no memory") : LATENT_OK;
}

static enum latent_code receive(const struct latent *c, const uint8_t **bytes, size_t *n,
                                struct latent_error *e)
{
    int64_t begin = client_now_ms(), left = STEP_MS;
    int got;

    while ((got = client_wire_await(c->wire, left < STEP_MS ? (int)left : STEP_MS, c->resend_ms,
                                    bytes, n)) == 0) {
        if (client_is_over(c))
            return client_fail(e, LATENT_STOPPED, "%s: no longer waited for", c->endpoint);
        if (c->answer_ms)
            left = begin + c->answer_ms - client_now_ms();
        if (left <= 0)
            return client_fail(
                e, LATENT_TIMEOUT, "%s: no answer within %u ms; %s", c->endpoint, c->answer_ms,
                client_wire_connected(c->wire) ? "the daemon is there" : "the daemon is gone");
    }
    return got > 0 ? LATENT_OK
                   : client_fail(e, LATENT_PROTOCOL, "%s: an answer that is none, or too long",
                                 c->endpoint);
}

/* The numbers of latent.h are those of the protocol; one of a later daemon is not known here. */
static enum latent_code refused(const Latentd__Error *r, struct latent_error *e)
{
    int code = (int)r->code;

    client_fail(e, code > 0 && code <= LATENT_INTERNAL ? (enum latent_code)code : LATENT_INTERNAL,
                "%s", r->message && *r->message ? r->message : "refused without a reason");
    e->retry_ms = r->retry_ms;
    snprintf(e->field, sizeof e->field, "%s", client_text(r->field));
    return e->code;
}

enum latent_code client_ask(struct latent *c, const Latentd__Envelope *q,
                            Latentd__Envelope__BodyCase want, struct latent_error *e)
{
    struct err inner = { 0 };
    const uint8_t *bytes;
    size_t n;
    enum latent_code rc = send_question(c, q, e);

    if (rc != LATENT_OK)
        return rc;
    rc = receive(c, &bytes, &n, e);
    if (rc != LATENT_OK) {
        client_wire_drop(c->wire);
        return rc;
    }
    envelope_free(&c->answer);
    enum err_code read = envelope_decode(&c->answer, bytes, n, CLIENT_ANSWER_MAX, NULL, &inner);
    if (read == ERR_UNSUPPORTED)
        return client_fail(e, LATENT_BAD_VERSION, "%s: %s", c->endpoint, inner.msg);
    if (read != ERR_OK)
        return client_fail(e, LATENT_PROTOCOL, "%s: an answer that is none: %s", c->endpoint,
                           inner.msg);
    if (c->answer->error)
        return refused(c->answer->error, e);
    if (c->answer->body_case != want)
        return client_fail(e, LATENT_PROTOCOL, "%s: the answer of another question", c->endpoint);
    return LATENT_OK;
}
