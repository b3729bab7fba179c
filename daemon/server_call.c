/* SPDX-License-Identifier: MIT */
/* daemon/server_call.c - see server_call.h.  The methods are in server_requests.c and
 * server_about.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#include "daemon/server_answer.h"

/* ---- The methods -------------------------------------------------------- */

static const struct method {
    Latentd__Envelope__BodyCase body;
    server_method *run;
} methods[] = {
    [LATENTD__METHOD__METHOD_SUBMIT] = {LATENTD__ENVELOPE__BODY_SUBMIT,      method_submit  },
    [LATENTD__METHOD__METHOD_NEXT] = { LATENTD__ENVELOPE__BODY_NEXT,       method_next    },
    [LATENTD__METHOD__METHOD_CANCEL] = { LATENTD__ENVELOPE__BODY_CANCEL,     method_cancel  },
    [LATENTD__METHOD__METHOD_LIST] = { LATENTD__ENVELOPE__BODY_LIST,       method_list    },
    [LATENTD__METHOD__METHOD_TOKENIZE] = { LATENTD__ENVELOPE__BODY_TOKENIZE,   method_tokenize},
    [LATENTD__METHOD__METHOD_DETOKENIZE] = { LATENTD__ENVELOPE__BODY_DETOKENIZE,
                                        method_detokenize                                   },
    [LATENTD__METHOD__METHOD_PLAN] = { LATENTD__ENVELOPE__BODY_PLAN,       method_plan    },
    [LATENTD__METHOD__METHOD_STATUS] = { LATENTD__ENVELOPE__BODY_STATUS,     method_status  },
    [LATENTD__METHOD__METHOD_HEALTH] = { LATENTD__ENVELOPE__BODY_HEALTH,     method_health  },
    [LATENTD__METHOD__METHOD_METRICS] = { LATENTD__ENVELOPE__BODY_METRICS,    method_metrics },
    [LATENTD__METHOD__METHOD_DRAIN] = { LATENTD__ENVELOPE__BODY_DRAIN,      method_drain   },
};
enum { N_METHODS = sizeof methods / sizeof *methods };

static void check_method(struct server_call *c)
{
    const Latentd__Envelope *q = c->question;
    int method = q->method;

    if (method <= 0 || method >= N_METHODS)
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_UNKNOWN_METHOD, NULL, 0,
                           "method: missing or unknown; latentd.proto lists those of this version");
    else if (q->body_case != methods[method].body)
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_UNKNOWN_METHOD, NULL, 0,
                           "body: missing, or that of another method; give the one of the method");
}

/* Takes as long for every token of the same length, so that the time says nothing about how much
 * of it was right. */
static int same_token(const char *mine, const char *theirs)
{
    size_t n = strlen(mine), m = strlen(theirs);
    volatile unsigned differ = n != m;

    for (size_t i = 0; i < m; i++)
        differ |= (unsigned char)(theirs[i] ^ mine[n ? i % n : 0]);
    return !differ;
}

static int is_token_of(const struct service *s, const Latentd__Envelope *q)
{
    return s->token && *s->token && q->token && same_token(s->token, q->token);
}

/* Named within the body, as everywhere else. */
static const char *field_of_path(const struct scan_path *path)
{
    const char *dot = strchr(path->text, '.');

    return dot ? dot + 1 : *path->text ? path->text : NULL;
}

/* ---- The interface ------------------------------------------------------ */

/* Whatever a client calls itself must not break a line of the log. */
static void read_agent(struct server_call *c)
{
    const char *agent = c->question && c->question->agent ? c->question->agent : "";
    struct str clean = { 0 };

    str_printable(&clean, agent, strlen(agent), sizeof c->agent - 1);
    snprintf(c->agent, sizeof c->agent, "%s", clean.len ? clean.data : "a client");
    c->agent[utf8_valid_prefix(c->agent, strlen(c->agent))] = '\0';
    str_free(&clean);
}

void server_call_read(struct server_call *c, const struct service *s, const void *bytes, size_t n,
                      int want_token)
{
    struct scan_path path;
    struct err e = { 0 };

    c->service = s;
    c->wait_ms = -1;
    enum err_code rc = envelope_decode(&c->question, bytes, n, PROTO_QUESTION_MAX, &path, &e);
    read_agent(c);
    if (rc != ERR_OK)
        snprintf(c->complaint, sizeof c->complaint, "%.150s", e.msg);
    if (rc == ERR_UNSUPPORTED)
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_BAD_VERSION, NULL, 0, e.msg);
    else if (rc != ERR_OK)
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_BAD_MESSAGE, field_of_path(&path), 0,
                           e.msg);
    else if (want_token && !is_token_of(s, c->question)) {
        snprintf(c->complaint, sizeof c->complaint, "%s over tcp:// has no token, or a wrong one",
                 c->agent);
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_UNAUTHORIZED, "token", 0,
                           "token: missing or wrong; over tcp:// give the one of the daemon");
    } else {
        c->trusted = 1;
        check_method(c);
    }
}

int server_call_try(struct server_call *c, struct requests_waiter *w)
{
    Latentd__Envelope a;

    if (c->answer || !c->question)
        return 1;
    answer_begin(c, &a);
    return methods[c->question->method].run(c, w, &a);
}

void server_call_fini(struct server_call *c)
{
    server_submit_free(&c->submit);
    envelope_free(&c->question);
    free(c->answer);
    *c = (struct server_call){ 0 };
}
