/* SPDX-License-Identifier: MIT */
/* placement/cost_parts.h - pieces of the cost model; private to cost*.c. */
#ifndef PLACEMENT_COST_PARTS_H
#define PLACEMENT_COST_PARTS_H

#include "placement/cost.h"

/* What a device reads and multiplies for one token. */
struct work {
    double bytes, macs;
    double codebook_macs; /* those among them of types with large codebooks, on a host */
};

/* One device's part of one layer. */
struct cell {
    struct work attention, ffn, experts; /* ffn: dense, shared, router; experts: all it holds */
    double heads;
    int n_experts;
    double met; /* of its experts, on average, in the step at hand */
};

enum cost_term {
    TERM_ATTENTION_GPU,
    TERM_ATTENTION_HOST,
    TERM_CACHE,
    TERM_ATTENTION_MATH,
    TERM_FFN_GPU,
    TERM_FFN_HOST,
    TERM_EXPERTS_GPU,
    TERM_EXPERTS_HOST,
    TERM_UNEVEN,
    TERM_OUTPUT,
    TERM_SUM_LATENCY,
    TERM_SUM_BYTES,
    TERM_CROSSINGS,
    TERM_LAUNCHES,
    N_COST_TERMS
};

struct costing {
    const struct plan *p;
    const struct efficiency *engine;
    enum plan_phase phase;
    double tokens, requests, depth; /* of the step; depth is the mean context of a token */
    struct cell *cells;             /* [n_layers + 1][n_devices], the last row is the output */
    struct draw *draws;             /* [n_devices] room for cost_draw_max */
    double us[N_COST_TERMS];
};

static inline struct cell *cost_cell(const struct costing *c, int layer, int device)
{
    return c->cells + (int64_t)layer * c->p->n_devices + device;
}

/* cost_work.c: fills the cells from the parts. */
void cost_collect(struct costing *c);
/* How many of its experts every device meets in this step. */
void cost_meet_experts(struct costing *c);
/* Microseconds for n tokens, `columns` of them at a time. */
double cost_work_us(const struct costing *c, int device, struct work w, double columns);
double cost_host_bw(const struct costing *c, const struct plan_device *d);

/* cost_draw.c: devices with n experts, of which each is met with probability q and costs `us`. */
struct draw {
    int n;
    double q, us;
};
/* Expected time of the device that is done last.  Sorts v[n_draws]; *mean becomes the longest of
 * the mean times. */
double cost_draw_max(struct draw *v, int n_draws, double *mean);

/* cost_links.c */
void cost_add_sums(struct costing *c);
double cost_crossing_us(const struct costing *c, int host_device);
int cost_crossings(const struct costing *c, int layer, int host_device, int attention);
void cost_describe_links(const struct costing *c, struct plan_predict *out);

#endif
