/* SPDX-License-Identifier: MIT */
/* tests/rank/ranks_support.h - a model over several ranks, and a play of requests on it.
 *
 * A play feeds up to eight requests, in steps that a seed cuts, and keeps all logits of
 * request 0: they must be the same bits however it is played.
 */
#ifndef TESTS_RANK_RANKS_SUPPORT_H
#define TESTS_RANK_RANKS_SUPPORT_H

#include "tests/placement/plan_support.h"

#include "rank/group.h"

enum { N_REQUESTS = 8, N_PROMPT = 45, N_PRODUCED = 4, N_ROWS = N_PROMPT + N_PRODUCED, BATCH = 24 };

struct world {
    struct case_plan c;
    struct group *group;   /* of several ranks */
    struct engine *engine; /* of rank 0        */
};

struct world_options {
    int ranks, threads, exact_math, mla;
    const char *rules;
    enum comm_reduce reduce;
};

static inline void world_plan(struct world *w, const char *path, const struct world_options *o)
{
    char machine[64];
    struct err e = { 0 };

    (void)snprintf(machine, sizeof machine, "host(ram=64G,bw=20G,ranks=%d)", o->ranks);
    *w = (struct world){ 0 };
    support_open(&w->c, path, machine, o->rules);
    model_close(&w->c.model);
    if (model_open(&w->c.model, path, 0, NULL, 0, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    w->c.in.model = w->c.model;
    w->c.in.opt.n_context = N_REQUESTS * 64;
    w->c.in.opt.n_sequences = N_REQUESTS;
    w->c.in.opt.ubatch = BATCH;
    w->c.in.opt.n_threads = o->threads;
    w->c.in.opt.exact_math = o->exact_math;
    w->c.in.opt.cache_type = o->exact_math ? PLAN_CACHE_F32 : PLAN_CACHE_F16;
    support_plan(&w->c);
    if (findings_count(&w->c.findings, FINDING_ERROR, -1) > 0)
        fail_msg("%s: %s", o->rules, w->c.findings.v[0].text);
}

static inline void world_open(struct world *w, const char *path, const struct world_options *o)
{
    struct engine_options engine;
    struct err e = { 0 };

    world_plan(w, path, o);
    engine_options_default(&engine);
    engine.mla = o->mla;
    engine.reduce = o->reduce;
    if (group_create(&w->group, &w->c.plan, &engine, &e) != ERR_OK)
        fail_msg("%d ranks, %s: %s", o->ranks, o->rules ? o->rules : "no rules", e.msg);
    w->engine = group_engine(w->group);
}

/* The same without a plan: one rank that has everything. */
static inline void world_open_alone(struct world *w, const char *path,
                                    const struct world_options *o)
{
    struct engine_options engine;
    struct err e = { 0 };

    *w = (struct world){ 0 };
    engine_options_default(&engine);
    engine.n_threads = o->threads;
    engine.mla = o->mla;
    engine.exact_math = o->exact_math;
    engine.cache_type = o->exact_math ? CACHE_F32 : CACHE_F16;
    engine.n_context = N_REQUESTS * 64;
    engine.n_sequences = N_REQUESTS;
    engine.max_batch = BATCH;
    if (model_open(&w->c.model, path, 0, NULL, 0, &e) != ERR_OK ||
        engine_create(&w->engine, w->c.model, &engine, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

static inline void world_close(struct world *w)
{
    if (!w->group)
        engine_free(&w->engine);
    group_free(&w->group);
    support_close(&w->c);
}

/* ---- Plays -------------------------------------------------------------------- */

static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

static inline int32_t token_of(const struct model *m, int request, int at)
{
    return (int32_t)((at * 97 + request * 31 + 11) % m->hp.n_vocab);
}

static inline int request_length(int request)
{
    return request == 0 ? N_ROWS : 10 + 5 * request;
}

struct play {
    int n_requests, first_seq; /* request r is sequence (first_seq + r) % N_REQUESTS */
    uint32_t seed;
    int bad_request; /* of this request one token is `bad_token`; -1: of none */
    int32_t bad_token;
    int bad_seen[N_REQUESTS]; /* out: tokens with a bad layer */
};

static inline void add_tokens(const struct model *m, const struct play *p, int request, int *fed,
                              int n, struct batch *b)
{
    for (; n > 0 && *fed < request_length(request) && b->n < BATCH; n--, ++*fed) {
        int bad = request == p->bad_request && *fed == 5;
        b->tokens[b->n++] =
            (struct batch_token){ .id = bad ? p->bad_token : token_of(m, request, *fed),
                                  .seq = (p->first_seq + request) % N_REQUESTS,
                                  .want_logits = request == 0 };
    }
}

/* All rows of request 0, [N_ROWS][n_vocab]; the caller frees them. */
static inline float *play(struct world *w, struct play *p)
{
    const struct model *m = w->c.model;
    size_t vocab = (size_t)m->hp.n_vocab;
    float *rows = malloc(N_ROWS * vocab * sizeof *rows);
    float *step = malloc(BATCH * vocab * sizeof *step);
    int fed[N_REQUESTS] = { 0 };
    uint32_t random = p->seed;
    struct batch_token tokens[BATCH];

    assert_true(rows && step);
    memset(p->bad_seen, 0, sizeof p->bad_seen);
    for (int r = 0; r < p->n_requests; r++)
        engine_begin(w->engine, (p->first_seq + r) % N_REQUESTS,
                     r == 0 ? N_PROMPT : request_length(r));
    for (;;) {
        struct batch b = { .tokens = tokens };
        struct err e = { 0 };
        int done = fed[0], first = (int)(next_random(&random) % (uint32_t)p->n_requests);
        for (int i = 0; i < p->n_requests; i++) {
            int r = (first + i) % p->n_requests;
            add_tokens(m, p, r, &fed[r], 1 + (int)(next_random(&random) % 9), &b);
        }
        if (b.n == 0)
            break;
        if (engine_step(w->engine, &b, step, &e) != ERR_OK)
            fail_msg("%s", e.msg);
        memcpy(rows + (size_t)done * vocab, step, (size_t)(fed[0] - done) * vocab * sizeof *rows);
        for (int i = 0; i < b.n; i++)
            p->bad_seen[(tokens[i].seq - p->first_seq + N_REQUESTS) % N_REQUESTS] +=
                tokens[i].bad_layer != 0;
    }
    free(step);
    return rows;
}

static inline size_t rows_bytes(const struct world *w)
{
    return N_ROWS * (size_t)w->c.model->hp.n_vocab * sizeof(float);
}

/* What one rank gives, alone and in one piece. */
static inline float *reference_rows(const char *path, int exact_math, int mla)
{
    const struct world_options o = { .threads = 2, .exact_math = exact_math, .mla = mla };
    struct play p = { .n_requests = 1, .bad_request = -1 };
    struct world w;

    world_open_alone(&w, path, &o);
    float *rows = play(&w, &p);
    world_close(&w);
    return rows;
}

#endif
