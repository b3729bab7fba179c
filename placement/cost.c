/* SPDX-License-Identifier: MIT */
/* placement/cost.c - see cost.h.
 *
 * Reading order: attention of a layer; its FFN and experts; a step; loading; the prediction.
 */
#include "placement/cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/account.h"
#include "placement/cost_parts.h"

static const char *const term_names[N_COST_TERMS] = {
    [TERM_ATTENTION_GPU] = "attention weights, GPU",
    [TERM_ATTENTION_HOST] = "attention weights, host",
    [TERM_CACHE] = "reading the latent cache",
    [TERM_ATTENTION_MATH] = "attention over the cache",
    [TERM_FFN_GPU] = "dense and shared FFN, GPU",
    [TERM_FFN_HOST] = "dense and shared FFN, host",
    [TERM_EXPERTS_GPU] = "experts, GPU",
    [TERM_EXPERTS_HOST] = "experts, host",
    [TERM_UNEVEN] = "uneven draw of experts",
    [TERM_OUTPUT] = "output matrix",
    [TERM_SUM_LATENCY] = "sums over ranks, latency",
    [TERM_SUM_BYTES] = "sums over ranks, bytes",
    [TERM_CROSSINGS] = "crossings GPU-host",
    [TERM_LAUNCHES] = "launches and barriers",
};

/* ---- Attention --------------------------------------------------------------------- */

static int is_gpu(const struct costing *c, int device)
{
    return c->p->devices[device].kind == DEVICE_GPU;
}

/* Multiply-adds of one token and head: absorbed, or expanded where a step's own share of the
 * expansion makes that cheaper. */
static double attention_macs(const struct costing *c)
{
    const struct hparams *hp = &c->p->model->hp;
    double d_c = (double)hp->kv_lora_rank, per_query = c->tokens / c->requests;
    double absorbed = c->depth * (2 * d_c + (double)hp->d_rope);
    double expanded = c->depth * (double)(hp->d_nope + hp->d_rope + hp->d_v) +
                      c->depth * d_c * (double)(hp->d_nope + hp->d_v) / per_query;

    return fmin(absorbed, expanded);
}

/* Attention over the cache; tells whether reading it or computing takes longer. */
static double cache_us(const struct costing *c, int device, double heads, enum cost_term *term)
{
    const struct plan_device *d = &c->p->devices[device];
    const struct efficiency *x = c->engine;
    double row = (double)account_cache_row(&c->p->model->hp, c->p->opt.cache_type);
    double bw = is_gpu(c, device) ? d->read_bw * x->gpu_bw : cost_host_bw(c, d);
    double rate = is_gpu(c, device) ? d->gpu->bf16_rate * x->gpu_rate : d->int8_rate * x->attention;
    double reading = heads > 0 ? 1e6 * c->requests * c->depth * row / bw : 0;
    double computing = 1e6 * 2 * c->tokens * heads * attention_macs(c) / rate;

    *term = reading > computing ? TERM_CACHE : TERM_ATTENTION_MATH;
    return fmax(reading, computing);
}

static void add_attention(struct costing *c, int layer)
{
    double best = -1, weights = 0, cache = 0, crossings = 0;
    enum cost_term term = TERM_CACHE;
    int slowest = 0;

    for (int d = 0; d < c->p->n_devices; d++) {
        const struct cell *cell = cost_cell(c, layer, d);
        enum cost_term kind;
        double w = cost_work_us(c, d, cell->attention, c->tokens);
        double a = cache_us(c, d, cell->heads, &kind);
        if (cost_crossings(c, layer, d, 1) > 0)
            crossings = fmax(crossings, cost_crossings(c, layer, d, 1) * cost_crossing_us(c, d));
        if (c->engine->serial) {
            c->us[is_gpu(c, d) ? TERM_ATTENTION_GPU : TERM_ATTENTION_HOST] += w;
            c->us[kind] += a;
        } else if (w + a > best) {
            best = w + a;
            weights = w;
            cache = a;
            term = kind;
            slowest = d;
        }
    }
    c->us[TERM_CROSSINGS] += crossings;
    c->us[is_gpu(c, slowest) ? TERM_ATTENTION_GPU : TERM_ATTENTION_HOST] += weights;
    c->us[term] += cache;
}

/* ---- FFN and experts ---------------------------------------------------------------- */

/* One kind of memory in one layer. */
struct side {
    double ffn, experts, mean,
        crossings; /* us; experts: the fullest device, mean: without chance */
};

static struct draw draw_of(const struct costing *c, int device, const struct cell *cell)
{
    const struct hparams *hp = &c->p->model->hp;
    double n = cell->n_experts, q = cell->met / n;
    struct work one = { cell->experts.bytes / n, cell->experts.macs / n,
                        cell->experts.codebook_macs / n };
    double columns = fmax(1, c->tokens * hp->n_experts_used / hp->n_experts / q);

    return (struct draw){ cell->n_experts, q, cost_work_us(c, device, one, columns) };
}

/* Experts of the host are copied to the GPU and computed there, as some engines do. */
static double upload_us(const struct costing *c, int device)
{
    const struct plan *p = c->p;
    const struct plan_device *gpu = &p->devices[p->ranks[p->devices[device].rank].main];

    if (gpu->kind != DEVICE_GPU || c->engine->upload == 0 || c->tokens < c->engine->upload)
        return INFINITY;
    return 1e6 / gpu->gpu->bus_bw;
}

static struct side side_of(struct costing *c, int layer, enum device_kind kind)
{
    const struct plan *p = c->p;
    struct side s = { 0 };
    int n = 0;

    for (int d = 0; d < p->n_devices; d++) {
        const struct cell *cell = cost_cell(c, layer, d);
        if (p->devices[d].kind != kind)
            continue;
        double ffn = cost_work_us(c, d, cell->ffn, c->tokens);
        if (cost_crossings(c, layer, d, 0) > 0)
            s.crossings =
                fmax(s.crossings, cost_crossings(c, layer, d, 0) * cost_crossing_us(c, d));
        s.ffn = c->engine->serial ? s.ffn + ffn : fmax(s.ffn, ffn);
        if (cell->n_experts == 0 || cell->met <= 0)
            continue;
        struct draw one = draw_of(c, d, cell);
        double each = upload_us(c, d) * cell->experts.bytes / cell->n_experts;
        if (each < one.us)
            one.us = each;
        if (c->engine->serial)
            s.experts += one.n * one.q * one.us;
        else
            c->draws[n++] = one;
    }
    if (c->engine->serial)
        s.mean = s.experts;
    else if (n > 0)
        s.experts = cost_draw_max(c->draws, n, &s.mean);
    return s;
}

static void add_side(struct costing *c, const struct side *s, enum device_kind kind)
{
    c->us[kind == DEVICE_GPU ? TERM_FFN_GPU : TERM_FFN_HOST] += s->ffn;
    c->us[kind == DEVICE_GPU ? TERM_EXPERTS_GPU : TERM_EXPERTS_HOST] += s->mean;
    c->us[TERM_UNEVEN] += s->experts - s->mean;
    c->us[TERM_CROSSINGS] += s->crossings;
}

static void add_ffn(struct costing *c, int layer)
{
    struct side gpu = side_of(c, layer, DEVICE_GPU), host = side_of(c, layer, DEVICE_HOST);

    if (c->engine->serial) {
        add_side(c, &gpu, DEVICE_GPU);
        add_side(c, &host, DEVICE_HOST);
    } else if (gpu.ffn + gpu.experts >= host.ffn + host.experts + host.crossings) {
        add_side(c, &gpu, DEVICE_GPU);
    } else {
        add_side(c, &host, DEVICE_HOST);
    }
}

/* ---- A step -------------------------------------------------------------------------- */

static void add_output(struct costing *c)
{
    double most = 0, sum = 0;

    for (int d = 0; d < c->p->n_devices; d++) {
        double us = cost_work_us(c, d, cost_cell(c, c->p->model->hp.n_layers, d)->ffn, c->requests);
        most = fmax(most, us);
        sum += us;
    }
    c->us[TERM_OUTPUT] += c->engine->serial ? sum : most;
}

static void step(struct costing *c)
{
    const struct plan *p = c->p;
    const struct hparams *hp = &p->model->hp;
    int on_gpu = 0;

    memset(c->us, 0, sizeof c->us);
    cost_meet_experts(c);
    for (int l = 0; l < hp->n_layers; l++) {
        add_attention(c, l);
        add_ffn(c, l);
    }
    add_output(c);
    cost_add_sums(c);
    for (int r = 0; r < p->n_ranks; r++)
        on_gpu |= is_gpu(c, p->ranks[r].main);
    c->us[TERM_LAUNCHES] += hp->n_layers * (on_gpu ? c->engine->gpu_us : c->engine->host_us);
}

/* ---- Loading --------------------------------------------------------------------------- */

/* Every host reads its own bytes from its own disk, what stands on every rank once; copies to GPUs
 * overlap with it. */
static void load_terms(const struct plan *p, double *reading, double *copying)
{
    *reading = *copying = 0;
    for (int i = 0; i < p->inventory->n; i++) {
        double file = 0, copied = 0, bus = INFINITY;
        int ranks = p->inventory->hosts[i].ranks;
        for (int k = 0; k < p->n_parts; k++) {
            const struct plan_device *d = &p->devices[p->parts[k].device];
            if (d->host != i)
                continue;
            file += (double)p->parts[k].file_bytes / (p->parts[k].axis == AXIS_ALL ? ranks : 1);
            if (d->kind == DEVICE_GPU) {
                copied += (double)p->parts[k].file_bytes / ranks;
                bus = fmin(bus, d->gpu->bus_bw);
            }
        }
        *reading = fmax(*reading, 1e6 * file / p->inventory->hosts[i].disk_bw);
        *copying = fmax(*copying, 1e6 * copied / bus);
    }
}

/* ---- The prediction ---------------------------------------------------------------------- */

static double put_term(struct plan_predict *out, enum plan_phase phase, const char *name, double us)
{
    if (us > 0 && out->n_terms < PLAN_MAX_TERMS) {
        struct plan_term *t = &out->terms[out->n_terms++];
        t->phase = phase;
        t->us = us;
        snprintf(t->name, sizeof t->name, "%s", name);
    }
    return us;
}

static int longer_first(const void *a, const void *b)
{
    const struct plan_term *x = a, *y = b;

    if (x->phase != y->phase)
        return (int)x->phase - (int)y->phase;
    return (x->us < y->us) - (x->us > y->us);
}

static double put_step(struct costing *c, struct plan_predict *out)
{
    double total = 0;

    step(c);
    for (int i = 0; i < N_COST_TERMS; i++)
        total += put_term(out, c->phase, term_names[i], c->us[i]);
    return total > 0 ? 1e6 * c->tokens / total : 0;
}

static void predict(struct costing *c, struct plan_predict *out)
{
    const struct plan_options *o = &c->p->opt;
    double reading, copying;

    *out = (struct plan_predict){ .batch = o->batch > 0 ? o->batch : 1, .depth = o->depth };
    c->phase = PHASE_DECODE;
    c->tokens = c->requests = out->batch;
    c->depth = (double)o->depth;
    out->decode_tps = put_step(c, out);
    cost_describe_links(c, out);
    c->phase = PHASE_PREFILL;
    c->tokens = o->ubatch > 0 ? o->ubatch : 1;
    c->requests = 1;
    c->depth = (double)o->depth + c->tokens / 2;
    out->prefill_tps = put_step(c, out);
    load_terms(c->p, &reading, &copying);
    if (reading >= copying)
        put_term(out, PHASE_LOAD, "reading the file", reading);
    else
        put_term(out, PHASE_LOAD, "copies to the GPUs", copying);
    out->load_s = fmax(reading, copying) / 1e6;
    qsort(out->terms, (size_t)out->n_terms, sizeof *out->terms, longer_first);
}

enum err_code cost_predict(struct plan *p, const struct efficiency *engine, struct err *e)
{
    size_t rows = (size_t)p->model->hp.n_layers + 1, devices = (size_t)p->n_devices;
    struct costing c = { .p = p, .engine = engine ? engine : efficiency_by_name("latentd") };

    c.cells = calloc(rows * devices, sizeof *c.cells);
    c.draws = calloc(devices, sizeof *c.draws);
    int ok = c.cells && c.draws;
    if (ok) {
        cost_collect(&c);
        predict(&c, &p->predict);
    }
    free(c.cells);
    free(c.draws);
    return ok ? ERR_OK
              : err_set(e, ERR_NOMEM, "no memory to predict speed on %d devices", p->n_devices);
}

const struct plan_term *cost_dominating(const struct plan_predict *p, enum plan_phase phase)
{
    for (int i = 0; i < p->n_terms; i++)
        if (p->terms[i].phase == phase)
            return &p->terms[i];
    return NULL;
}
