/* SPDX-License-Identifier: MIT */
/* placement/resolve.c - which devices of this plan a target means. */
#include <stdio.h>
#include <stdlib.h>

#include "placement/place.h"

struct resolving {
    const struct plan *p;
    struct place *out;
    unsigned char *seen; /* [n_devices] */
    int cap;
    char why[160];
};

static int fail(struct resolving *x, const char *text)
{
    snprintf(x->why, sizeof x->why, "%s", text);
    return 0;
}

static int add_device(struct resolving *x, int device, int count)
{
    if (x->seen[device]) {
        snprintf(x->why, sizeof x->why, "%s stands in the target twice",
                 x->p->devices[device].name);
        return 0;
    }
    x->seen[device] = 1;
    x->out->v[x->out->n++] = (struct place_device){ device, count };
    return 1;
}

static int add_gpus(struct resolving *x, const struct target_part *t)
{
    const struct plan *p = x->p;
    int last = t->last == INT_MAX ? p->n_gpus - 1 : t->last;

    if (p->n_gpus == 0)
        return fail(x, "no GPU is in this plan; write CPU, or describe a machine that has some to "
                       "latent plan with --devices");
    if (last >= p->n_gpus) {
        snprintf(x->why, sizeof x->why, "no CUDA%d: this plan has %d GPU%s, CUDA0 to CUDA%d", last,
                 p->n_gpus, p->n_gpus == 1 ? "" : "s", p->n_gpus - 1);
        return 0;
    }
    for (int g = t->first; g <= last; g++)
        if (!add_device(x, p->n_ranks + g, t->count))
            return 0;
    return 1;
}

static int add_part(struct resolving *x, const struct target_part *t)
{
    const struct plan *p = x->p;

    switch (t->kind) {
    case TARGET_CUDA:
        return add_gpus(x, t);
    case TARGET_SIM:
        return fail(x, "no simulated GPU is in this plan; write CUDA<k> or CPU");
    case TARGET_RANK:
        if (t->first < p->n_ranks)
            return add_device(x, t->first, t->count);
        snprintf(x->why, sizeof x->why, "no RANK%d: this plan has %d rank%s, RANK0 to RANK%d",
                 t->first, p->n_ranks, p->n_ranks == 1 ? "" : "s", p->n_ranks - 1);
        return 0;
    case TARGET_CPU_HOST:
        if (t->first >= p->inventory->n) {
            snprintf(x->why, sizeof x->why, "no CPU%d: this plan has %d host%s, CPU0 to CPU%d",
                     t->first, p->inventory->n, p->inventory->n == 1 ? "" : "s",
                     p->inventory->n - 1);
            return 0;
        }
        break;
    case TARGET_CPU:
        break;
    }
    for (int r = 0; r < p->n_ranks; r++)
        if ((t->kind == TARGET_CPU || p->ranks[r].host == t->first) && !add_device(x, r, t->count))
            return 0;
    return 1;
}

/* 1, 0 with x->why, or -1 without memory. */
static int resolve(struct resolving *x, const struct target *t)
{
    const struct plan *p = x->p;

    x->out->v = calloc((size_t)p->n_devices, sizeof *x->out->v);
    x->seen = calloc((size_t)p->n_devices, 1);
    int ok = x->out->v && x->seen ? 1 : -1;
    for (int i = 0; ok > 0 && i < t->n; i++)
        ok = add_part(x, &t->parts[i]);
    free(x->seen);
    x->out->named_one = x->out->n == 1;
    if (ok <= 0) {
        free(x->out->v);
        *x->out = (struct place){ 0 };
        return ok;
    }
    struct place_device *fitted = realloc(x->out->v, (size_t)(x->out->n + 1) * sizeof *fitted);
    x->out->v = fitted ? fitted : x->out->v;
    return 1;
}

enum err_code place_resolve(struct planner *k, struct err *e)
{
    const struct rules *rules = k->in->rules;
    char label[256];

    k->places = calloc((size_t)rules->n + 1, sizeof *k->places);
    if (!k->places)
        return err_set(e, ERR_NOMEM, "no memory for the targets of %d rules", rules->n);
    for (int r = 0; r < rules->n; r++) {
        struct resolving x = { .p = k->p, .out = &k->places[r] };
        if (rules->v[r].target.n == 0)
            continue;
        int ok = resolve(&x, &rules->v[r].target);
        if (ok < 0)
            return err_set(e, ERR_NOMEM, "no memory for the targets of %d rules", rules->n);
        if (!ok)
            findings_add(k->findings, FINDING_ERROR, r, "%s: %s",
                         rule_label(rules, r, label, sizeof label), x.why);
        if (k->in->match->takes[r].tensors == 0) { /* was only checked */
            free(k->places[r].v);
            k->places[r] = (struct place){ 0 };
        }
    }
    return ERR_OK;
}
