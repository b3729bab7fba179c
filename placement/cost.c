/* SPDX-License-Identifier: MIT */
/* placement/cost.c - predicted time of a step, as a sum of named terms.
 *
 * Every layer is a chain: attention, sum over ranks, FFN, sum over ranks.  Inside a link of the
 * chain devices work side by side and the slowest counts; each needs the longer of reading its
 * weights and multiplying.  Which experts a step meets is chance: the slowest device's share is
 * an expected maximum.
 *
 * Reading order: what each device does; the expected maximum; one step; the three predictions.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/place.h"

struct engine_row {
    const char *name;
    double host_bw, host_rate, gpu_bw, gpu_rate, host_us, gpu_us;
    int one_at_a_time;
};
static const struct engine_row engines[] = {
#define X(name, hbw, hrate, gbw, grate, hus, gus, one) \
    { #name, hbw, hrate, gbw, grate, hus, gus, one },
#include "placement/engines.def"
#undef X
};

/* Weights of one phase of a layer on a device. */
struct work {
    double bytes, weights; /* read; multiply-adds of a token */
};

struct costing {
    struct planner *k;
    const struct engine_row *engine;
    struct work *attention, *ffn; /* [n_layers][n_devices]                    */
    struct work *output;          /* [n_devices]                              */
    struct work *expert;          /* [n_layers][2] one expert, by device kind */
    double *cdf;                  /* [n_experts + 1]                          */
};

/* ---- What each device does ------------------------------------------------------- */

static double bandwidth(const struct costing *c, const struct plan_device *d)
{
    return d->read_bw * (d->kind == DEVICE_GPU ? c->engine->gpu_bw : c->engine->host_bw);
}

static double matrix_rate(const struct costing *c, const struct plan_device *d)
{
    return d->kind == DEVICE_GPU ? d->gpu->bf16_rate * c->engine->gpu_rate
                                 : d->int8_rate * c->engine->host_rate;
}

static double seconds(const struct costing *c, int device, struct work w, double tokens)
{
    const struct plan_device *d = &c->k->p->devices[device];
    double read = w.bytes / bandwidth(c, d), compute = 2 * w.weights * tokens / matrix_rate(c, d);

    return read > compute ? read : compute;
}

static int is_expert_role(int role)
{
    return role == ROLE_GATE_EXPS || role == ROLE_UP_EXPS || role == ROLE_GATE_UP_EXPS ||
           role == ROLE_DOWN_EXPS;
}

static int is_attention_role(int role)
{
    return role >= ROLE_ATTN_NORM && role <= ROLE_ATTN_OUTPUT;
}

static void add_work(struct work *w, double bytes, double weights)
{
    w->bytes += bytes;
    w->weights += weights;
}

/* A copy that the ranks of a host share is computed by all of them, each some of its rows. */
static void add_part_work(struct costing *c, const struct plan_part *part)
{
    const struct plan *p = c->k->p;
    const struct plan_tensor *t = &p->tensors[part->tensor];
    const struct plan_device *d = &p->devices[part->device];
    double bits = 8.0 * (double)t->t->bytes /
                  (double)(t->t->dim[0] * t->t->dim[1] * t->t->dim[2] * t->t->dim[3]);
    double weights = 8.0 * (double)part->file_bytes / bits;
    int is_output = part->axis == AXIS_VOCAB, n = 1;

    if (t->layer < 0 && !is_output)
        return;
    struct work *row = is_output ? c->output
                       : is_attention_role(t->role)
                           ? c->attention + (int64_t)t->layer * p->n_devices
                           : c->ffn + (int64_t)t->layer * p->n_devices;
    if (part->axis == AXIS_ALL && d->kind == DEVICE_HOST)
        n = p->inventory->hosts[d->host].ranks;
    for (int i = 0; i < n; i++)
        add_work(&row[part->device + i], (double)part->memory_bytes / n, weights / n);
}

static void add_expert_work(struct costing *c, const struct plan_tensor *t)
{
    const struct plan *p = c->k->p;
    struct extent one = extent_whole(p->model, t);

    one.slabs = 1;
    for (int kind = 0; kind < 2; kind++)
        add_work(&c->expert[2 * t->layer + kind],
                 (double)account_memory(p->model, t, (enum device_kind)kind, one),
                 (double)(one.rows * one.cols));
}

/* ---- Expected maximum --------------------------------------------------------------- */

/* P(X <= m) for X ~ Binomial(n, q), m = 0..n. */
static void binomial_cdf(double *cdf, int n, double q)
{
    double log_p = n * log1p(-q), sum = 0;

    for (int m = 0; m <= n; m++) {
        sum += exp(log_p);
        cdf[m] = sum < 1 ? sum : 1;
        log_p += log((double)(n - m)) - log((double)(m + 1)) + log(q) - log1p(-q);
    }
}

/* Expected seconds of the device of this kind that is done last with its experts of a layer. */
static double expected_experts(struct costing *c, int layer, enum device_kind kind, double tokens)
{
    const struct plan *p = c->k->p;
    const struct hparams *hp = &p->model->hp;
    const double *share = c->k->expert_share + (int64_t)layer * p->n_devices;
    int first = kind == DEVICE_GPU ? p->n_ranks : 0;
    int last = kind == DEVICE_GPU ? p->n_devices : p->n_ranks;
    double used = (double)hp->n_experts_used / hp->n_experts;
    double q = 1 - pow(1 - used, tokens), tick = INFINITY, most = 0, total = 0;
    int holders = 0;

    for (int d = first; d < last; d++) {
        if (share[d] == 0)
            continue;
        /* An active expert is read once and multiplied with its tokens. */
        double s = seconds(c, d, c->expert[2 * layer + kind], tokens * used / q);
        tick = s < tick ? s : tick;
        most = s * share[d] > most ? s * share[d] : most;
        total += s * share[d] * q;
        holders++;
    }
    if (holders <= 1 || q > 0.999)
        return holders <= 1 ? total : most * q;
    if (c->engine->one_at_a_time && kind == DEVICE_GPU)
        return total;

    double expected = 0, last_share = -1, last_s = -1;
    for (int i = 0; i * tick < most; i++) {
        double below = 1, t = i * tick;
        for (int d = first; d < last && below > 0; d++) {
            if (share[d] == 0)
                continue;
            double s = seconds(c, d, c->expert[2 * layer + kind], tokens * used / q);
            if (share[d] != last_share || s != last_s)
                binomial_cdf(c->cdf, (int)share[d], q);
            last_share = share[d];
            last_s = s;
            int m = (int)(t / s + 1e-9);
            below *= m < (int)share[d] ? c->cdf[m] : 1;
        }
        expected += (1 - below) * tick;
        if (below > 1 - 1e-9)
            break;
    }
    return expected;
}

/* ---- One step -------------------------------------------------------------------------- */

enum term {
    TERM_ATTENTION,
    TERM_CACHE,
    TERM_SHARED,
    TERM_HOST_EXPERTS,
    TERM_GPU_EXPERTS,
    TERM_OUTPUT,
    TERM_SUMS,
    TERM_CROSSINGS,
    TERM_LAYERS,
    N_TERMS
};
static const char *const term_names[N_TERMS] = { "attention weights",    "latent cache",
                                                 "dense and shared FFN", "experts in host memory",
                                                 "experts on GPUs",      "output matrix",
                                                 "sums over ranks",      "crossings host-GPU",
                                                 "launches, barriers" };

/* The slowest device, or all of them where one works at a time. */
static double slowest(const struct costing *c, const struct work *row, double tokens)
{
    double longest = 0, total = 0;

    for (int d = 0; d < c->k->p->n_devices; d++) {
        double s = row[d].bytes > 0 ? seconds(c, d, row[d], tokens) : 0;
        longest = s > longest ? s : longest;
        total += s;
    }
    return c->engine->one_at_a_time ? total : longest;
}

/* Attention over the cache of `depth` positions for every token, one layer, slowest rank. */
static double cache_seconds(const struct costing *c, double tokens, double requests, double depth)
{
    const struct plan *p = c->k->p;
    const struct hparams *hp = &p->model->hp;
    double row = (double)account_cache_row(hp, p->opt.cache_type), longest = 0;

    for (int r = 0; r < p->n_ranks; r++) {
        const struct plan_device *d = &p->devices[p->ranks[r].main];
        double macs = tokens * depth * c->k->rank_heads[r] *
                      (tokens > requests ? (double)(hp->d_nope + hp->d_rope + hp->d_v)
                                         : (double)(2 * hp->kv_lora_rank + hp->d_rope));
        double rate = d->kind == DEVICE_GPU ? d->gpu->bf16_rate * c->engine->gpu_rate
                                            : d->int8_rate * c->engine->host_rate / 4; /* floats */
        double read = requests * depth * row / bandwidth(c, d), compute = 2 * macs / rate;
        double s = read > compute ? read : compute;
        longest = s > longest ? s : longest;
    }
    return longest;
}

/* One sum over all ranks of a row for every token. */
static double sum_seconds(const struct costing *c, double tokens)
{
    const struct plan *p = c->k->p;
    const struct inventory *inv = p->inventory;
    double bytes = tokens * (double)p->model->hp.d_model * 8, s = 0;

    if (p->n_ranks == 1)
        return 0;
    if (inv->n > 1) {
        const struct host *h = &inv->hosts[0];
        double hops = 2 * ceil(log2(inv->n));
        s += hops * h->link_us * 1e-6 + 2 * bytes * (inv->n - 1) / inv->n / h->link_bw;
    }
    if (p->n_ranks > inv->n) {
        const struct plan_device *d = &p->devices[p->ranks[0].main];
        double n = (double)p->n_ranks / inv->n;
        double us = d->gpu ? d->gpu->link_us : 5, bw = d->gpu ? d->gpu->link_bw : d->read_bw / 2;
        s += us * 1e-6 + 2 * bytes * (n - 1) / n / bw;
    }
    return s;
}

/* Whether some rank attends on a GPU while experts of the layer lie in host memory. */
static int crosses(const struct costing *c, int layer)
{
    const struct plan *p = c->k->p;

    for (int r = 0; r < p->n_ranks; r++)
        if (p->ranks[r].main != r && c->k->expert_share[(int64_t)layer * p->n_devices + r] > 0)
            return 1;
    return 0;
}

static double crossing_seconds(const struct costing *c, double tokens)
{
    const struct plan_device *d = &c->k->p->devices[c->k->p->ranks[0].main];
    double bus = d->gpu ? d->gpu->bus_bw : 25e9;

    return 10e-6 + tokens * (double)c->k->p->model->hp.d_model * 4 / bus;
}

static void moe_terms(struct costing *c, int layer, double tokens, double *term)
{
    const struct plan *p = c->k->p;
    const struct work *row = c->ffn + (int64_t)layer * p->n_devices;
    double shared[2] = { 0, 0 }, experts[2];

    for (int d = 0; d < p->n_devices; d++) {
        double s = row[d].bytes > 0 ? seconds(c, d, row[d], tokens) : 0;
        enum device_kind kind = p->devices[d].kind;
        shared[kind] = s > shared[kind] ? s : shared[kind];
    }
    for (int kind = 0; kind < 2; kind++)
        experts[kind] = expected_experts(c, layer, (enum device_kind)kind, tokens);
    int gpu_last =
        shared[DEVICE_GPU] + experts[DEVICE_GPU] > shared[DEVICE_HOST] + experts[DEVICE_HOST];
    term[TERM_SHARED] += shared[gpu_last ? DEVICE_GPU : DEVICE_HOST];
    term[gpu_last ? TERM_GPU_EXPERTS : TERM_HOST_EXPERTS] += experts[gpu_last];
    if (crosses(c, layer))
        term[TERM_CROSSINGS] += 2 * crossing_seconds(c, tokens);
}

/* Seconds of one step by term: `tokens` of `requests` requests at this depth. */
static void step_terms(struct costing *c, double tokens, double requests, double depth,
                       double *term)
{
    const struct plan *p = c->k->p;
    const struct hparams *hp = &p->model->hp;
    const struct plan_device *d = &p->devices[p->ranks[0].main];
    double layer_us = d->kind == DEVICE_GPU ? c->engine->gpu_us : c->engine->host_us;

    memset(term, 0, N_TERMS * sizeof *term);
    for (int l = 0; l < hp->n_layers; l++) {
        term[TERM_ATTENTION] += slowest(c, c->attention + (int64_t)l * p->n_devices, tokens);
        term[TERM_CACHE] += cache_seconds(c, tokens, requests, depth);
        if (l < hp->n_dense)
            term[TERM_SHARED] += slowest(c, c->ffn + (int64_t)l * p->n_devices, tokens);
        else
            moe_terms(c, l, tokens, term);
        term[TERM_SUMS] += 2 * sum_seconds(c, tokens);
        term[TERM_LAYERS] += layer_us * 1e-6;
    }
    term[TERM_OUTPUT] += slowest(c, c->output, requests);
}

/* ---- Predictions ------------------------------------------------------------------------- */

static double put_terms(struct plan_predict *out, enum plan_phase phase, const double *term)
{
    double total = 0;

    for (int i = 0; i < N_TERMS; i++) {
        total += term[i];
        if (term[i] <= 0 || out->n_terms == PLAN_MAX_TERMS)
            continue;
        struct plan_term *t = &out->terms[out->n_terms++];
        *t = (struct plan_term){ .phase = phase, .us = 1e6 * term[i] };
        snprintf(t->name, sizeof t->name, "%s", term_names[i]);
    }
    return total;
}

/* Every host reads its own bytes from its own disk. */
static double load_seconds(const struct plan *p)
{
    double longest = 0;

    for (int h = 0; h < p->inventory->n; h++) {
        double bytes = 0;
        for (int i = 0; i < p->n_parts; i++)
            if (p->devices[p->parts[i].device].host == h)
                bytes += (double)p->parts[i].file_bytes;
        double s = bytes / p->inventory->hosts[h].disk_bw;
        longest = s > longest ? s : longest;
    }
    return longest;
}

static void predict(struct costing *c)
{
    struct plan *p = c->k->p;
    struct plan_predict *out = &p->predict;
    const struct hparams *hp = &p->model->hp;
    double term[N_TERMS], n = p->opt.ubatch, batch = p->opt.batch;

    *out = (struct plan_predict){ .batch = p->opt.batch, .depth = p->opt.depth };
    step_terms(c, batch, batch, (double)p->opt.depth, term);
    out->decode_tps = batch / put_terms(out, PHASE_DECODE, term);
    step_terms(c, n, 1, (double)p->opt.depth + n / 2, term);
    out->prefill_tps = n / put_terms(out, PHASE_PREFILL, term);
    out->load_s = load_seconds(p);
    out->terms[out->n_terms < PLAN_MAX_TERMS ? out->n_terms++ : out->n_terms - 1] =
        (struct plan_term){ PHASE_LOAD, "reading the file", 1e6 * out->load_s };
    for (int l = hp->n_dense; l < hp->n_layers; l++)
        out->crossings += 2 * crosses(c, l);
    if (p->n_ranks > 1) {
        out->link_messages = 2.0 * hp->n_layers * 2 * (p->n_ranks - 1);
        out->link_bytes = out->link_messages * (double)hp->d_model * 8;
    }
}

enum err_code place_predict(struct planner *k, struct err *e)
{
    struct plan *p = k->p;
    const struct hparams *hp = &p->model->hp;
    size_t cells = (size_t)hp->n_layers * (size_t)p->n_devices;
    struct costing c = { .k = k, .engine = &engines[0] };

    c.attention = calloc(cells, sizeof *c.attention);
    c.ffn = calloc(cells, sizeof *c.ffn);
    c.output = calloc((size_t)p->n_devices, sizeof *c.output);
    c.expert = calloc(2 * (size_t)hp->n_layers, sizeof *c.expert);
    c.cdf = calloc((size_t)hp->n_experts + 2, sizeof *c.cdf);
    int ok = c.attention && c.ffn && c.output && c.expert && c.cdf;
    for (int i = 0; ok && i < p->n_parts; i++)
        if (!is_expert_role(p->tensors[p->parts[i].tensor].role))
            add_part_work(&c, &p->parts[i]);
    for (int t = 0; ok && t < p->n_tensors; t++)
        if (is_expert_role(p->tensors[t].role))
            add_expert_work(&c, &p->tensors[t]);
    if (ok)
        predict(&c);
    free(c.attention);
    free(c.ffn);
    free(c.output);
    free(c.expert);
    free(c.cdf);
    return ok ? ERR_OK : err_set(e, ERR_NOMEM, "no memory to predict speed");
}
