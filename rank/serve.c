/* SPDX-License-Identifier: MIT */
/* rank/serve.c - see serve.h. */
#include "rank/serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* The request on one sequence. */
struct seat {
    struct link_begin begin; /* history: of cap */
    int64_t cap;
    int lost; /* nothing could be chosen: what the coordinator sent before it knew counts no more */
};

struct serve {
    int fd;
    struct engine *engine;
    const struct step_limits *limits;
    const struct plan *plan;
    double told_s; /* when the coordinator last heard of the ranks */

    struct seat *seats; /* [n_sequences] */
    struct str out;
    struct link_sample *samples; /* [max_batch] */
    struct link_bad *bad;        /* [max_batch] */
};

/* ---- Requests ------------------------------------------------------------- */

static enum err_code take_begin(struct serve *s, const struct link_frame *f, struct err *e)
{
    struct link_begin b;

    TRY(link_get_begin(&b, f, s->limits, e));
    link_begin_free(&s->seats[b.seq].begin);
    s->seats[b.seq] = (struct seat){ .begin = b, .cap = b.n_history };
    return ERR_OK;
}

static enum err_code push_history(struct seat *seat, int32_t token, struct err *e)
{
    struct link_begin *b = &seat->begin;

    if (b->n_history == seat->cap) {
        int64_t cap = 2 * seat->cap + 64;
        int32_t *grown = realloc(b->history, (size_t)cap * sizeof *grown);
        if (!grown)
            return err_set(e, ERR_NOMEM, "no memory for a history of %" PRId64 " tokens", cap);
        b->history = grown;
        seat->cap = cap;
    }
    b->history[b->n_history++] = token;
    return ERR_OK;
}

/* ---- Steps ---------------------------------------------------------------- */

static enum err_code check_rows(const struct serve *s, const struct batch *b, struct err *e)
{
    int rows = 0;

    for (int i = 0; i < b->n; i++)
        rows += b->tokens[i].want_logits != 0;
    if (rows > s->limits->max_logits)
        return err_set(e, ERR_FORMAT, "link: a step wants %d rows of logits, the plan has %d", rows,
                       s->limits->max_logits);
    return ERR_OK;
}

/* Puts the tokens in that were chosen after the step was sent. */
static enum err_code fill_sampled(struct serve *s, struct batch *b, struct err *e)
{
    for (int i = 0; i < b->n; i++) {
        struct batch_token *t = &b->tokens[i];
        const struct seat *seat = &s->seats[t->seq];
        if (!t->sampled || seat->lost)
            continue;
        if (seat->begin.n_history != t->pos + 1)
            return err_set(e, ERR_FORMAT,
                           "link: sequence %d has %" PRId64 " tokens, and the one at position "
                           "%" PRId64 " is to be its last",
                           t->seq, seat->begin.n_history, t->pos);
        t->id = seat->begin.history[t->pos];
    }
    return ERR_OK;
}

/* Chooses what follows one token.  A row that nothing can be chosen from counts as a bad sum of
 * the output. */
static enum err_code choose(struct serve *s, const struct batch_token *t, const float *logits,
                            struct link_sample *out, struct err *e)
{
    struct seat *seat = &s->seats[t->seq];
    const struct link_begin *b = &seat->begin;
    const int no_choice = s->plan->model->hp.n_layers + 2; /* see struct link_sample */
    struct err why;

    *out = (struct link_sample){
        .seq = t->seq, .pos = t->pos + 1, .token = -1, .bad_layer = t->bad_layer
    };
    if (t->bad_layer || seat->lost) {
        out->bad_layer = t->bad_layer ? t->bad_layer : no_choice;
        seat->lost = 1;
        return ERR_OK;
    }
    if (b->n_history != t->pos + 1)
        return err_set(e, ERR_FORMAT,
                       "link: sequence %d has %" PRId64 " tokens, and one after position %" PRId64
                       " is wanted",
                       t->seq, b->n_history, t->pos);
    if (sampler_choose(engine_sampler(s->engine), &b->sampling, logits, b->history,
                       (size_t)b->n_history, t->pos + 1, &out->token, &why) == ERR_OK)
        return push_history(seat, out->token, e);
    log_warn("sequence %d, position %" PRId64 ": %s", t->seq, t->pos + 1, why.msg);
    out->token = -1;
    out->bad_layer = no_choice;
    seat->lost = 1;
    return ERR_OK;
}

static enum err_code fill_result(struct serve *s, const struct step *step, struct link_result *r,
                                 struct err *e)
{
    const struct batch *b = &step->batch;
    int row = 0;

    for (int i = 0; i < b->n; i++) {
        const struct batch_token *t = &b->tokens[i];
        if (t->bad_layer)
            s->bad[r->n_bad++] =
                (struct link_bad){ .seq = t->seq, .pos = t->pos, .bad_layer = t->bad_layer };
        if (!t->want_logits)
            continue;
        TRY(choose(s, t, engine_logits(s->engine) + (int64_t)row++ * s->limits->n_vocab,
                   &s->samples[r->n_samples++], e));
    }
    return ERR_OK;
}

static enum err_code tell_sometimes(struct serve *s, struct err *e)
{
    double now = clock_seconds();

    if (now - s->told_s < 1)
        return ERR_OK;
    s->told_s = now;
    return serve_tell_ranks(s->fd, engine_comm(s->engine), s->plan, e);
}

static enum err_code take_step(struct serve *s, const struct link_frame *f, struct err *e)
{
    struct link_result r = { .samples = s->samples, .bad = s->bad };
    struct step step;
    double begin = clock_seconds();

    TRY(step_decode(&step, f->payload, f->n, s->limits, e));
    enum err_code rc = check_rows(s, &step.batch, e);
    if (rc == ERR_OK)
        rc = fill_sampled(s, &step.batch, e);
    if (rc == ERR_OK)
        rc = engine_run_step(s->engine, &step, engine_logits(s->engine), e);
    r.step = step.id;
    if (rc == ERR_OK)
        rc = fill_result(s, &step, &r, e);
    r.step_us = 1e6 * (clock_seconds() - begin);
    r.sum_us = comm_take_sum_us(engine_comm(s->engine));
    str_clear(&s->out);
    if (rc == ERR_OK)
        rc = tell_sometimes(s, e);
    if (rc == ERR_OK)
        rc = link_put_result(&s->out, &r, e);
    if (rc == ERR_OK)
        rc = link_send(s->fd, LINK_RESULT, s->out.data, s->out.len, e);
    step_free(&step);
    return rc;
}

/* ---- The interface -------------------------------------------------------- */

static enum err_code prepare(struct serve *s, struct err *e)
{
    size_t n = (size_t)s->limits->max_batch;

    s->seats = calloc((size_t)s->limits->n_sequences, sizeof *s->seats);
    s->samples = calloc(n, sizeof *s->samples);
    s->bad = calloc(n, sizeof *s->bad);
    if (!s->seats || !s->samples || !s->bad)
        return err_set(e, ERR_NOMEM, "no memory for %d sequences", s->limits->n_sequences);
    return ERR_OK;
}

static enum err_code loop(struct serve *s, struct err *e)
{
    for (;;) {
        struct link_frame f;
        enum err_code rc = ERR_OK;
        TRY(link_recv(s->fd, &f, e));
        int quit = f.kind == LINK_QUIT;
        if (f.kind == LINK_BEGIN)
            rc = take_begin(s, &f, e);
        else if (f.kind == LINK_STEP)
            rc = take_step(s, &f, e);
        else if (!quit)
            rc = err_set(e, ERR_FORMAT, "link: a frame of kind %d from the coordinator", f.kind);
        free(f.payload);
        if (rc != ERR_OK || quit)
            return rc;
    }
}

enum err_code serve_run(int fd, struct engine *engine, const struct plan *plan,
                        const struct link_ready *ready, struct err *e)
{
    struct serve s = { .fd = fd, .engine = engine, .limits = engine_limits(engine), .plan = plan };
    enum err_code rc = prepare(&s, e);

    if (rc == ERR_OK)
        rc = tell_sometimes(&s, e);
    if (rc == ERR_OK)
        rc = link_put_ready(&s.out, ready, e);
    if (rc == ERR_OK)
        rc = link_send(fd, LINK_READY, s.out.data, s.out.len, e);
    if (rc == ERR_OK)
        rc = loop(&s, e);
    for (int i = 0; s.seats && i < s.limits->n_sequences; i++)
        link_begin_free(&s.seats[i].begin);
    str_free(&s.out);
    free(s.seats);
    free(s.samples);
    free(s.bad);
    return rc;
}

void serve_fault(int fd, const char *why)
{
    (void)link_send(fd, LINK_FAULT, why, strlen(why), NULL);
}

static void describe_rank(struct link_rank *out, const struct comm *c, const struct plan *p, int r)
{
    const struct plan_device *memory = &p->devices[p->ranks[r].memory];

    *out = (struct link_rank){ .n_threads = p->ranks[r].n_threads,
                               .weights_bytes = memory->weights_bytes,
                               .cache_bytes = memory->cache_bytes };
    (void)snprintf(out->host, sizeof out->host, "%s", comm_host(c, r));
    (void)snprintf(out->device, sizeof out->device, "%s", p->devices[p->ranks[r].main].name);
    for (int f = 0; f < COMM_FIGURES; f++)
        out->figures[f] = comm_figure(c, r, (enum comm_figure)f);
}

enum err_code serve_tell_ranks(int fd, const struct comm *c, const struct plan *plan, struct err *e)
{
    struct link_ranks r = { .n = comm_size(c) };
    struct str out = { 0 };

    r.v = calloc((size_t)r.n, sizeof *r.v);
    if (!r.v)
        return err_set(e, ERR_NOMEM, "no memory for what %d ranks say", r.n);
    for (int i = 0; i < r.n; i++)
        describe_rank(&r.v[i], c, plan, i);
    enum err_code rc = link_put_ranks(&out, &r, e);
    if (rc == ERR_OK)
        rc = link_send(fd, LINK_RANKS, out.data, out.len, e);
    str_free(&out);
    link_ranks_free(&r);
    return rc;
}
