/* SPDX-License-Identifier: MIT */
/* daemon/server_about.c - the methods that need no request: text and tokens, and the daemon
 * itself. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/server_answer.h"

/* ---- Text and tokens ---------------------------------------------------- */

static int no_tokenizer(struct server_call *c)
{
    server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_STARTING, NULL, ANSWER_RETRY_MS,
                       "the model is not read yet; try again");
    return 1;
}

int method_tokenize(struct server_call *c, struct requests_waiter *w, Latentd__Envelope *a)
{
    const Latentd__TokenizeRequest *q = c->question->tokenize;
    const struct tokenizer *t = c->service->tokenizer;
    Latentd__TokenizeReply r = LATENTD__TOKENIZE_REPLY__INIT;
    struct token_list ids = { 0 };
    struct err e = { 0 };
    unsigned flags = q->parse_special ? TOKENIZE_SPECIAL : 0;

    (void)w;
    if (!t)
        return no_tokenizer(c);
    if (!q->has_add_bos)
        flags |= TOKENIZE_BOS;
    else if (q->add_bos && tokenizer_bos(t) >= 0)
        token_list_push(&ids, tokenizer_bos(t));
    enum err_code rc =
        tokenizer_encode(t, q->text.len ? (char *)q->text.data : "", q->text.len, flags, &ids, &e);
    if (rc == ERR_OK && ids.failed)
        rc = err_set(&e, ERR_NOMEM, "tokenize: no memory");
    /* A text may begin with it. */
    int twice = q->add_bos && ids.n > 1 && ids.ids[1] == tokenizer_bos(t);
    r.ids = twice ? ids.ids + 1 : ids.ids;
    r.n_ids = ids.n - (size_t)twice;
    a->body_case = LATENTD__ENVELOPE__BODY_TOKENIZE_REPLY;
    a->tokenize_reply = &r;
    if (rc == ERR_OK)
        answer_send(c, a);
    else
        answer_err(c, rc, NULL, &e);
    token_list_free(&ids);
    return 1;
}

int method_detokenize(struct server_call *c, struct requests_waiter *w, Latentd__Envelope *a)
{
    const Latentd__DetokenizeRequest *q = c->question->detokenize;
    const struct tokenizer *t = c->service->tokenizer;
    Latentd__DetokenizeReply r = LATENTD__DETOKENIZE_REPLY__INIT;
    struct str text = { 0 };
    size_t i = 0;

    (void)w;
    if (!t)
        return no_tokenizer(c);
    while (i < q->n_ids && q->ids[i] >= 0 && q->ids[i] < tokenizer_size(t) &&
           text.len < PROTO_ANSWER_MAX)
        tokenizer_decode(t, q->ids[i++], 1, &text);
    PUT(&r, text, ((ProtobufCBinaryData){ text.len, (uint8_t *)text.data }));
    a->body_case = LATENTD__ENVELOPE__BODY_DETOKENIZE_REPLY;
    a->detokenize_reply = &r;
    if (text.failed)
        answer_no(c, ANSWER_NO_MEMORY, &(struct err){ 0 });
    else if (text.len > PROTO_TEXT_MAX)
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_TOO_LARGE, NULL, 0,
                           "detokenize: more than 1000000 bytes of text; give fewer ids");
    else if (i < q->n_ids)
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_INVALID_PARAMETER, "ids", 0,
                           "ids: one is no token of the vocabulary; give 0 to its size - 1");
    else
        answer_send(c, a);
    str_free(&text);
    return 1;
}

/* ---- The daemon --------------------------------------------------------- */

_Static_assert((int)LINK_JSON_MAX == (int)PROTO_TEXT_MAX, "the JSON of a plan fits into an answer");

int method_plan(struct server_call *c, struct requests_waiter *w, Latentd__Envelope *a)
{
    Latentd__PlanReply r = LATENTD__PLAN_REPLY__INIT;
    struct str text = { 0 };

    (void)w;
    status_plan(c->service->status, c->question->plan->json ? LINK_PLAN_JSON : LINK_PLAN_REPORT,
                &text);
    PUT(&r, report, ((ProtobufCBinaryData){ text.len, (uint8_t *)text.data }));
    a->body_case = LATENTD__ENVELOPE__BODY_PLAN_REPLY;
    a->plan_reply = &r;
    if (text.failed)
        answer_no(c, ANSWER_NO_MEMORY, &(struct err){ 0 });
    else if (!text.len)
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_STARTING, NULL, ANSWER_RETRY_MS,
                           "plan: there is none yet; try again");
    else if (text.len > PROTO_TEXT_MAX)
        server_call_refuse(c, LATENTD__ERROR_CODE__ERROR_TOO_LARGE, NULL, 0,
                           "plan: the report is too long for a message; run latent plan with the "
                           "daemon's options");
    else
        answer_send(c, a);
    str_free(&text);
    return 1;
}

static Latentd__Phase phase_of(enum daemon_phase p)
{
    static const Latentd__Phase phases[] = {
        [PHASE_STARTING] = LATENTD__PHASE__PHASE_STARTING,
        [PHASE_LOADING] = LATENTD__PHASE__PHASE_LOADING,
        [PHASE_SERVING] = LATENTD__PHASE__PHASE_SERVING,
        [PHASE_RESTARTING] = LATENTD__PHASE__PHASE_RESTARTING,
        [PHASE_STOPPING] = LATENTD__PHASE__PHASE_STOPPING,
    };

    return phases[p];
}

static void fill_model(Latentd__StatusReply *r, struct status_view *v)
{
    r->model = answer_text(v->model_name);
    r->model_path = answer_text(v->model_path);
    r->model_hash = answer_text(v->model_hash);
    r->kernel_set = answer_text(v->kernel_set);
    r->cache_type = answer_text(v->cache_type);
    r->reuse = answer_text(v->reuse);
    if (v->n_context > 0)
        PUT(r, context, (uint64_t)v->n_context);
    if (v->n_sequences > 0)
        PUT(r, parallel, (uint32_t)v->n_sequences);
    if (v->n_ranks > 0)
        PUT(r, ranks, (uint32_t)v->n_ranks);
    if (v->load_total_bytes > 0) {
        PUT(r, load_done_bytes, (uint64_t)v->load_done_bytes);
        PUT(r, load_total_bytes, (uint64_t)v->load_total_bytes);
    }
}

static void fill_work(Latentd__StatusReply *r, struct status_view *v)
{
    PUT(r, phase, phase_of(v->phase));
    PUT(r, uptime_s, (uint64_t)v->uptime_s);
    PUT(r, running, (uint32_t)v->running);
    PUT(r, waiting, (uint32_t)v->waiting);
    if (v->pages_total > 0) {
        PUT(r, pages_total, (uint64_t)v->pages_total);
        PUT(r, pages_used, (uint64_t)v->pages_used);
        PUT(r, pages_cached, (uint64_t)v->pages_cached);
    }
    PUT(r, restarts, (uint32_t)v->restarts);
    PUT(r, draining, v->draining != 0);
    PUT(r, journal_ok, v->journal_ok != 0);
    PUT(r, green, v->healthy != 0);
    r->why = v->healthy ? NULL : answer_text(v->why);
    PUT(r, prompt_tokens, (uint64_t)v->prompt_tokens);
    PUT(r, cached_tokens, (uint64_t)v->cached_tokens);
    PUT(r, produced_tokens, (uint64_t)v->produced_tokens);
}

static void fill_rank(Latentd__RankInfo *r, uint32_t number, struct status_rank *from)
{
    const int64_t *figures = from->is.figures;

    latentd__rank_info__init(r);
    PUT(r, rank, number);
    r->host = answer_text(from->is.host);
    r->device = answer_text(from->is.device);
    PUT(r, threads, (uint32_t)from->is.n_threads);
    PUT(r, weights_bytes, (uint64_t)from->is.weights_bytes);
    PUT(r, cache_bytes, (uint64_t)from->is.cache_bytes);
    PUT(r, load_done_bytes, (uint64_t)figures[COMM_LOADED]);
    if (figures[COMM_TO_LOAD] > 0)
        PUT(r, load_total_bytes, (uint64_t)figures[COMM_TO_LOAD]);
    if (from->load_rate > 0)
        PUT(r, load_rate, (uint64_t)from->load_rate);
    PUT(r, steps, (uint64_t)figures[COMM_STEPS]);
    PUT(r, compute_us, (uint64_t)figures[COMM_COMPUTE_US]);
    PUT(r, sum_us, (uint64_t)figures[COMM_SUM_US]);
    if (figures[COMM_STEPS] == 0)
        return;
    PUT(r, recent_compute_us, (uint64_t)from->recent_step_us);
    PUT(r, recent_sum_us, (uint64_t)from->recent_sum_us);
}

/* Returns what is to be freed once the answer is sent. */
static void *fill_ranks(Latentd__StatusReply *r, struct status_rank *from, int n)
{
    Latentd__RankInfo *infos = calloc((size_t)n + 1, sizeof *infos + sizeof(Latentd__RankInfo *));

    if (!infos)
        return NULL; /* without them, then */
    r->rank_list = (Latentd__RankInfo **)(infos + n + 1);
    for (int i = 0; i < n; i++) {
        fill_rank(&infos[i], (uint32_t)i, &from[i]);
        r->rank_list[r->n_rank_list++] = &infos[i];
    }
    return infos;
}

int method_status(struct server_call *c, struct requests_waiter *w, Latentd__Envelope *a)
{
    Latentd__StatusReply r = LATENTD__STATUS_REPLY__INIT;
    struct status_rank *ranks = NULL;
    struct str plan = { 0 };
    struct status_view v;

    (void)w;
    int n_ranks = status_ranks(c->service->status, &ranks);
    void *infos = fill_ranks(&r, ranks, n_ranks > 0 ? n_ranks : 0);
    status_read(c->service->status, &v);
    r.version = (char *)LATENTD_VERSION;
    PUT(&r, pid, (uint32_t)getpid());
    fill_model(&r, &v);
    fill_work(&r, &v);
    status_plan(c->service->status, LINK_PLAN_SUMMARY, &plan);
    if (plan.len)
        PUT(&r, plan, ((ProtobufCBinaryData){ plan.len, (uint8_t *)plan.data }));
    a->body_case = LATENTD__ENVELOPE__BODY_STATUS_REPLY;
    a->status_reply = &r;
    int sent = answer_send(c, a);
    str_free(&plan);
    free(infos);
    free(ranks);
    return sent;
}

int method_health(struct server_call *c, struct requests_waiter *w, Latentd__Envelope *a)
{
    Latentd__HealthReply r = LATENTD__HEALTH_REPLY__INIT;
    struct status_view v;

    (void)w;
    status_read(c->service->status, &v);
    PUT(&r, green, v.healthy != 0);
    PUT(&r, phase, phase_of(v.phase));
    r.why = v.healthy ? NULL : answer_text(v.why);
    if (v.last_step_s >= 0)
        PUT(&r, last_ms, (uint64_t)(v.last_step_s * 1e3));
    a->body_case = LATENTD__ENVELOPE__BODY_HEALTH_REPLY;
    a->health_reply = &r;
    return answer_send(c, a);
}

static void put_counts(struct str *text, const struct server_counts *n)
{
    const struct {
        const char *type, *name, *help;
        int64_t value;
    } rows[] = {
        {"gauge",    "connections",      "connections of clients",               n->connections   },
        { "gauge",   "questions_open",   "questions that wait for their answer", n->open_questions},
        { "counter", "questions_total",  "questions of clients",                 n->questions     },
        { "counter", "complaints_total", "times that a client misbehaved",       n->complaints    },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        str_printf(text, "# HELP latentd_%s %s\n# TYPE latentd_%s %s\nlatentd_%s %" PRId64 "\n",
                   rows[i].name, rows[i].help, rows[i].name, rows[i].type, rows[i].name,
                   rows[i].value);
}

int method_metrics(struct server_call *c, struct requests_waiter *w, Latentd__Envelope *a)
{
    Latentd__MetricsReply r = LATENTD__METRICS_REPLY__INIT;
    struct str text = { 0 };

    (void)w;
    status_metrics(c->service->status, &text);
    if (c->service->counts)
        put_counts(&text, c->service->counts);
    PUT(&r, text, ((ProtobufCBinaryData){ text.len, (uint8_t *)text.data }));
    a->body_case = LATENTD__ENVELOPE__BODY_METRICS_REPLY;
    a->metrics_reply = &r;
    if (text.failed)
        answer_no(c, ANSWER_NO_MEMORY, &(struct err){ 0 });
    else
        answer_send(c, a);
    str_free(&text);
    return 1;
}

int method_drain(struct server_call *c, struct requests_waiter *w, Latentd__Envelope *a)
{
    Latentd__DrainReply r = LATENTD__DRAIN_REPLY__INIT;
    int undo = c->question->drain->undo;

    (void)w;
    PUT(&r, live, (uint32_t)requests_drain(c->service->book, !undo));
    log_info("drain: %s by %s", undo ? "ended" : "begun", c->agent);
    a->body_case = LATENTD__ENVELOPE__BODY_DRAIN_REPLY;
    a->drain_reply = &r;
    return answer_send(c, a);
}
