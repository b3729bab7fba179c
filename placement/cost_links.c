/* SPDX-License-Identifier: MIT */
/* placement/cost_links.c - what travels: sums over ranks, crossings between GPU and host.
 *
 * A sum over N ranks is a reduce-scatter of exact 64-bit partials and a gather of the rounded
 * f32 values: every rank sends (N - 1) / N of 8 and of 4 bytes a value.  Over hosts it takes
 * 2 log2(hosts) messages one after the other, inside a host the latency of the GPU link, or of
 * shared memory.
 */
#include <math.h>
#include <stdio.h>

#include "placement/cost_parts.h"

enum { SUM_BYTES = 8 + 4, SUMS_PER_LAYER = 2 };

/* What no sum was measured of, a sum by ranks that share memory takes for any number of rows:
 * barriers of spinning threads. */
static const double shared_sum_us = 5;

static double row_bytes(const struct costing *c)
{
    return c->tokens * (double)c->p->model->hp.d_model;
}

/* Ranks of the host that has most. */
static int ranks_together(const struct plan *p)
{
    int most = 0;

    for (int h = 0; h < p->inventory->n; h++)
        most = p->inventory->hosts[h].ranks > most ? p->inventory->hosts[h].ranks : most;
    return most;
}

/* The slowest link between hosts. */
static void host_link(const struct plan *p, double *bw, double *us)
{
    *bw = INFINITY;
    *us = 0;
    for (int h = 0; h < p->inventory->n; h++) {
        *bw = fmin(*bw, p->inventory->hosts[h].link_bw);
        *us = fmax(*us, p->inventory->hosts[h].link_us);
    }
}

/* The slowest link between ranks of one host. */
static void inner_link(const struct costing *c, double *bw, double *us)
{
    const struct plan *p = c->p;

    *bw = INFINITY;
    *us = 0;
    for (int r = 0; r < p->n_ranks; r++) {
        const struct plan_device *d = &p->devices[p->ranks[r].main];
        const struct host *h = &p->inventory->hosts[p->ranks[r].host];
        double sum_bw = h->sum_bw > 0 ? h->sum_bw : cost_host_bw(c, d) / 2;
        double sum_us = h->sum_bw > 0 ? h->sum_us : shared_sum_us;
        int gpu = d->kind == DEVICE_GPU;
        *bw = fmin(*bw, gpu ? d->gpu->link_bw : sum_bw);
        *us = fmax(*us, gpu ? d->gpu->link_us : sum_us);
    }
}

void cost_add_sums(struct costing *c)
{
    const struct plan *p = c->p;
    double hosts = p->inventory->n, together = ranks_together(p), bw, us;
    double sums = SUMS_PER_LAYER * (double)p->model->hp.n_layers, bytes = row_bytes(c) * SUM_BYTES;

    if (together > 1) {
        inner_link(c, &bw, &us);
        c->us[TERM_SUM_LATENCY] += sums * us;
        c->us[TERM_SUM_BYTES] += sums * 1e6 * bytes * (together - 1) / together / bw;
    }
    if (hosts > 1) {
        host_link(p, &bw, &us);
        c->us[TERM_SUM_LATENCY] += sums * 2 * ceil(log2(hosts)) * us;
        c->us[TERM_SUM_BYTES] += sums * 1e6 * bytes * (hosts - 1) / hosts / bw;
    }
}

double cost_crossing_us(const struct costing *c, int host_device)
{
    const struct plan *p = c->p;
    const struct plan_device *main = &p->devices[p->ranks[p->devices[host_device].rank].main];

    if (main->kind != DEVICE_GPU)
        return 0;
    return c->engine->crossing_us + 1e6 * row_bytes(c) * 4 / main->gpu->bus_bw;
}

/* Work of a layer that lies in host memory of a rank which attends on a GPU: activations go there
 * and back for the FFN, and again for attention. */
int cost_crossings(const struct costing *c, int layer, int host_device, int attention)
{
    const struct cell *cell = cost_cell(c, layer, host_device);
    const struct plan_device *d = &c->p->devices[host_device];

    if (d->kind != DEVICE_HOST || c->p->ranks[d->rank].main == host_device)
        return 0;
    return 2 * (attention ? cell->attention.bytes > 0 : cell->n_experts > 0 || cell->ffn.bytes > 0);
}

static void add_link(struct plan_predict *out, const char *name, double bytes, double messages)
{
    struct plan_link *l = &out->links[out->n_links++];

    snprintf(l->name, sizeof l->name, "%s", name);
    l->bytes = bytes;
    l->messages = messages;
}

/* A token, by the busiest rank of each kind of link. */
void cost_describe_links(const struct costing *c, struct plan_predict *out)
{
    const struct plan *p = c->p;
    double hosts = p->inventory->n, together = ranks_together(p);
    double row = row_bytes(c) / c->tokens, sums = SUMS_PER_LAYER * (double)p->model->hp.n_layers;

    for (int l = 0; l < p->model->hp.n_layers; l++) {
        int most[2] = { 0, 0 };
        for (int r = 0; r < p->n_ranks; r++)
            for (int a = 0; a < 2; a++)
                if (cost_crossings(c, l, r, a) > most[a])
                    most[a] = cost_crossings(c, l, r, a);
        out->crossings += most[0] + most[1];
    }
    if (out->crossings > 0)
        add_link(out, "GPU and host memory", out->crossings * row * 4, out->crossings);
    if (together > 1)
        add_link(out, p->n_gpus ? "GPUs of a host" : "ranks of a host, shared memory",
                 sums * row * SUM_BYTES * (together - 1) / together, sums * 2 * (together - 1));
    if (hosts > 1)
        add_link(out, "between hosts", sums * row * SUM_BYTES * (hosts - 1) / hosts,
                 sums * 2 * ceil(log2(hosts)));
}
