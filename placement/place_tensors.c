/* SPDX-License-Identifier: MIT */
/* placement/place_tensors.c - everything but routed experts: whole and sliced tensors, the latent
 * cache, buffers.
 *
 * Reading order: parts; tensors that stand on every rank; groups that are sliced together; layers;
 * buffers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/place.h"
#include "placement/slices.h"

/* ---- Parts -------------------------------------------------------------------- */

static int grow(void **v, int *cap, int need, size_t size)
{
    if (need <= *cap)
        return 1;
    int to = *cap ? *cap : 1024;
    while (to < need)
        to *= 2;
    void *moved = realloc(*v, (size_t)to * size);
    if (!moved)
        return 0;
    *v = moved;
    *cap = to;
    return 1;
}

enum err_code place_add_part(struct planner *k, int tensor, int device, enum plan_axis axis,
                             const struct plan_range *ranges, int n, struct extent x, struct err *e)
{
    struct plan *p = k->p;
    const struct plan_tensor *t = &p->tensors[tensor];

    if (!grow((void **)&p->parts, &p->parts_cap, p->n_parts + 1, sizeof *p->parts) ||
        !grow((void **)&p->ranges, &p->ranges_cap, p->n_ranges + n, sizeof *p->ranges))
        return err_set(e, ERR_NOMEM, "no memory for a plan of %d parts", p->n_parts);
    struct plan_part part = { .tensor = tensor,
                              .device = device,
                              .axis = axis,
                              .first_range = p->n_ranges,
                              .n_ranges = n,
                              .file_bytes = account_file(t, x),
                              .memory_bytes = account_memory(p, t, p->devices[device].kind, x) };
    memcpy(p->ranges + p->n_ranges, ranges, (size_t)n * sizeof *ranges);
    p->n_ranges += n;
    p->parts[p->n_parts++] = part;
    p->devices[device].weights_bytes += part.memory_bytes;
    return ERR_OK;
}

/* ---- On every rank -------------------------------------------------------------- */

static enum err_code add_whole(struct planner *k, int tensor, int device, struct err *e)
{
    struct plan *p = k->p;
    struct extent x = extent_whole(p->model, &p->tensors[tensor]);
    struct plan_range all = { 0, x.rows * x.slabs };

    return place_add_part(k, tensor, device, AXIS_ALL, &all, 1, x, e);
}

/* In the rank's own memory of one kind. */
static enum err_code place_everywhere(struct planner *k, int t, int on_host, const char *why,
                                      struct err *e)
{
    struct plan *p = k->p;
    const struct place *place = t < 0 ? NULL : place_of(k, t);

    if (t < 0)
        return ERR_OK;
    p->tensors[t].reason = why;
    if (place) {
        on_host = p->devices[place->v[0].device].kind == DEVICE_HOST;
        p->tensors[t].rule = k->in->match->rule_of[t];
        p->tensors[t].reason = "rule";
        k->everywhere[k->in->match->rule_of[t]] += place->named_one && p->n_ranks > 1;
        k->far[k->in->match->rule_of[t]] += on_host && p->n_gpus > 0;
    }
    for (int r = 0; r < p->n_ranks; r++)
        TRY(add_whole(k, t, on_host ? p->ranks[r].memory : p->ranks[r].main, e));
    return ERR_OK;
}

/* ---- Sliced groups ----------------------------------------------------------------- */

/* Tensors that are cut at the same places: heads of one layer, columns of one FFN. */
struct group {
    int tensor[6], n;
    enum plan_axis axis;
    struct slicing s;
    const char *what;
    int layer;
    int leads; /* tensor beside which the latent cache lies, or -1 */
};

struct device_list {
    int *v, n;
    int borrowed;
};

static enum err_code list_of_place(struct device_list *l, const struct place *place, struct err *e)
{
    *l = (struct device_list){ .n = place->n, .v = calloc((size_t)place->n, sizeof(int)) };
    if (!l->v)
        return err_set(e, ERR_NOMEM, "no memory for a list of devices");
    for (int i = 0; i < place->n; i++)
        l->v[i] = place->v[i].device;
    return ERR_OK;
}

/* Whether the place deals units to the same ranks in the same order as all ranks do. */
static int is_per_rank(const struct plan *p, const struct place *place)
{
    if (place->n != p->n_ranks)
        return 0;
    for (int i = 0; i < place->n; i++)
        if (p->devices[place->v[i].device].rank != i)
            return 0;
    return 1;
}

/* The tensor whose rule decides which ranks compute the group: the earliest rule that names other
 * ranks than all of them; -1 if none does. */
static int deciding_tensor(const struct planner *k, const struct group *g)
{
    int best = -1;

    for (int i = 0; i < g->n; i++) {
        const struct place *place = place_of(k, g->tensor[i]);
        if (place && !is_per_rank(k->p, place) &&
            (best < 0 || k->in->match->rule_of[g->tensor[i]] < k->in->match->rule_of[best]))
            best = g->tensor[i];
    }
    return best;
}

static void note_pulled_together(struct planner *k, const struct group *g, int decider)
{
    int group = g->axis == AXIS_HEADS ? 0 : g->axis == AXIS_COLUMNS ? 1 : 2;
    struct pulled *x = &k->pulled[k->in->match->rule_of[decider] * PULLED_GROUPS + group];

    for (int i = 0; i < g->n; i++)
        if (place_of(k, g->tensor[i]) != place_of(k, decider)) {
            if (x->n == 0)
                *x = (struct pulled){ 0, g->layer, g->tensor[i], decider, g->what };
            x->n++;
            return;
        }
}

static enum err_code slice_tensor(struct planner *k, const struct group *g, int t,
                                  const struct device_list *l, struct err *e)
{
    struct plan *p = k->p;

    for (int i = 0; i < l->n; i++) {
        struct plan_range r = slicing_share(&g->s, i, l->n);
        if (r.begin < r.end)
            TRY(place_add_part(k, t, l->v[i], g->axis, &r, 1,
                               slicing_extent(p->model, &p->tensors[t], g->axis, r), e));
    }
    return ERR_OK;
}

/* Remembers the widest slice of each rank, for its buffers. */
static void note_shares(struct planner *k, const struct group *g, const struct device_list *l)
{
    for (int i = 0; i < l->n; i++) {
        struct plan_range r = slicing_share(&g->s, i, l->n);
        struct account_rank *rank = &k->shares[k->p->devices[l->v[i]].rank];
        int64_t *most = g->axis == AXIS_HEADS   ? &rank->heads
                        : g->axis == AXIS_VOCAB ? &rank->vocab
                                                : &rank->columns;
        if (r.end - r.begin > *most)
            *most = r.end - r.begin;
    }
}

/* One layer's latent rows on every device that attends. */
static void charge_cache(struct planner *k, const struct group *g, const struct device_list *l)
{
    struct plan *p = k->p;
    int64_t bytes = account_cache_layer(&p->model->hp, p->opt.cache_type, p->opt.n_context);

    for (int i = 0; i < l->n; i++) {
        struct plan_device *d = &p->devices[l->v[i]];
        struct plan_range share = slicing_share(&g->s, i, l->n);
        k->host_attends[d->rank] |= d->kind == DEVICE_HOST;
        if (share.begin < share.end)
            d->cache_bytes += bytes;
    }
}

/* Places all tensors of the group. */
static enum err_code place_group(struct planner *k, const struct group *g, struct err *e)
{
    struct plan *p = k->p;
    struct device_list common = { .v = k->all_main, .n = p->n_ranks, .borrowed = 1 };
    int decider = deciding_tensor(k, g);
    enum err_code rc = ERR_OK;

    if (decider >= 0) {
        TRY(list_of_place(&common, place_of(k, decider), e));
        note_pulled_together(k, g, decider);
    }
    note_shares(k, g, &common);
    for (int i = 0; rc == ERR_OK && i < g->n; i++) {
        int t = g->tensor[i];
        const struct place *place = place_of(k, t);
        struct device_list own = { 0 };
        int obeyed = place && (decider < 0 || place == place_of(k, decider));
        p->tensors[t].reason = obeyed         ? "rule"
                               : decider >= 0 ? "computed together with a ruled tensor"
                                              : "sliced over all ranks";
        p->tensors[t].rule = obeyed ? k->in->match->rule_of[t] : -1;
        if (place && decider < 0 && (rc = list_of_place(&own, place, e)) != ERR_OK)
            break;
        rc = slice_tensor(k, g, t, own.v ? &own : &common, e);
        if (t == g->leads)
            charge_cache(k, g, own.v ? &own : &common);
        free(own.v);
    }
    if (!common.borrowed)
        free(common.v);
    return rc;
}

static void group_add(struct group *g, int tensor)
{
    if (tensor >= 0)
        g->tensor[g->n++] = tensor;
}

/* ---- Layers ------------------------------------------------------------------------ */

static enum err_code place_attention(struct planner *k, int layer, struct err *e)
{
    static const enum tensor_role roles[] = { ROLE_ATTN_Q,   ROLE_ATTN_Q_B, ROLE_ATTN_KV_B,
                                              ROLE_ATTN_K_B, ROLE_ATTN_V_B, ROLE_ATTN_OUTPUT };
    static const enum tensor_role whole[] = { ROLE_ATTN_NORM, ROLE_ATTN_Q_A, ROLE_ATTN_Q_A_NORM,
                                              ROLE_ATTN_KV_A, ROLE_ATTN_KV_A_NORM };
    int kv_b = place_index(k, layer, ROLE_ATTN_V_B);
    struct group g = { .axis = AXIS_HEADS,
                       .leads = kv_b >= 0 ? kv_b : place_index(k, layer, ROLE_ATTN_KV_B),
                       .s = slicing_of_heads(k->p->model, layer),
                       .what = "attention tensors",
                       .layer = layer };

    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        TRY(place_everywhere(k, place_index(k, layer, (int)whole[i]), 0, "on every rank", e));
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!(k->p->model->hp.layout == LAYOUT_IK && roles[i] == ROLE_ATTN_KV_B))
            group_add(&g, place_index(k, layer, (int)roles[i]));
    return place_group(k, &g, e);
}

static enum err_code place_ffn(struct planner *k, int layer, struct err *e)
{
    const struct hparams *hp = &k->p->model->hp;
    int is_moe = layer >= hp->n_dense;
    struct group g = { .axis = AXIS_COLUMNS,
                       .leads = -1,
                       .s = slicing_of_ffn(k->p->model, layer),
                       .what = is_moe ? "tensors of the shared expert" : "FFN tensors",
                       .layer = layer };

    TRY(place_everywhere(k, place_index(k, layer, ROLE_FFN_NORM), 0, "on every rank", e));
    TRY(place_everywhere(k, place_index(k, layer, ROLE_ROUTER), 0, "on every rank", e));
    TRY(place_everywhere(k, place_index(k, layer, ROLE_ROUTER_BIAS), 0, "on every rank", e));
    group_add(&g, place_index(k, layer, is_moe ? ROLE_GATE_SHEXP : ROLE_FFN_GATE));
    group_add(&g, place_index(k, layer, is_moe ? ROLE_UP_SHEXP : ROLE_FFN_UP));
    group_add(&g, place_index(k, layer, is_moe ? ROLE_DOWN_SHEXP : ROLE_FFN_DOWN));
    return g.n > 0 ? place_group(k, &g, e) : ERR_OK;
}

/* The output matrix, or the embedding once more where they are one tensor. */
static enum err_code place_output(struct planner *k, struct err *e)
{
    int output = place_index(k, -1, ROLE_OUTPUT), embedding = place_index(k, -1, ROLE_TOKEN_EMBD);
    struct group g = {
        .axis = AXIS_VOCAB, .leads = -1, .s = slicing_of_vocab(k->p->model), .what = "logits"
    };

    group_add(&g, output >= 0 ? output : embedding);
    if (output >= 0)
        return place_group(k, &g, e);
    struct plan_tensor *t = &k->p->tensors[embedding];
    struct plan_tensor before = *t;
    struct device_list all = { .v = k->all_main, .n = k->p->n_ranks };
    t->role = ROLE_OUTPUT; /* laid out as a matrix this time */
    note_shares(k, &g, &all);
    enum err_code rc = slice_tensor(k, &g, embedding, &all, e);
    *t = before;
    return rc;
}

/* Small tensors in host memory whose ranks compute on a GPU cost more time than they save room. */
static void warn_far(struct planner *k)
{
    char label[256];

    for (int r = 0; r < k->in->rules->n; r++)
        if (k->far[r] > 0)
            findings_add(k->findings, FINDING_WARNING, r,
                         "%s: %d norms, routers and other small tensors lie in host memory, away "
                         "from the GPUs that attend: their layers cross the bus more often; a "
                         "pattern that takes experts alone ends with _exps",
                         rule_label(k->in->rules, r, label, sizeof label), k->far[r]);
}

static void warn_pulled_together(struct planner *k)
{
    char label[256], more[48];

    for (int i = 0; i < k->in->rules->n * PULLED_GROUPS; i++) {
        const struct pulled *x = &k->pulled[i];
        if (x->n == 0)
            continue;
        more[0] = '\0';
        if (x->n > 1)
            snprintf(more, sizeof more, "; %d more layer%s alike", x->n - 1, x->n == 2 ? "" : "s");
        findings_add(k->findings, FINDING_WARNING, i / PULLED_GROUPS,
                     "%s: the %s of layer %d are computed together, so that %s follows %s%s",
                     rule_label(k->in->rules, i / PULLED_GROUPS, label, sizeof label), x->what,
                     x->layer, k->p->tensors[x->tensor].t->name, k->p->tensors[x->decider].t->name,
                     more);
    }
}

/* A rule that names one device for what stands on every rank. */
static void warn_everywhere(struct planner *k)
{
    char label[256];

    for (int r = 0; r < k->in->rules->n; r++)
        if (k->everywhere[r] > 0)
            findings_add(k->findings, FINDING_WARNING, r,
                         "%s: of its tensors %d %s on every rank; for %s the rule only chooses "
                         "between host and GPU memory of each rank, not one device",
                         rule_label(k->in->rules, r, label, sizeof label), k->everywhere[r],
                         k->everywhere[r] == 1 ? "stands" : "stand",
                         k->everywhere[r] == 1 ? "it" : "them");
}

enum err_code place_tensors(struct planner *k, struct err *e)
{
    TRY(place_everywhere(k, place_index(k, -1, ROLE_TOKEN_EMBD), 1, "on every rank", e));
    TRY(place_everywhere(k, place_index(k, -1, ROLE_OUTPUT_NORM), 0, "on every rank", e));
    TRY(place_output(k, e));
    for (int l = 0; l < k->p->model->hp.n_layers; l++) {
        TRY(place_attention(k, l, e));
        TRY(place_ffn(k, l, e));
    }
    warn_pulled_together(k);
    warn_everywhere(k);
    warn_far(k);
    return ERR_OK;
}

/* ---- Buffers ------------------------------------------------------------------------ */

void place_buffers(struct planner *k)
{
    struct plan *p = k->p;
    const struct hparams *hp = &p->model->hp;

    for (int r = 0; r < p->n_ranks; r++) {
        const struct plan_rank *rank = &p->ranks[r];
        struct plan_device *main = &p->devices[rank->main], *memory = &p->devices[rank->memory];
        struct account_rank share = k->shares[r];
        share.rank = r;
        share.n_ranks = p->n_ranks;
        share.n_threads = main->kind == DEVICE_GPU ? 1 : rank->n_threads;
        main->activation_bytes += account_activations(hp, &p->opt, &share);
        share.n_threads = rank->n_threads;
        if (main != memory && k->host_attends[r])
            memory->activation_bytes += account_activations(hp, &p->opt, &share);
        else if (main != memory) /* experts in host memory have their own inputs and sums there */
            memory->activation_bytes += account_expert_buffers(hp, &p->opt);
        memory->staging_bytes += account_staging(rank->n_threads);
        (k->host_attends[r] ? memory : main)->cache_bytes += account_page_tables(hp, &p->opt);
        main->comm_bytes += account_comm(p, r);
        memory->reserve_bytes += account_reserve(DEVICE_HOST);
    }
    for (int d = p->n_ranks; d < p->n_devices; d++) {
        p->devices[d].reserve_bytes += account_reserve(DEVICE_GPU);
        if (p->ranks[p->devices[d].rank].main != d) /* a further GPU of its rank: experts alone */
            p->devices[d].activation_bytes += account_expert_buffers(hp, &p->opt);
    }
}
