/* SPDX-License-Identifier: MIT */
/* daemon/server_requests.c - the methods of requests: Submit, Next, Cancel, List. */
#include <stdlib.h>

#include "daemon/server_answer.h"

int method_submit(struct server_call *c, struct requests_waiter *w, Latentd__Envelope *a)
{
    struct server_submit *s = &c->submit;
    struct request_view view = { 0 };
    const char *field = NULL;
    struct err e = { 0 };
    Latentd__SubmitReply r = LATENTD__SUBMIT_REPLY__INIT;

    if (!s->ready) {
        enum err_code rc = server_submit_read(s, c->question->submit, c->service, &field, &e);
        if (rc != ERR_OK) {
            requests_note_refused(c->service->book);
            return answer_err(c, rc, field, &e);
        }
        s->ready = 1;
    }
    enum answer got = requests_submit(c->service->book, &s->spec, w, &view, &e);
    if (got == ANSWER_WAIT)
        return 0;
    if (got != ANSWER_OK)
        return answer_no(c, got, &e);
    r.id = view.id;
    PUT(&r, prompt_tokens, (uint32_t)view.n_prompt);
    PUT(&r, seed, view.seed);
    a->body_case = LATENTD__ENVELOPE__BODY_SUBMIT_REPLY;
    a->submit_reply = &r;
    return answer_send(c, a);
}

/* The book has one reason for each but one; numbers of its own. */
static Latentd__FinishReason reason_of(enum reason r)
{
    static const Latentd__FinishReason reasons[] = {
        [REASON_NONE] = LATENTD__FINISH_REASON__FINISH_NONE,
        [REASON_STOP] = LATENTD__FINISH_REASON__FINISH_STOP,
        [REASON_LENGTH] = LATENTD__FINISH_REASON__FINISH_LENGTH,
        [REASON_CANCELLED] = LATENTD__FINISH_REASON__FINISH_CANCELLED,
        [REASON_DEADLINE] = LATENTD__FINISH_REASON__FINISH_DEADLINE,
        [REASON_NUMERIC_ERROR] = LATENTD__FINISH_REASON__FINISH_NUMERIC_ERROR,
        [REASON_FAILED] = LATENTD__FINISH_REASON__FINISH_FAILED,
    };

    return reasons[r];
}

static Latentd__State state_of(enum request_state s)
{
    return s == REQUEST_ENDED     ? LATENTD__STATE__STATE_ENDED
           : s == REQUEST_RUNNING ? LATENTD__STATE__STATE_RUNNING
                                  : LATENTD__STATE__STATE_WAITING;
}

static void fill_end(Latentd__End *end, struct request_view *v)
{
    latentd__end__init(end);
    PUT(end, reason, reason_of(v->reason));
    end->message = answer_text(v->message);
    PUT(end, prompt_tokens, (uint32_t)v->n_prompt);
    PUT(end, cached_tokens, (uint32_t)v->n_cached);
    PUT(end, produced_tokens, (uint32_t)v->n_produced);
    PUT(end, accepted_ms, (uint64_t)v->accepted_ms);
    if (v->first_token_ms)
        PUT(end, first_token_ms, (uint64_t)v->first_token_ms);
    PUT(end, ended_ms, (uint64_t)v->ended_ms);
}

static int answer_events(struct server_call *c, struct request_events *got, Latentd__Envelope *a)
{
    Latentd__NextReply r = LATENTD__NEXT_REPLY__INIT;
    Latentd__End end;

    PUT(&r, cursor, (uint64_t)got->cursor);
    r.tokens = got->tokens;
    r.n_tokens = (size_t)got->n_tokens;
    if (got->text.len)
        PUT(&r, text, ((ProtobufCBinaryData){ got->text.len, (uint8_t *)got->text.data }));
    if (got->ended) {
        fill_end(&end, &got->view);
        r.end = &end;
    }
    PUT(&r, state, state_of(got->view.state));
    if (got->view.queue_place > 0)
        PUT(&r, queue_place, (uint32_t)got->view.queue_place);
    a->body_case = LATENTD__ENVELOPE__BODY_NEXT_REPLY;
    a->next_reply = &r;
    answer_send(c, a);
    request_events_free(got);
    return 1;
}

/* A question about a request that does not say which. */
static int lacks_id(struct server_call *c, const char *id)
{
    if (id && *id)
        return 0;
    server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_INVALID_PARAMETER, "id", 0,
                       "id: missing; give that of the request");
    return 1;
}

int method_next(struct server_call *c, struct requests_waiter *w, Latentd__Envelope *a)
{
    const Latentd__NextRequest *q = c->question->next;
    struct request_events got = { 0 };
    struct err e = { 0 };

    if (lacks_id(c, q->id))
        return 1;
    if (q->cursor > INT64_MAX) {
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_INVALID_PARAMETER, "cursor", 0,
                           "cursor: above 2^63-1; give the one of the last answer, or 0");
        return 1;
    }
    c->wait_ms = PROTO_WAIT_MAX_MS;
    if (q->has_wait_ms && q->wait_ms < PROTO_WAIT_MAX_MS)
        c->wait_ms = q->wait_ms;
    if (!c->wait_ms)
        w = NULL;
    enum answer from = requests_next(c->service->book, q->id, (int64_t)q->cursor, w, &got, &e);
    if (from == ANSWER_WAIT)
        return 0;
    return from == ANSWER_OK ? answer_events(c, &got, a) : answer_no(c, from, &e);
}

int method_cancel(struct server_call *c, struct requests_waiter *w, Latentd__Envelope *a)
{
    const Latentd__CancelRequest *q = c->question->cancel;
    Latentd__CancelReply r = LATENTD__CANCEL_REPLY__INIT;
    struct err e = { 0 };

    if (lacks_id(c, q->id))
        return 1;
    enum answer from = requests_cancel(c->service->book, q->id, w, &e);
    c->wait_ms = PROTO_WAIT_MAX_MS;
    if (from == ANSWER_WAIT)
        return 0;
    if (from != ANSWER_OK)
        return answer_no(c, from, &e);
    a->body_case = LATENTD__ENVELOPE__BODY_CANCEL_REPLY;
    a->cancel_reply = &r;
    return answer_send(c, a);
}

static void fill_info(Latentd__RequestInfo *info, struct request_view *v)
{
    latentd__request_info__init(info);
    info->id = v->id;
    info->client = *v->client ? v->client : NULL;
    PUT(info, state, state_of(v->state));
    if (v->reason != REASON_NONE)
        PUT(info, reason, reason_of(v->reason));
    PUT(info, priority, v->priority);
    PUT(info, prompt_tokens, (uint32_t)v->n_prompt);
    PUT(info, cached_tokens, (uint32_t)v->n_cached);
    PUT(info, produced_tokens, (uint32_t)v->n_produced);
    if (v->queue_place > 0)
        PUT(info, queue_place, (uint32_t)v->queue_place);
    PUT(info, accepted_ms, (uint64_t)v->accepted_ms);
    if (v->ended_ms)
        PUT(info, ended_ms, (uint64_t)v->ended_ms);
}

static void answer_list(struct server_call *c, struct request_view *views, int n,
                        Latentd__Envelope *a)
{
    Latentd__ListReply r = LATENTD__LIST_REPLY__INIT;
    Latentd__RequestInfo *infos = calloc((size_t)n + 1, sizeof *infos);

    r.requests = calloc((size_t)n + 1, sizeof(Latentd__RequestInfo *));
    if (infos && r.requests) {
        for (int i = 0; i < n; i++) {
            fill_info(&infos[i], &views[i]);
            r.requests[i] = &infos[i];
        }
        r.n_requests = (size_t)n;
        a->body_case = LATENTD__ENVELOPE__BODY_LIST_REPLY;
        a->list_reply = &r;
        answer_send(c, a);
    } else {
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_INTERNAL, NULL, ANSWER_RETRY_MS,
                           "list: no memory");
    }
    free(infos);
    free(r.requests);
}

int method_list(struct server_call *c, struct requests_waiter *w, Latentd__Envelope *a)
{
    const Latentd__ListRequest *q = c->question->list;
    uint32_t limit = q->has_limit ? q->limit : PROTO_LIST_DEFAULT;
    struct request_view *views = NULL;

    (void)w;
    if (limit < 1 || limit > PROTO_LIST_MAX) {
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_INVALID_PARAMETER, "limit", 0,
                           "limit: out of range; give 1 to 1000");
        return 1;
    }
    int n = requests_list(c->service->book, q->client, q->live, (int)limit, &views);
    if (n < 0)
        return answer_no(c, ANSWER_NO_MEMORY, &(struct err){ 0 });
    answer_list(c, views, n, a);
    free(views);
    return 1;
}
