/* SPDX-License-Identifier: MIT */
/* proto/client_about.c - liblatent's questions about the daemon, and text and tokens. */
#include <stdlib.h>

#include "proto/client_parts.h"

/* ---- Requests it knows --------------------------------------------------- */

static void read_info(struct latent_info *out, const Latentd__RequestInfo *r)
{
    *out = (struct latent_info){
        .id = client_text(r->id),
        .client = client_text(r->client),
        .state = (enum latent_state)r->state,
        .reason = (enum latent_reason)r->reason,
        .priority = r->priority,
        .prompt_tokens = r->prompt_tokens,
        .cached_tokens = r->cached_tokens,
        .produced_tokens = r->produced_tokens,
        .queue_place = r->queue_place,
        .accepted_ms = r->accepted_ms,
        .ended_ms = r->ended_ms,
    };
}

enum latent_code latent_list(struct latent *c, const char *client, int live, unsigned limit,
                             const struct latent_info **out, size_t *n, struct latent_error *e)
{
    Latentd__Envelope q;
    Latentd__ListRequest r = LATENTD__LIST_REQUEST__INIT;

    client_question(c, &q, LATENTD__METHOD__METHOD_LIST);
    r.client = (char *)client;
    r.has_live = r.live = live != 0;
    r.has_limit = 1;
    r.limit = limit;
    q.body_case = LATENTD__ENVELOPE__BODY_LIST;
    q.list = &r;
    enum latent_code rc = client_ask(c, &q, LATENTD__ENVELOPE__BODY_LIST_REPLY, e);
    if (rc != LATENT_OK)
        return rc;
    const Latentd__ListReply *a = c->answer->list_reply;
    free(c->infos);
    c->infos = calloc(a->n_requests + 1, sizeof *c->infos);
    if (!c->infos)
        return client_fail(e, LATENT_NO_MEMORY, "list: no memory");
    for (size_t i = 0; i < a->n_requests; i++)
        read_info(&c->infos[i], a->requests[i]);
    *out = c->infos;
    *n = a->n_requests;
    return LATENT_OK;
}

/* ---- The daemon ---------------------------------------------------------- */

const char *latent_phase_name(enum latent_phase p)
{
    static const char *const names[] = { "unknown", "starting",   "loading",
                                         "serving", "restarting", "stopping" };

    return (unsigned)p < sizeof names / sizeof *names ? names[p] : "unknown";
}

/* Text as bytes: protobuf-c ends none of it, so the answer is given its NUL in place. */
static enum latent_code take_text(ProtobufCBinaryData *b, const char **text, size_t *len,
                                  struct latent_error *e)
{
    uint8_t *data = realloc(b->data, b->len + 1);

    if (!data)
        return client_fail(e, LATENT_NO_MEMORY, "answer: no memory");
    data[b->len] = '\0';
    b->data = data;
    *text = (const char *)data;
    *len = b->len;
    return LATENT_OK;
}

static void read_status(struct latent_status *out, const Latentd__StatusReply *r)
{
    *out = (struct latent_status){
        .phase = (enum latent_phase)r->phase,
        .version = client_text(r->version),
        .model = client_text(r->model),
        .model_path = client_text(r->model_path),
        .model_hash = client_text(r->model_hash),
        .kernel_set = client_text(r->kernel_set),
        .cache_type = client_text(r->cache_type),
        .reuse = client_text(r->reuse),
        .why = client_text(r->why),
        .green = r->green,
        .draining = r->draining,
        .journal_ok = r->journal_ok,
        .pid = r->pid,
        .parallel = r->parallel,
        .ranks = r->ranks,
        .running = r->running,
        .waiting = r->waiting,
        .restarts = r->restarts,
        .uptime_s = r->uptime_s,
        .context = r->context,
        .load_done_bytes = r->load_done_bytes,
        .load_total_bytes = r->load_total_bytes,
        .pages_total = r->pages_total,
        .pages_used = r->pages_used,
        .pages_cached = r->pages_cached,
        .prompt_tokens = r->prompt_tokens,
        .cached_tokens = r->cached_tokens,
        .produced_tokens = r->produced_tokens,
    };
}

static void read_rank(struct latent_rank *out, const Latentd__RankInfo *r)
{
    *out = (struct latent_rank){
        .host = client_text(r->host),
        .device = client_text(r->device),
        .rank = r->rank,
        .threads = r->threads,
        .weights_bytes = r->weights_bytes,
        .cache_bytes = r->cache_bytes,
        .load_done_bytes = r->load_done_bytes,
        .load_total_bytes = r->load_total_bytes,
        .load_rate = r->load_rate,
        .steps = r->steps,
        .compute_us = r->compute_us,
        .sum_us = r->sum_us,
        .recent_compute_us = r->recent_compute_us,
        .recent_sum_us = r->recent_sum_us,
    };
}

static enum latent_code read_ranks(struct latent *c, struct latent_status *out,
                                   const Latentd__StatusReply *r, struct latent_error *e)
{
    free(c->ranks);
    c->ranks = calloc(r->n_rank_list + 1, sizeof *c->ranks);
    if (!c->ranks)
        return client_fail(e, LATENT_NO_MEMORY, "status: no memory");
    for (size_t i = 0; i < r->n_rank_list; i++)
        read_rank(&c->ranks[i], r->rank_list[i]);
    out->rank_list = c->ranks;
    out->n_rank_list = r->n_rank_list;
    return LATENT_OK;
}

enum latent_code latent_status(struct latent *c, struct latent_status *out, struct latent_error *e)
{
    Latentd__Envelope q;
    Latentd__StatusRequest r = LATENTD__STATUS_REQUEST__INIT;
    size_t len;

    client_question(c, &q, LATENTD__METHOD__METHOD_STATUS);
    q.body_case = LATENTD__ENVELOPE__BODY_STATUS;
    q.status = &r;
    enum latent_code rc = client_ask(c, &q, LATENTD__ENVELOPE__BODY_STATUS_REPLY, e);
    if (rc != LATENT_OK)
        return rc;
    read_status(out, c->answer->status_reply);
    rc = read_ranks(c, out, c->answer->status_reply, e);
    if (rc != LATENT_OK)
        return rc;
    return take_text(&c->answer->status_reply->plan, &out->plan, &len, e);
}

enum latent_code latent_health(struct latent *c, struct latent_health *out, struct latent_error *e)
{
    Latentd__Envelope q;
    Latentd__HealthRequest r = LATENTD__HEALTH_REQUEST__INIT;

    client_question(c, &q, LATENTD__METHOD__METHOD_HEALTH);
    q.body_case = LATENTD__ENVELOPE__BODY_HEALTH;
    q.health = &r;
    enum latent_code rc = client_ask(c, &q, LATENTD__ENVELOPE__BODY_HEALTH_REPLY, e);
    if (rc != LATENT_OK)
        return rc;
    const Latentd__HealthReply *a = c->answer->health_reply;
    *out = (struct latent_health){
        .green = a->green,
        .phase = (enum latent_phase)a->phase,
        .why = client_text(a->why),
        .last_ms = a->has_last_ms ? (int64_t)a->last_ms : -1,
    };
    return LATENT_OK;
}

enum latent_code latent_metrics(struct latent *c, const char **text, size_t *len,
                                struct latent_error *e)
{
    Latentd__Envelope q;
    Latentd__MetricsRequest r = LATENTD__METRICS_REQUEST__INIT;

    client_question(c, &q, LATENTD__METHOD__METHOD_METRICS);
    q.body_case = LATENTD__ENVELOPE__BODY_METRICS;
    q.metrics = &r;
    enum latent_code rc = client_ask(c, &q, LATENTD__ENVELOPE__BODY_METRICS_REPLY, e);
    return rc == LATENT_OK ? take_text(&c->answer->metrics_reply->text, text, len, e) : rc;
}

enum latent_code latent_plan(struct latent *c, int json, const char **text, size_t *len,
                             struct latent_error *e)
{
    Latentd__Envelope q;
    Latentd__PlanRequest r = LATENTD__PLAN_REQUEST__INIT;

    client_question(c, &q, LATENTD__METHOD__METHOD_PLAN);
    r.has_json = r.json = json != 0;
    q.body_case = LATENTD__ENVELOPE__BODY_PLAN;
    q.plan = &r;
    enum latent_code rc = client_ask(c, &q, LATENTD__ENVELOPE__BODY_PLAN_REPLY, e);
    return rc == LATENT_OK ? take_text(&c->answer->plan_reply->report, text, len, e) : rc;
}

enum latent_code latent_drain(struct latent *c, int undo, uint32_t *live, struct latent_error *e)
{
    Latentd__Envelope q;
    Latentd__DrainRequest r = LATENTD__DRAIN_REQUEST__INIT;

    client_question(c, &q, LATENTD__METHOD__METHOD_DRAIN);
    r.has_undo = r.undo = undo != 0;
    q.body_case = LATENTD__ENVELOPE__BODY_DRAIN;
    q.drain = &r;
    enum latent_code rc = client_ask(c, &q, LATENTD__ENVELOPE__BODY_DRAIN_REPLY, e);
    if (rc == LATENT_OK)
        *live = c->answer->drain_reply->live;
    return rc;
}

/* ---- Text and tokens ------------------------------------------------------ */

enum latent_code latent_tokenize(struct latent *c, const char *text, size_t len, int add_bos,
                                 int parse_special, const int32_t **ids, size_t *n,
                                 struct latent_error *e)
{
    Latentd__Envelope q;
    Latentd__TokenizeRequest r = LATENTD__TOKENIZE_REQUEST__INIT;

    client_question(c, &q, LATENTD__METHOD__METHOD_TOKENIZE);
    r.has_text = 1;
    r.text = (ProtobufCBinaryData){ len, (uint8_t *)text };
    r.has_add_bos = add_bos >= 0;
    r.add_bos = add_bos > 0;
    r.has_parse_special = r.parse_special = parse_special != 0;
    q.body_case = LATENTD__ENVELOPE__BODY_TOKENIZE;
    q.tokenize = &r;
    enum latent_code rc = client_ask(c, &q, LATENTD__ENVELOPE__BODY_TOKENIZE_REPLY, e);
    if (rc != LATENT_OK)
        return rc;
    *ids = c->answer->tokenize_reply->ids;
    *n = c->answer->tokenize_reply->n_ids;
    return LATENT_OK;
}

enum latent_code latent_detokenize(struct latent *c, const int32_t *ids, size_t n,
                                   const char **text, size_t *len, struct latent_error *e)
{
    Latentd__Envelope q;
    Latentd__DetokenizeRequest r = LATENTD__DETOKENIZE_REQUEST__INIT;

    client_question(c, &q, LATENTD__METHOD__METHOD_DETOKENIZE);
    r.ids = (int32_t *)ids;
    r.n_ids = n;
    q.body_case = LATENTD__ENVELOPE__BODY_DETOKENIZE;
    q.detokenize = &r;
    enum latent_code rc = client_ask(c, &q, LATENTD__ENVELOPE__BODY_DETOKENIZE_REPLY, e);
    return rc == LATENT_OK ? take_text(&c->answer->detokenize_reply->text, text, len, e) : rc;
}
