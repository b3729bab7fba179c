/* SPDX-License-Identifier: MIT */
/* rank/forward.c - see forward.h.
 *
 * Reading order: the buffers; the phases of attention; of the dense FFN; of the
 * experts; the walk through the layers; the interface.
 */
#include "rank/forward.h"

#include <stdlib.h>
#include <string.h>

#include "rank/head.h"
#include "rank/moe.h"
#include "rank/rope.h"

struct forward {
    const struct hparams *hp;
    const struct weights *weights;
    const struct share *share;
    const struct team *team;
    struct math math;
    struct rope rope;
    struct attention attention;
    struct attention_scratch *scratch; /* [n_threads] */
    struct moe moe;
    struct head head;
    struct comm *comm;
    int64_t stride; /* of its rows */
    int max_logits;
    struct arena arena;
    uint64_t *expert_counts; /* [n_layers][n_experts], or NULL */

    /* Activations; n is max_tokens. */
    float *x;         /* [n][d_model]  the residual stream                          */
    float *h;         /* [n][d_model]  its normalised copy                          */
    int64_t *bad;     /* [n_threads][n] partial sums that were out of range         */
    int64_t *sum_bad; /* [n] of all ranks, in the last sum                          */
    float *angles;    /* [n][d_rope]   cosines and sines of the positions           */
    float *query_a;   /* [n][q_lora]                                                */
    float *query;     /* [n][own heads * (d_nope + d_rope)]                         */
    float *kv;        /* [n][d_c + d_rope]                                          */
    float *heads;     /* [n][own heads * d_v]  output of attention                  */
    float *gate, *up; /* [n][own columns]  dense or shared FFN                      */
    struct columns h_cols, query_a_cols, heads_cols, ffn_cols;

    /* The running step. */
    struct batch *batch;
    float *logits; /* [tokens that want them][n_vocab] */
};

static int64_t query_width(const struct hparams *hp, int heads)
{
    return heads * (hp->d_nope + hp->d_rope);
}

/* Carves all activations; counts them when from->base is NULL. */
static void carve_buffers(struct forward *f, struct carve *from)
{
    const struct hparams *hp = f->hp;
    size_t n = (size_t)f->attention.max_tokens, d = (size_t)hp->d_model;
    size_t width = (size_t)f->share->max_columns;
    int heads = f->share->max_heads;

    f->x = carve_take(from, n * d * sizeof(float));
    f->h = carve_take(from, n * d * sizeof(float));
    f->bad = carve_take(from, (size_t)f->team->n_threads * n * sizeof(int64_t));
    f->sum_bad = carve_take(from, n * sizeof(int64_t));
    f->angles = carve_take(from, n * (size_t)hp->d_rope * sizeof(float));
    f->query_a = carve_take(from, n * (size_t)hp->q_lora_rank * sizeof(float));
    f->query = carve_take(from, n * (size_t)query_width(hp, heads) * sizeof(float));
    f->kv = carve_take(from, n * (size_t)(hp->kv_lora_rank + hp->d_rope) * sizeof(float));
    f->heads = carve_take(from, n * (size_t)(heads * hp->d_v) * sizeof(float));
    f->gate = carve_take(from, n * width * sizeof(float));
    f->up = carve_take(from, n * width * sizeof(float));
    columns_carve(&f->h_cols, from, (int64_t)n, hp->d_model);
    columns_carve(&f->query_a_cols, from, (int64_t)n, hp->q_lora_rank);
    columns_carve(&f->heads_cols, from, (int64_t)n, heads * hp->d_v);
    columns_carve(&f->ffn_cols, from, (int64_t)n, (int64_t)width);
    moe_carve(&f->moe, from, f->attention.max_tokens);
    head_carve(&f->head, from, f->share, f->attention.max_tokens, f->max_logits);
    for (int t = 0; t < f->team->n_threads; t++)
        attention_carve(&f->scratch[t], from, &f->attention);
}

/* ---- What phases share -------------------------------------------------- */

struct worker {
    struct forward *f;
    int thread, n_threads;
    int64_t *bad; /* [n] of this thread */
};

static void meet(const struct worker *w)
{
    comm_team_barrier(w->f->comm, w->n_threads);
}

/* The groups of a matrix that are this thread's. */
static void groups_of(const struct worker *w, const struct matrix *m, int64_t *g0, int64_t *g1)
{
    *g0 = team_begin(m->n_groups, w->thread, w->n_threads);
    *g1 = team_end(m->n_groups, w->thread, w->n_threads);
}

static void multiply(const struct worker *w, const struct matrix *m, const struct columns *x,
                     float *y)
{
    int64_t g0, g1;

    groups_of(w, m, &g0, &g1);
    matrix_mul(&w->f->math, m, 0, g0, g1, x->col, w->f->batch->n, y, m->rows);
}

static void multiply_atoms(const struct worker *w, const struct matrix *m, const struct columns *x)
{
    int64_t g0, g1;

    groups_of(w, m, &g0, &g1);
    matrix_mul_atoms(&w->f->math, m, 0, g0, g1, x->col, w->f->batch->n, comm_rows(w->f->comm),
                     w->f->stride, w->bad);
}

/* Whether any of these matrices meets int8 columns. */
static int any_int8(const struct forward *f, const struct matrix *const *m, int n)
{
    for (int i = 0; i < n; i++)
        if (m[i]->n_groups > 0 && matrix_wants_int8(&f->math, m[i]))
            return 1;
    return 0;
}

/* A sum of all products of a row with odd numbers: what differs anywhere gives another one. */
static uint64_t digest_floats(const float *x, int64_t n)
{
    uint64_t sum = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        sum += bits * (uint64_t)(2 * i + 0x9e3779b97f4a7c15);
    }
    return sum;
}

/* What this rank believes token t to be: before attention with its residual, before the FFN's sum
 * with the experts that the router chose. */
static uint64_t digest(const struct forward *f, int64_t t, int after_ffn, int is_moe)
{
    const struct batch_token *token = &f->batch->tokens[t];
    uint64_t sum = (uint64_t)(uint32_t)token->id * 0xff51afd7ed558ccd +
                   (uint64_t)token->pos * 0xc4ceb9fe1a85ec53 +
                   (uint64_t)token->seq * 0x2545f4914f6cdd1d;

    if (!after_ffn)
        return sum + digest_floats(f->x + t * f->hp->d_model, f->hp->d_model);
    return is_moe ? sum + moe_digest(&f->moe, t) : sum;
}

/* Out-of-range numbers that this thread met join the rows that are summed; few ever do. */
static void report_bad(const struct worker *w, int64_t *rows)
{
    struct forward *f = w->f;

    for (int t = 0; t < f->batch->n; t++)
        if (w->bad[t])
            __atomic_fetch_add(rows + t * f->stride + f->hp->d_model + COMM_BAD, w->bad[t],
                               __ATOMIC_RELAXED);
}

/* All ranks: x += the sums, which then are zero again.  A token with a bad number anywhere is
 * charged to the layer, counted from 1. */
static void settle(const struct worker *w, int layer, int after_ffn)
{
    struct forward *f = w->f;
    int64_t *rows = comm_rows(f->comm), begin = team_begin(f->batch->n, w->thread, w->n_threads);
    int64_t end = team_end(f->batch->n, w->thread, w->n_threads);

    report_bad(w, rows);
    for (int64_t t = begin; f->share->n_ranks > 1 && t < end; t++)
        rows[t * f->stride + f->hp->d_model + COMM_DIGEST] =
            (int64_t)digest(f, t, after_ffn, f->weights->layers[layer - 1].is_moe);
    comm_settle(f->comm, f->math.kernels, f->x, f->batch->n, f->sum_bad, w->thread, w->n_threads);
    for (int64_t t = begin; t < end; t++)
        if (f->sum_bad[t] && !f->batch->tokens[t].bad_layer)
            f->batch->tokens[t].bad_layer = layer;
}

static void normalise(const struct worker *w, const float *weight, int int8)
{
    struct forward *f = w->f;
    int64_t d = f->hp->d_model;

    for (int64_t t = team_begin(f->batch->n, w->thread, w->n_threads);
         t < team_end(f->batch->n, w->thread, w->n_threads); t++) {
        f->math.kernels->rms_norm(f->h + t * d, f->x + t * d, weight, d, (float)f->hp->rms_eps);
        columns_set(&f->h_cols, f->math.kernels, t, f->h + t * d, int8);
    }
}

/* ---- Attention ---------------------------------------------------------- */

/* Latent and rope key of this thread's tokens go to the cache; the queries' low-rank part is
 * normalised. */
static void store_latents(const struct worker *w, const struct layer_weights *l, int layer)
{
    struct forward *f = w->f;
    const struct hparams *hp = f->hp;
    const struct cpu_kernels *k = f->math.kernels;
    int64_t width = hp->kv_lora_rank + hp->d_rope;
    float eps = (float)hp->rms_eps;
    int int8 = hp->q_lora_rank > 0 && matrix_wants_int8(&f->math, &l->q_b);

    for (int64_t t = team_begin(f->batch->n, w->thread, w->n_threads);
         t < team_end(f->batch->n, w->thread, w->n_threads); t++) {
        const struct batch_token *token = &f->batch->tokens[t];
        float *latent = f->kv + t * width, *rope = latent + hp->kv_lora_rank;
        k->rms_norm(latent, latent, l->kv_a_norm, hp->kv_lora_rank, eps);
        rope_rotate(rope, f->angles + t * hp->d_rope, f->rope.n_pairs);
        cache_write(f->attention.cache, k, layer, token->seq, token->pos, latent, rope);
        if (hp->q_lora_rank > 0) {
            float *q = f->query_a + t * hp->q_lora_rank;
            k->rms_norm(q, q, l->q_a_norm, hp->q_lora_rank, eps);
            columns_set(&f->query_a_cols, k, t, q, int8);
        }
    }
}

static void rotate_queries(const struct worker *w, int heads)
{
    struct forward *f = w->f;
    const struct hparams *hp = f->hp;
    int64_t width = query_width(hp, heads), head = hp->d_nope + hp->d_rope;

    for (int64_t t = team_begin(f->batch->n, w->thread, w->n_threads);
         t < team_end(f->batch->n, w->thread, w->n_threads); t++) {
        float *q = f->query + t * width;
        float temperature = rope_query_temperature(hp, f->batch->tokens[t].pos);
        for (int h = 0; h < heads; h++)
            rope_rotate(q + h * head + hp->d_nope, f->angles + t * hp->d_rope, f->rope.n_pairs);
        if (temperature != 1)
            f->math.kernels->scale(q, temperature, width);
    }
}

/* The heads of this rank, from the residual to their part of the sums.  Without heads there is
 * nothing to do, not even a row of the cache to keep. */
static void attend(const struct worker *w, const struct layer_weights *l,
                   const struct share_layer *own)
{
    struct forward *f = w->f;
    int heads = share_heads(own), layer = own->cache_layer;
    int64_t width = heads * f->hp->d_v;
    int int8 = matrix_wants_int8(&f->math, &l->attn_output);
    const struct matrix *inputs[3] = { &l->q_a, &l->q_b, &l->kv_a };

    if (heads == 0)
        return;
    if (w->thread == 0)
        f->heads_cols.width = width;
    normalise(w, l->attn_norm, any_int8(f, inputs, 3));
    meet(w);
    multiply(w, &l->kv_a, &f->h_cols, f->kv);
    if (f->hp->q_lora_rank > 0)
        multiply(w, &l->q_a, &f->h_cols, f->query_a);
    meet(w);
    store_latents(w, l, layer);
    meet(w);
    multiply(w, &l->q_b, f->hp->q_lora_rank > 0 ? &f->query_a_cols : &f->h_cols, f->query);
    meet(w);
    rotate_queries(w, heads);
    meet(w);
    attention_run(&f->attention, l, layer, f->batch, f->query, query_width(f->hp, heads), f->heads,
                  width, &f->scratch[w->thread], w->thread);
    meet(w);
    for (int64_t t = team_begin(f->batch->n, w->thread, w->n_threads);
         t < team_end(f->batch->n, w->thread, w->n_threads); t++)
        columns_set(&f->heads_cols, f->math.kernels, t, f->heads + t * width, int8);
    meet(w);
    multiply_atoms(w, &l->attn_output, &f->heads_cols);
}

/* ---- FFN ---------------------------------------------------------------- */

/* The dense FFN of a leading layer, or the shared expert: its down product joins the sums. */
static void dense_ffn(const struct worker *w, const struct layer_weights *l)
{
    struct forward *f = w->f;
    int64_t width = l->gate.rows;
    int int8 = matrix_wants_int8(&f->math, &l->down);

    multiply(w, &l->gate, &f->h_cols, f->gate);
    multiply(w, &l->up, &f->h_cols, f->up);
    meet(w);
    for (int64_t t = team_begin(f->batch->n, w->thread, w->n_threads);
         t < team_end(f->batch->n, w->thread, w->n_threads); t++) {
        f->math.kernels->swiglu(f->gate + t * width, f->up + t * width, width);
        columns_set(&f->ffn_cols, f->math.kernels, t, f->gate + t * width, int8);
    }
    meet(w);
    multiply_atoms(w, &l->down, &f->ffn_cols);
}

static void feed_forward(const struct worker *w, int layer)
{
    struct forward *f = w->f;
    const struct layer_weights *l = &f->weights->layers[layer];
    const struct share_layer *own = &f->share->layers[layer];
    const struct matrix *inputs[5] = { &l->gate, &l->up, &l->gate_exps, &l->up_exps, &l->router };

    if (l->gate.rows == 0 && !l->is_moe)
        return;
    if (w->thread == 0)
        f->ffn_cols.width = l->gate.rows;
    normalise(w, l->ffn_norm, any_int8(f, inputs, 5));
    meet(w);
    if (l->gate.rows > 0)
        dense_ffn(w, l);
    if (l->is_moe) {
        meet(w);
        moe_run(&f->moe, l, own, f->h_cols.col, f->batch->n, comm_rows(f->comm), w->bad, w->thread,
                w->n_threads);
        if (f->expert_counts && w->thread == 0)
            moe_count(&f->moe, f->batch->n, f->expert_counts + (int64_t)layer * f->hp->n_experts);
    }
}

/* ---- The walk ----------------------------------------------------------- */

static void begin_step(const struct worker *w)
{
    struct forward *f = w->f;
    int64_t d = f->hp->d_model;

    memset(w->bad, 0, (size_t)f->batch->n * sizeof *w->bad);
    for (int64_t t = team_begin(f->batch->n, w->thread, w->n_threads);
         t < team_end(f->batch->n, w->thread, w->n_threads); t++) {
        f->batch->tokens[t].bad_layer = 0;
        weights_embed(f->weights, f->batch->tokens[t].id, f->x + t * d);
        rope_angles(&f->rope, f->batch->tokens[t].pos, f->angles + t * f->hp->d_rope);
    }
}

static void step_thread(void *arg, int thread, int n_threads)
{
    struct forward *f = arg;
    struct worker w = { f, thread, n_threads, f->bad + thread * f->attention.max_tokens };

    begin_step(&w);
    for (int l = 0; l < f->weights->n_layers; l++) {
        attend(&w, &f->weights->layers[l], &f->share->layers[l]);
        settle(&w, l + 1, 0);
        feed_forward(&w, l);
        settle(&w, l + 1, 1);
    }
    const struct head_step head = { .batch = f->batch,
                                    .x = f->x,
                                    .h = f->h,
                                    .cols = &f->h_cols,
                                    .bad = f->bad,
                                    .bad_stride = f->attention.max_tokens,
                                    .logits = f->logits };
    head_run(&f->head, &head, thread, n_threads);
}

void forward_step(struct forward *f, struct batch *b, float *logits)
{
    f->batch = b;
    f->logits = logits;
    team_run(f->team, step_thread, f);
}

/* ---- The interface ------------------------------------------------------ */

static enum err_code forward_init(struct forward *f, const struct hparams *hp,
                                  const struct team *team, const struct forward_options *opt,
                                  struct err *e)
{
    f->hp = hp;
    f->team = team;
    f->share = opt->share;
    f->math = (struct math){ .kernels = opt->kernels, .exact = opt->exact_math };
    f->attention = (struct attention){ .hp = hp,
                                       .max_heads = opt->share->max_heads,
                                       .math = f->math,
                                       .softmax_scale = rope_softmax_scale(hp),
                                       .piece = attention_piece(hp, team->n_threads, opt->amb_mib),
                                       .max_tokens = opt->max_tokens,
                                       .n_threads = team->n_threads };
    f->stride = hp->d_model + COMM_EXTRA;
    f->max_logits = opt->max_logits;
    f->expert_counts = opt->expert_counts;
    moe_init(&f->moe, hp, &f->math, opt->router_groups);
    f->head = (struct head){ .hp = hp, .math = &f->math };
    f->scratch = calloc((size_t)team->n_threads, sizeof *f->scratch);
    if (!f->scratch)
        return err_set(e, ERR_NOMEM, "no memory for the threads' scratch");
    TRY(router_check(hp, e));
    return rope_init(&f->rope, hp, e);
}

enum err_code forward_bytes(size_t *bytes, const struct hparams *hp, const struct team *team,
                            const struct forward_options *opt, struct err *e)
{
    struct forward f = { 0 };
    struct carve count = { 0 };
    enum err_code rc = forward_init(&f, hp, team, opt, e);

    if (rc == ERR_OK)
        carve_buffers(&f, &count);
    free(f.scratch);
    *bytes = count.used;
    return rc;
}

enum err_code forward_create(struct forward **out, const struct hparams *hp,
                             const struct weights *w, struct cache *cache, struct comm *comm,
                             const struct team *team, const struct forward_options *opt,
                             struct err *e)
{
    struct forward *f = calloc(1, sizeof *f);
    size_t bytes;
    enum err_code rc;

    if (!f)
        return err_set(e, ERR_NOMEM, "no memory for the forward pass");
    if ((rc = forward_bytes(&bytes, hp, team, opt, e)) != ERR_OK ||
        (rc = forward_init(f, hp, team, opt, e)) != ERR_OK ||
        (rc = arena_map(&f->arena, bytes, "activations", e)) != ERR_OK)
        goto out;
    f->weights = f->head.weights = w;
    f->comm = f->head.comm = f->attention.comm = f->moe.comm = comm;
    f->attention.cache = cache;
    struct carve from = { .base = f->arena.base };
    carve_buffers(f, &from);
    *out = f;
    f = NULL;
out:
    forward_free(&f);
    return rc;
}

float *forward_logits(const struct forward *f)
{
    return f->head.logits;
}

void forward_free(struct forward **f)
{
    if (!*f)
        return;
    arena_unmap(&(*f)->arena);
    free((*f)->scratch);
    free(*f);
    *f = NULL;
}
