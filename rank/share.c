/* SPDX-License-Identifier: MIT */
/* rank/share.c - see share.h. */
#include "rank/share.h"

#include <stdlib.h>

/* The numbers of layer l: slabs of all experts, then the experts of all slabs. */
static int32_t *numbers_of(const struct share *s, int n_experts, int l)
{
    return s->numbers + 2 * (size_t)l * (size_t)n_experts;
}

static void add_experts(struct share *s, int n_experts, int l, struct plan_range r)
{
    for (int64_t x = r.begin; x < r.end; x++)
        numbers_of(s, n_experts, l)[x] = 0;
}

static enum err_code allocate(struct share *s, const struct hparams *hp, int rank, int n_ranks,
                              struct err *e)
{
    size_t experts = (size_t)hp->n_experts, layers = (size_t)hp->n_layers;

    *s = (struct share){ .rank = rank, .n_ranks = n_ranks, .n_layers = hp->n_layers };
    s->layers = calloc(layers, sizeof *s->layers);
    s->vocab = calloc((size_t)n_ranks, sizeof *s->vocab);
    s->numbers = calloc(2 * layers * experts + 1, sizeof *s->numbers);
    if (!s->layers || !s->vocab || !s->numbers) {
        (void)err_set(e, ERR_NOMEM, "no memory for the shares of %d ranks", n_ranks);
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < 2 * layers * experts; i++)
        s->numbers[i] = -1;
    return ERR_OK;
}

/* Slabs in ascending order of experts, whatever the order in which they were added. */
static void number_slabs(struct share_layer *l, int32_t *numbers, int n_experts)
{
    l->slab_of = numbers;
    l->experts = numbers + n_experts;
    for (int x = 0; x < n_experts; x++) {
        if (l->slab_of[x] < 0)
            continue;
        l->experts[l->n_experts] = x;
        l->slab_of[x] = l->n_experts++;
    }
}

static void finish(struct share *s, const struct hparams *hp)
{
    for (int i = 0; i < s->n_layers; i++) {
        struct share_layer *l = &s->layers[i];
        number_slabs(l, numbers_of(s, hp->n_experts, i), hp->n_experts);
        l->cache_layer = share_heads(l) > 0 ? s->n_cache_layers++ : -1;
        if (share_heads(l) > s->max_heads)
            s->max_heads = share_heads(l);
        if (share_columns(l) > s->max_columns)
            s->max_columns = share_columns(l);
    }
}

enum err_code share_everything(struct share *s, const struct model *m, struct err *e)
{
    const struct hparams *hp = &m->hp;

    TRY(allocate(s, hp, 0, 1, e));
    for (int i = 0; i < hp->n_layers; i++) {
        struct share_layer *l = &s->layers[i];
        int is_moe = i >= hp->n_dense;
        l->head_end = hp->n_heads;
        l->column_end = is_moe ? hp->n_shared_experts * hp->d_expert : hp->d_ffn;
        if (is_moe)
            add_experts(s, hp->n_experts, i, (struct plan_range){ 0, hp->n_experts });
    }
    s->vocab[0] = (struct plan_range){ 0, hp->n_vocab };
    finish(s, hp);
    return ERR_OK;
}

/* Heads go with attn_output, columns and experts with down. */
static void take_part(struct share *s, const struct plan *p, const struct plan_part *part)
{
    const struct plan_tensor *t = &p->tensors[part->tensor];
    const struct plan_range *r = &p->ranges[part->first_range];
    int rank = p->devices[part->device].rank;

    if (part->axis == AXIS_VOCAB)
        s->vocab[rank] = r[0];
    if (rank != s->rank)
        return;
    s->file_bytes += part->file_bytes;
    if (part->axis == AXIS_HEADS && t->role == ROLE_ATTN_OUTPUT) {
        s->layers[t->layer].head_begin = (int)r[0].begin;
        s->layers[t->layer].head_end = (int)r[0].end;
    } else if (part->axis == AXIS_COLUMNS &&
               (t->role == ROLE_FFN_DOWN || t->role == ROLE_DOWN_SHEXP)) {
        s->layers[t->layer].column_begin = r[0].begin;
        s->layers[t->layer].column_end = r[0].end;
    } else if (part->axis == AXIS_EXPERTS && t->role == ROLE_DOWN_EXPS) {
        for (int i = 0; i < part->n_ranges; i++)
            add_experts(s, p->model->hp.n_experts, t->layer, r[i]);
    }
}

enum err_code share_of_plan(struct share *s, const struct plan *p, int rank, struct err *e)
{
    const struct hparams *hp = &p->model->hp;

    TRY(allocate(s, hp, rank, p->n_ranks, e));
    for (int i = 0; i < p->n_parts; i++) {
        const struct plan_part *part = &p->parts[i];
        const struct plan_device *d = &p->devices[part->device];
        if (d->kind != DEVICE_HOST)
            return err_set(e, ERR_UNSUPPORTED,
                           "%s is planned on %s, and this version computes on CPUs only; place it "
                           "in host memory (CPU or RANK<r>)",
                           p->tensors[part->tensor].t->name, d->name);
        take_part(s, p, part);
    }
    finish(s, hp);
    return ERR_OK;
}

void share_free(struct share *s)
{
    free(s->layers);
    free(s->vocab);
    free(s->numbers);
    *s = (struct share){ 0 };
}
