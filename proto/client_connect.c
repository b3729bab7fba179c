/* SPDX-License-Identifier: MIT */
/* proto/client_connect.c - liblatent's connection: nanomsg, one question at a time.
 *
 * nanomsg's REQ socket connects again by itself, sends the open question again at once when it
 * has, and after resend_ms without an answer; it drops answers to older questions.  So a question
 * is sent once here and then only waited for.  A socket whose question was given up is not used
 * again: nanomsg 1.1.5 often aborts ("Assertion failed: nn_getl") when the next one is answered.
 *
 * Reading order: errors; opening; asking.
 */
#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/reqrep.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"
#include "proto/client_parts.h"

enum { STEP_MS = 100, CONNECT_STEP_MS = 5, ANSWER_MAX = 1 << 20 };

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

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- Opening ------------------------------------------------------------ */

static int is_connected(const struct latent *c)
{
    return nn_get_statistic(c->socket, NN_STAT_CURRENT_CONNECTIONS) > 0;
}

/* nanomsg tries for ever and says nothing; the system knows why. */
static enum latent_code unreachable(const struct latent *c, struct latent_error *e)
{
    struct sockaddr_un sun = { .sun_family = AF_UNIX };
    const char *path = c->endpoint + strlen("ipc://"), *what;

    if (strncmp(c->endpoint, "ipc://", 6) != 0 || strlen(path) >= sizeof sun.sun_path)
        return client_fail(e, LATENT_UNREACHABLE,
                           "%s: nobody answers there; is latentd running, with this --listen",
                           c->endpoint);
    memcpy(sun.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int why = fd < 0 || connect(fd, (struct sockaddr *)&sun, sizeof sun) ? errno : 0;
    if (fd >= 0)
        close(fd);
    what = why == ENOENT         ? "there is no such socket; start latentd, or give its --listen"
           : why == ECONNREFUSED ? "nobody listens there any more; start latentd"
           : why == EACCES       ? "permission denied; become a member of the socket's group"
           : why == 0            ? "whoever listens there does not greet like latentd"
                                 : strerror(why);
    return client_fail(e, LATENT_UNREACHABLE, "%s: %s", c->endpoint, what);
}

static enum latent_code wait_connected(const struct latent *c, struct latent_error *e)
{
    const struct timespec step = { .tv_nsec = CONNECT_STEP_MS * 1000000L };
    int64_t begin = now_ms(), waited = 0;

    for (int i = 0; !is_connected(c); i++) {
        waited = now_ms() - begin;
        if (waited >= c->connect_ms)
            return unreachable(c, e);
        if (c->waiting && i % (STEP_MS / CONNECT_STEP_MS) == 0 && i && c->waiting(c->arg, 0))
            return client_fail(e, LATENT_STOPPED, "%s: no longer waited for", c->endpoint);
        nanosleep(&step, NULL);
    }
    return LATENT_OK;
}

static int set_int(int socket, int level, int option, int value)
{
    return nn_setsockopt(socket, level, option, &value, sizeof value);
}

static enum latent_code open_socket(struct latent *c, struct latent_error *e)
{
    if (strncmp(c->endpoint, "ipc://", 6) != 0 && strncmp(c->endpoint, "tcp://", 6) != 0)
        return client_fail(e, LATENT_USAGE,
                           "%.80s: no endpoint; give ipc://PATH or tcp://HOST:PORT", c->endpoint);
    c->socket = nn_socket(AF_SP, NN_REQ);
    if (c->socket < 0)
        return client_fail(e, LATENT_INTERNAL, "no socket: %s", nn_strerror(nn_errno()));
    if (set_int(c->socket, NN_SOL_SOCKET, NN_RCVMAXSIZE, ANSWER_MAX) ||
        set_int(c->socket, NN_SOL_SOCKET, NN_RCVTIMEO, STEP_MS) ||
        set_int(c->socket, NN_SOL_SOCKET, NN_LINGER, 0) ||
        set_int(c->socket, NN_REQ, NN_REQ_RESEND_IVL, (int)c->resend_ms))
        return client_fail(e, LATENT_INTERNAL, "socket options: %s", nn_strerror(nn_errno()));
    if (nn_connect(c->socket, c->endpoint) < 0)
        return client_fail(e, LATENT_USAGE, "%.80s: no endpoint: %s", c->endpoint,
                           nn_strerror(nn_errno()));
    return wait_connected(c, e);
}

static void drop_socket(struct latent *c)
{
    if (c->socket >= 0)
        nn_close(c->socket);
    c->socket = -1;
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
    c->socket = -1;
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
        rc = open_socket(c, e);
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
    drop_socket(c);
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
    int sent = nn_send(c->socket, bytes, n, 0);
    free(bytes);
    if (sent < 0)
        return client_fail(e, LATENT_INTERNAL, "%s: cannot send: %s", c->endpoint,
                           nn_strerror(nn_errno()));
    return LATENT_OK;
}

/* The bytes of the answer, nanomsg's memory: nn_freemsg. */
static enum latent_code receive(struct latent *c, void **bytes, size_t *n, struct latent_error *e)
{
    int64_t begin = now_ms();

    for (;;) {
        int got = nn_recv(c->socket, bytes, NN_MSG, 0);
        if (got >= 0) {
            *n = (size_t)got;
            return LATENT_OK;
        }
        if (nn_errno() != ETIMEDOUT && nn_errno() != EAGAIN && nn_errno() != EINTR)
            return client_fail(e, LATENT_INTERNAL, "%s: cannot receive: %s", c->endpoint,
                               nn_strerror(nn_errno()));
        if (c->waiting && c->waiting(c->arg, is_connected(c)))
            return client_fail(e, LATENT_STOPPED, "%s: no longer waited for", c->endpoint);
        if (c->answer_ms && now_ms() - begin >= c->answer_ms)
            return client_fail(e, LATENT_TIMEOUT, "%s: no answer within %u ms; %s", c->endpoint,
                               c->answer_ms,
                               is_connected(c) ? "the daemon is there" : "the daemon is gone");
    }
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
    void *bytes = NULL;
    size_t n = 0;
    enum latent_code rc = c->socket < 0 ? open_socket(c, e) : LATENT_OK;

    if (rc == LATENT_OK)
        rc = send_question(c, q, e);
    if (rc == LATENT_OK)
        rc = receive(c, &bytes, &n, e);
    if (rc != LATENT_OK && rc != LATENT_USAGE)
        drop_socket(c);
    if (rc != LATENT_OK)
        return rc;
    envelope_free(&c->answer);
    enum err_code read = envelope_decode(&c->answer, bytes, n, ANSWER_MAX, NULL, &inner);
    nn_freemsg(bytes);
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
