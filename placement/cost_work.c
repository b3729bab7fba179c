/* SPDX-License-Identifier: MIT */
/* placement/cost_work.c - what every device reads and multiplies, layer by layer. */
#include <math.h>

#include "placement/cost_parts.h"

/* ---- Parts to cells ------------------------------------------------------------ */

static int is_expert_role(int role)
{
    return role == ROLE_GATE_EXPS || role == ROLE_UP_EXPS || role == ROLE_GATE_UP_EXPS ||
           role == ROLE_DOWN_EXPS;
}

static int is_attention_role(int role)
{
    return role >= ROLE_ATTN_NORM && role <= ROLE_ATTN_OUTPUT;
}

static struct work work_of(const struct costing *c, const struct plan_part *part)
{
    const struct gguf_tensor *t = c->p->tensors[part->tensor].t;
    double values = (double)t->dim[0] * (double)tensor_rows(t);
    struct work w = { .bytes = (double)part->memory_bytes,
                      .macs = values * (double)part->file_bytes / (double)t->bytes };

    if (c->p->devices[part->device].kind == DEVICE_HOST &&
        efficiency_is_codebook(quant_info[t->type].plain) && t->type == quant_info[t->type].plain)
        w.codebook_macs = w.macs;
    return w;
}

static void add(struct work *to, struct work w)
{
    to->bytes += w.bytes;
    to->macs += w.macs;
    to->codebook_macs += w.codebook_macs;
}

static int64_t part_units(const struct plan *p, const struct plan_part *part)
{
    int64_t n = 0;

    for (int i = 0; i < part->n_ranges; i++)
        n += p->ranges[part->first_range + i].end - p->ranges[part->first_range + i].begin;
    return n;
}

static void collect_part(struct costing *c, const struct plan_part *part)
{
    const struct plan *p = c->p;
    const struct plan_tensor *t = &p->tensors[part->tensor];
    struct work w = work_of(c, part);

    if (part->axis == AXIS_VOCAB) {
        add(&cost_cell(c, p->model->hp.n_layers, part->device)->ffn, w);
        return;
    }
    if (t->layer < 0)
        return; /* one row of the embedding, one vector */
    if (is_expert_role(t->role)) {
        struct cell *cell = cost_cell(c, t->layer, part->device);
        add(&cell->experts, w);
        if (t->role == ROLE_DOWN_EXPS)
            cell->n_experts += (int)part_units(p, part);
        return;
    }
    struct cell *cell = cost_cell(c, t->layer, part->device);
    add(is_attention_role(t->role) ? &cell->attention : &cell->ffn, w);
    if (t->role == ROLE_ATTN_OUTPUT)
        cost_cell(c, t->layer, part->device)->heads += (double)part_units(p, part);
}

void cost_collect(struct costing *c)
{
    for (int i = 0; i < c->p->n_parts; i++)
        collect_part(c, &c->p->parts[i]);
}

/* ---- Experts met ----------------------------------------------------------------- */

static double met_of_range(const struct costing *c, int layer, struct plan_range r)
{
    const struct hparams *hp = &c->p->model->hp;
    const struct hot *hot = c->p->opt.hot;
    double total = 0, met = 0, used = hp->n_experts_used;

    for (int x = 0; hot && x < hp->n_experts; x++)
        total += (double)hot->count[(int64_t)layer * hp->n_experts + x];
    if (!hot || total <= 0)
        return (double)(r.end - r.begin) * (1 - pow(1 - used / hp->n_experts, c->tokens));
    for (int64_t x = r.begin; x < r.end; x++) {
        double q = used * (double)hot->count[(int64_t)layer * hp->n_experts + x] / total;
        met += 1 - pow(1 - (q < 1 ? q : 1), c->tokens);
    }
    return met;
}

void cost_meet_experts(struct costing *c)
{
    const struct plan *p = c->p;

    for (int64_t i = 0; i < (int64_t)p->model->hp.n_layers * p->n_devices; i++)
        c->cells[i].met = 0;
    for (int i = 0; i < p->n_parts; i++) {
        const struct plan_part *part = &p->parts[i];
        const struct plan_tensor *t = &p->tensors[part->tensor];
        if (t->role != ROLE_DOWN_EXPS)
            continue;
        for (int r = 0; r < part->n_ranges; r++)
            cost_cell(c, t->layer, part->device)->met +=
                met_of_range(c, t->layer, p->ranges[part->first_range + r]);
    }
}

/* ---- Rates ------------------------------------------------------------------------- */

/* A rank that spans NUMA nodes gets little from the memory of the other nodes. */
double cost_host_bw(const struct costing *c, const struct plan_device *d)
{
    const struct host *h = &c->p->inventory->hosts[d->host];
    double nodes = (double)h->numa / h->ranks;

    if (nodes <= 1)
        return d->read_bw * c->engine->host_bw;
    return d->read_bw / nodes * (1 + (nodes - 1) * c->engine->numa) * c->engine->host_bw;
}

/* 0 for a product with one column, 1 with 64 and more. */
static double many_columns(double columns)
{
    enum { MANY = 64 };

    return columns >= MANY ? 1 : columns <= 1 ? 0 : log(columns) / log(MANY);
}

static double multiplying_us(const struct costing *c, const struct plan_device *d, struct work w,
                             double columns)
{
    const struct efficiency *x = c->engine;
    double many = many_columns(columns);

    if (d->kind == DEVICE_GPU)
        return 1e6 * 2 * w.macs * columns / (d->gpu->bf16_rate * x->gpu_rate);
    /* A codebook is looked up once for all columns. */
    double macs = w.macs + w.codebook_macs * (1 / x->codebook - 1) * (1 - many);
    return 1e6 * 2 * macs * columns /
           (d->int8_rate * (x->host_few + (x->host_many - x->host_few) * many));
}

double cost_work_us(const struct costing *c, int device, struct work w, double columns)
{
    const struct plan_device *d = &c->p->devices[device];
    double bw = d->kind == DEVICE_GPU ? d->read_bw * c->engine->gpu_bw : cost_host_bw(c, d);
    double reading = 1e6 * w.bytes / bw;
    double computing = multiplying_us(c, d, w, columns);

    if (c->phase == PHASE_PREFILL)
        return reading + computing;
    return reading > computing ? reading : computing;
}
