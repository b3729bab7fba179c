/* SPDX-License-Identifier: MIT */
/* placement/experts.c - which memory holds which routed expert.
 *
 * An expert is placed whole: gate, up and down together.  Rules come first.  The rest is dealt
 * layer by layer in rounds, the most frequent experts first (without frequencies by number), each
 * to the device that would be done with its share of the layer first, while it has room: over all
 * GPUs, then over host memories.  So the GPUs fill evenly, in proportion to their bandwidth, and
 * every layer keeps the same share of its experts on each device.
 *
 * Reading order: the list of layers; a device for one expert; ruled layers; free layers; parts.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "placement/place.h"

struct expert_layer {
    int layer;
    int tensor[3], n; /* gate, up (or both in one), down                  */
    int64_t bytes[2]; /* of one expert, by enum device_kind               */
    int decider;      /* tensor whose rule counts, or -1                  */
    int *owner;       /* [n_experts] device                               */
    double *load;     /* [n_devices] seconds of one pass over its experts */
};

struct dealing {
    struct planner *k;
    int n_experts, n_layers;
    struct expert_layer *layers; /* [n_layers] */
    int *owners;                 /* [n_layers][n_experts] */
    double *loads;               /* [n_layers][n_devices] */
    int64_t *room;               /* [n_devices], at pool[device] */
    int *pool;                   /* [n_devices] a host's first rank for all of them; or itself */
    double *total;               /* [n_devices] load of all layers */
    double *speed;               /* [n_devices] bandwidth to a power, GB/s */
    int *order;                  /* [n_experts] of the layer at hand */
    int *list;                   /* [n_devices] candidates */
    struct plan_range *ranges;   /* [n_experts] of the part at hand */
    struct free_expert {
        int64_t frequency;
        int round, layer, expert;
    } * free_experts; /* [n_layers * n_experts] */
};

/* ---- Layers ---------------------------------------------------------------------- */

static int is_slow(const struct plan *p, const struct place *place)
{
    for (int i = 0; i < place->n; i++)
        if (p->devices[place->v[i].device].kind == DEVICE_HOST)
            return 1;
    return 0;
}

/* The slowest target counts: host memory before GPUs, otherwise the earliest rule's. */
static int find_decider(const struct planner *k, const struct expert_layer *l)
{
    const int *rule_of = k->in->match->rule_of;
    int best = -1;

    for (int i = 0; i < l->n; i++) {
        int t = l->tensor[i];
        const struct place *place = place_of(k, t);
        if (!place)
            continue;
        int slower = best >= 0 ? is_slow(k->p, place) - is_slow(k->p, place_of(k, best)) : 1;
        if (slower > 0 || (slower == 0 && rule_of[t] < rule_of[best]))
            best = t;
    }
    return best;
}

static void warn_split(struct planner *k, const struct expert_layer *l)
{
    const int *rule_of = k->in->match->rule_of;
    const struct rules *rules = k->in->rules;
    struct str s = { 0 };
    int differs = 0;

    for (int i = 0; l->decider >= 0 && i < l->n; i++) {
        int r = rule_of[l->tensor[i]], d = rule_of[l->decider];
        differs |= !place_of(k, l->tensor[i]) ||
                   (r != d && !target_equal(&rules->v[r].target, &rules->v[d].target));
    }
    if (!differs)
        return;
    for (int i = 0; i < l->n; i++) {
        int r = rule_of[l->tensor[i]];
        const char *name = k->p->tensors[l->tensor[i]].t->name;
        const char *dot = strchr(name + 4, '.');
        str_printf(&s, "%s%.*s ", i ? ", " : "", (int)strcspn(dot + 1, "."), dot + 1);
        if (r >= 0)
            str_printf(&s, "to %s (rule %d)", rules->v[r].target_text, r + 1);
        else
            str_puts(&s, "to no rule");
    }
    findings_add(k->findings, FINDING_WARNING, rule_of[l->decider],
                 "layer %d: an expert is placed whole, but %s: all go to %s, the slowest of these",
                 l->layer, s.data ? s.data : "", rules->v[rule_of[l->decider]].target_text);
    str_free(&s);
}

static void add_tensor(struct expert_layer *l, int t)
{
    if (t >= 0 && l->n < 3)
        l->tensor[l->n++] = t;
}

static void fill_layer(struct dealing *d, struct expert_layer *l, int layer)
{
    struct planner *k = d->k;
    int at = (int)(l - d->layers);

    *l = (struct expert_layer){ .layer = layer };
    add_tensor(l, place_index(k, layer, ROLE_GATE_EXPS));
    add_tensor(l, place_index(k, layer, ROLE_UP_EXPS));
    if (l->n == 0)
        add_tensor(l, place_index(k, layer, ROLE_GATE_UP_EXPS));
    add_tensor(l, place_index(k, layer, ROLE_DOWN_EXPS));
    for (int i = 0; i < l->n; i++) {
        const struct plan_tensor *t = &k->p->tensors[l->tensor[i]];
        struct extent one = extent_whole(k->p->model, t);
        one.slabs = 1;
        for (int kind = 0; kind < 2; kind++)
            l->bytes[kind] += account_memory(k->p, t, (enum device_kind)kind, one);
    }
    l->owner = d->owners + (int64_t)at * d->n_experts;
    l->load = d->loads + (int64_t)at * k->p->n_devices;
    for (int x = 0; x < d->n_experts; x++)
        l->owner[x] = -1;
    l->decider = find_decider(k, l);
    warn_split(k, l);
}

static int64_t frequency(const struct dealing *d, const struct expert_layer *l, int x)
{
    const struct hot *hot = d->k->p->opt.hot;
    return hot ? hot->count[(int64_t)l->layer * hot->n_experts + x] : 0;
}

/* Experts of a layer, the most frequent first; equal ones by number. */
static void order_experts(struct dealing *d, const struct expert_layer *l)
{
    for (int x = 0; x < d->n_experts; x++) {
        int at = x;
        while (at > 0 && frequency(d, l, d->order[at - 1]) < frequency(d, l, x)) {
            d->order[at] = d->order[at - 1];
            at--;
        }
        d->order[at] = x;
    }
}

/* ---- A device for one expert -------------------------------------------------------- */

static void give(struct dealing *d, struct expert_layer *l, int x, int device)
{
    const struct plan_device *dev = &d->k->p->devices[device];
    int64_t bytes = l->bytes[dev->kind];

    l->owner[x] = device;
    l->load[device] += (double)bytes / d->speed[device];
    d->total[device] += (double)bytes / d->speed[device];
    d->room[d->pool[device]] -= bytes;
}

/* Of candidates that have room: done first with this layer, then with all; -1 if none has. */
static int choose(const struct dealing *d, const struct expert_layer *l, const int *list, int n,
                  int even_without_room)
{
    int best = -1;
    double best_load = 0;

    for (int i = 0; i < n; i++) {
        int c = list[i];
        const struct plan_device *dev = &d->k->p->devices[c];
        if (d->room[d->pool[c]] < l->bytes[dev->kind] && !even_without_room)
            continue;
        double load = l->load[c] + (double)l->bytes[dev->kind] / d->speed[c];
        double margin = 1e-9 * load;
        if (best < 0 || load < best_load - margin ||
            (load < best_load + margin && d->total[c] < d->total[best] * (1 - 1e-9))) {
            best = c;
            best_load = load;
        }
    }
    return best;
}

/* ---- Ruled layers --------------------------------------------------------------------- */

static void rule_error(struct dealing *d, const struct expert_layer *l, int64_t asked, int spread)
{
    struct planner *k = d->k;
    int r = k->in->match->rule_of[l->decider];
    char label[256];

    if (findings_count(k->findings, FINDING_ERROR, r) > 0)
        return; /* once a rule is enough */
    rule_label(k->in->rules, r, label, sizeof label);
    if (asked > d->n_experts)
        findings_add(k->findings, FINDING_ERROR, r,
                     "%s: the counts ask for %lld experts of each layer, which has %d", label,
                     (long long)asked, d->n_experts);
    else if (!spread)
        findings_add(k->findings, FINDING_ERROR, r,
                     "%s: the counts place %lld experts of each layer, which has %d; say where the "
                     "others go, for example with +CPU",
                     label, (long long)asked, d->n_experts);
}

static void deal_ruled(struct dealing *d, struct expert_layer *l)
{
    const struct place *place = place_of(d->k, l->decider);
    int64_t asked = 0;
    int *list = d->list, n_list = 0, x = 0;

    for (int i = 0; i < place->n; i++) {
        if (place->v[i].count == TARGET_NO_COUNT)
            list[n_list++] = place->v[i].device;
        else
            asked += place->v[i].count;
    }
    if (asked > d->n_experts || (asked < d->n_experts && n_list == 0)) {
        rule_error(d, l, asked, n_list);
        return;
    }
    order_experts(d, l);
    for (int round = 0; x < asked; round++)
        for (int i = 0; i < place->n; i++)
            if (place->v[i].count > round)
                give(d, l, d->order[x++], place->v[i].device);
    for (; x < d->n_experts; x++) {
        int device = choose(d, l, list, n_list, 0);
        give(d, l, d->order[x], device >= 0 ? device : choose(d, l, list, n_list, 1));
    }
}

/* ---- Free layers ------------------------------------------------------------------------ */

static int by_frequency(const void *a, const void *b)
{
    const struct free_expert *x = a, *y = b;

    if (x->frequency != y->frequency)
        return x->frequency > y->frequency ? -1 : 1;
    if (x->round != y->round)
        return x->round - y->round;
    return x->layer - y->layer;
}

/* Everything that no rule took: GPUs first, hosts then, at last wherever it is least bad. */
static void deal_free(struct dealing *d)
{
    const struct plan *p = d->k->p;
    struct free_expert *v = d->free_experts;
    int *list = d->list, n = 0;

    for (int i = 0; i < p->n_devices; i++) /* GPUs in front */
        list[i] = (i + p->n_ranks) % p->n_devices;
    for (int l = 0; l < d->n_layers; l++) {
        struct expert_layer *layer = &d->layers[l];
        if (layer->owner[0] >= 0)
            continue;
        order_experts(d, layer);
        for (int i = 0; i < d->n_experts; i++)
            v[n++] = (struct free_expert){ frequency(d, layer, d->order[i]), i, l, d->order[i] };
    }
    qsort(v, (size_t)n, sizeof *v, by_frequency);
    for (int i = 0; i < n; i++) {
        struct expert_layer *l = &d->layers[v[i].layer];
        int device = choose(d, l, list, p->n_gpus, 0);
        if (device < 0)
            device = choose(d, l, list + p->n_gpus, p->n_ranks, 0);
        if (device < 0)
            device = choose(d, l, list + p->n_gpus, p->n_ranks, 1);
        give(d, l, v[i].expert, device);
    }
}

/* ---- Parts -------------------------------------------------------------------------------- */

/* The experts of a device as ranges; returns their number. */
static int ranges_of(const struct expert_layer *l, int n_experts, int device,
                     struct plan_range *ranges, int64_t *count)
{
    int n = 0;

    *count = 0;
    for (int x = 0; x < n_experts; x++) {
        if (l->owner[x] != device)
            continue;
        if (n > 0 && ranges[n - 1].end == x)
            ranges[n - 1].end++;
        else
            ranges[n++] = (struct plan_range){ x, x + 1 };
        ++*count;
    }
    return n;
}

static enum err_code add_layer_parts(struct dealing *d, const struct expert_layer *l, struct err *e)
{
    struct planner *k = d->k;
    struct plan *p = k->p;
    int ruled = l->decider >= 0;

    for (int i = 0; i < l->n; i++) {
        struct plan_tensor *t = &p->tensors[l->tensor[i]];
        t->rule = ruled ? k->in->match->rule_of[l->decider] : -1;
        t->reason = ruled       ? "rule"
                    : p->n_gpus ? "experts over all GPUs, the rest in host memory"
                                : "experts spread over all ranks";
    }
    for (int device = 0; device < p->n_devices; device++) {
        int64_t count;
        int n = ranges_of(l, d->n_experts, device, d->ranges, &count);
        for (int i = 0; n > 0 && i < l->n; i++) {
            struct extent x = extent_whole(p->model, &p->tensors[l->tensor[i]]);
            x.slabs = count;
            TRY(place_add_part(k, l->tensor[i], device, AXIS_EXPERTS, d->ranges, n, x, e));
        }
    }
    return ERR_OK;
}

/* Rules share in proportion to bandwidth; what is free leans more to fast devices, if the whole
 * plan is faster so: then the fullest of them is less often late. */
static void set_speeds(struct dealing *d, double skew)
{
    const struct plan *p = d->k->p;

    for (int i = 0; i < p->n_devices; i++)
        d->speed[i] = pow(1e-9 * p->devices[i].read_bw, skew);
}

/* Ranks of a host take from what it has, not from a share of it. */
static void find_room(struct dealing *d)
{
    const struct plan *p = d->k->p;

    for (int i = 0; i < p->n_devices; i++) {
        const struct plan_device *dev = &p->devices[i];
        int first = i;
        for (int r = 0; dev->kind == DEVICE_HOST && !p->inventory->hosts[dev->host].apart && r < i;
             r++)
            if (p->ranks[r].host == dev->host) {
                first = r;
                break;
            }
        d->pool[i] = first;
        d->room[first] += plan_slack(dev);
    }
}

static enum err_code deal(struct dealing *d, struct err *e)
{
    const struct plan *p = d->k->p;

    find_room(d);
    for (int l = 0; l < d->n_layers; l++)
        fill_layer(d, &d->layers[l], p->model->hp.n_dense + l);
    set_speeds(d, 1);
    for (int l = 0; l < d->n_layers; l++)
        if (d->layers[l].decider >= 0)
            deal_ruled(d, &d->layers[l]);
    set_speeds(d, d->k->skew);
    deal_free(d);
    for (int l = 0; l < d->n_layers; l++)
        TRY(add_layer_parts(d, &d->layers[l], e));
    return ERR_OK;
}

static int dealing_allocate(struct dealing *d)
{
    size_t layers = (size_t)d->n_layers, experts = (size_t)d->n_experts;
    size_t devices = (size_t)d->k->p->n_devices;

    d->layers = calloc(layers, sizeof *d->layers);
    d->owners = calloc(layers * experts, sizeof *d->owners);
    d->loads = calloc(layers * devices, sizeof *d->loads);
    d->room = calloc(devices, sizeof *d->room);
    d->pool = calloc(devices, sizeof *d->pool);
    d->total = calloc(devices, sizeof *d->total);
    d->speed = calloc(devices, sizeof *d->speed);
    d->order = calloc(experts, sizeof *d->order);
    d->list = calloc(devices, sizeof *d->list);
    d->ranges = calloc(experts, sizeof *d->ranges);
    d->free_experts = calloc(layers * experts, sizeof *d->free_experts);
    return d->layers && d->owners && d->loads && d->room && d->pool && d->total && d->speed &&
           d->order && d->list && d->ranges && d->free_experts;
}

static void dealing_free(struct dealing *d)
{
    free(d->layers);
    free(d->owners);
    free(d->loads);
    free(d->room);
    free(d->pool);
    free(d->total);
    free(d->speed);
    free(d->order);
    free(d->list);
    free(d->ranges);
    free(d->free_experts);
    free(d);
}

enum err_code place_experts(struct planner *k, struct err *e)
{
    const struct hparams *hp = &k->p->model->hp;
    enum err_code rc = ERR_NOMEM;

    if (hp->n_layers <= hp->n_dense || hp->n_experts <= 0)
        return ERR_OK;
    struct dealing *d = calloc(1, sizeof *d);
    if (d) {
        d->k = k;
        d->n_experts = hp->n_experts;
        d->n_layers = hp->n_layers - hp->n_dense;
        if (dealing_allocate(d))
            rc = deal(d, e);
        else
            err_set(e, rc, "no memory to place experts");
        dealing_free(d);
    } else {
        err_set(e, rc, "no memory to place experts");
    }
    return rc;
}
