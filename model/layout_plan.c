/* SPDX-License-Identifier: MIT */
/* model/layout_plan.c - see layout_plan.h.
 *
 * The projections of a block are found by name, not by role, so that blocks which never
 * run (those for multi-token prediction) are converted too.
 *
 * Reading order: types and what is lost by them; the projections of one block; the new
 * file's tensors.
 */
#include "model/layout_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* ---- Types -------------------------------------------------------------- */

/* The float type that holds decoded values of t. */
static enum quant float_of(enum quant t)
{
    enum quant plain = quant_info[t].plain;

    return quant_info[plain].program == QUANT_FLOAT ? plain : QUANT_F16;
}

/* F16 and BF16 hold no common half: each lacks bits of the other. */
static enum quant common_float(enum quant a, enum quant b)
{
    return float_of(a) == float_of(b) ? float_of(a) : QUANT_F32;
}

static void note_change(struct layout_plan *plan, const char *text)
{
    const int room = (int)(sizeof plan->changes / sizeof *plan->changes);
    int i = 0;

    while (i < plan->n_changes && strcmp(plan->changes[i].text, text) != 0)
        i++;
    if (i == room) {
        log_info("1 block: %s", text);
        return;
    }
    if (i == plan->n_changes) {
        plan->n_changes++;
        snprintf(plan->changes[i].text, sizeof plan->changes[i].text, "%s", text);
    }
    plan->changes[i].n_blocks++;
}

static void note_k(struct layout_plan *plan, enum quant from)
{
    char text[160];

    if (float_of(from) == quant_info[from].plain)
        return;
    snprintf(text, sizeof text, "attn_k_b is F16, rounded: blocks of %s cannot be transposed",
             quant_info[from].name);
    note_change(plan, text);
}

static void note_kv(struct layout_plan *plan, enum quant k, enum quant v, enum quant result)
{
    char text[160];

    if (result == quant_info[k].plain && result == quant_info[v].plain)
        return;
    snprintf(text, sizeof text, "attn_kv_b is %s%s: attn_k_b is %s and attn_v_b is %s",
             quant_info[result].name, result == QUANT_F32 ? "" : ", rounded", quant_info[k].name,
             quant_info[v].name);
    note_change(plan, text);
}

/* ---- The projections of a block ----------------------------------------- */

/* NULL where the file has none. */
struct group {
    int block;
    const struct gguf_tensor *kv, *k, *v;
};

static const struct gguf_tensor *member(const struct model *m, int block, const char *which)
{
    char name[64];

    snprintf(name, sizeof name, "blk.%d.attn_%s_b.weight", block, which);
    return gguf_tensor_find(m->gguf, name);
}

/* 1 if t is one of the projections of a block, which *g then lists. */
static int find_group(const struct model *m, const struct gguf_tensor *t, struct group *g)
{
    int block;

    if (sscanf(t->name, "blk.%6d.attn_", &block) != 1)
        return 0;
    *g = (struct group){ block, member(m, block, "kv"), member(m, block, "k"),
                         member(m, block, "v") };
    return t == g->kv || t == g->k || t == g->v;
}

static enum err_code check_shape(const struct model *m, const struct gguf_tensor *t,
                                 int64_t columns, int64_t rows, struct err *e)
{
    if (t->dim[0] == columns && tensor_rows(t) == rows)
        return ERR_OK;
    return err_set(e, ERR_FORMAT,
                   "%s: %s: expected %" PRId64 " rows of %" PRId64 " values, found %" PRId64
                   " of %" PRId64 "; the file is not usable",
                   gguf_part_path(m->gguf, t->part), t->name, rows, columns, tensor_rows(t),
                   t->dim[0]);
}

static int is_complete(const struct group *g)
{
    return g->kv || (g->k && g->v);
}

static enum err_code check_group(const struct model *m, const struct group *g, struct err *e)
{
    const struct hparams *hp = &m->hp;

    if (g->kv)
        TRY(check_shape(m, g->kv, hp->kv_lora_rank, hp->n_heads * (hp->d_nope + hp->d_v), e));
    if (g->k)
        TRY(check_shape(m, g->k, hp->d_nope, hp->n_heads * hp->kv_lora_rank, e));
    if (g->v)
        TRY(check_shape(m, g->v, hp->kv_lora_rank, hp->n_heads * hp->d_v, e));
    return ERR_OK;
}

static enum err_code check_decodable(const struct model *m, const struct gguf_tensor *t,
                                     struct err *e)
{
    const char *refusal = quant_refusal(t->type);

    if (!refusal)
        return ERR_OK;
    return err_set(e, ERR_UNSUPPORTED, "%s: %s: type %s is not supported: %s",
                   gguf_part_path(m->gguf, t->part), t->name, quant_info[t->type].name, refusal);
}

/* ---- The new tensors ---------------------------------------------------- */

static struct layout_piece *add_copy(struct layout_plan *plan, const struct gguf_tensor *t)
{
    struct layout_piece *p = &plan->pieces[plan->n_pieces++];

    *p =
        (struct layout_piece){ .how = PIECE_COPY, .type = t->type, .n_dims = t->n_dims, .from = t };
    snprintf(p->name, sizeof p->name, "%s", t->name);
    memcpy(p->dim, t->dim, sizeof p->dim);
    return p;
}

static struct layout_piece *add_made(struct layout_plan *plan, enum layout_how how, int block,
                                     const char *which, const struct gguf_tensor *from)
{
    struct layout_piece *p = &plan->pieces[plan->n_pieces++];

    *p = (struct layout_piece){
        .how = how, .type = float_of(from->type), .dim = {1, 1, 1, 1},
                .from = from
    };
    snprintf(p->name, sizeof p->name, "blk.%d.attn_%s_b.weight", block, which);
    return p;
}

/* ik stores k_b and v_b flat; the bytes are the same. */
static void set_shape(const struct layout_plan *plan, struct layout_piece *p, int64_t columns,
                      int64_t rows)
{
    int flat = plan->to == LAYOUT_IK;
    int64_t heads = plan->m->hp.n_heads;

    p->n_dims = flat ? 2 : 3;
    p->dim[0] = columns;
    p->dim[1] = flat ? rows * heads : rows;
    p->dim[2] = flat ? 1 : heads;
    p->dim[3] = 1;
}

static enum err_code plan_kv(struct layout_plan *plan, const struct group *g, struct err *e)
{
    const struct hparams *hp = &plan->m->hp;

    if (g->kv) {
        add_copy(plan, g->kv);
        return ERR_OK;
    }
    TRY(check_decodable(plan->m, g->k, e));
    TRY(check_decodable(plan->m, g->v, e));
    struct layout_piece *p = add_made(plan, PIECE_KV, g->block, "kv", g->k);
    p->from_v = g->v;
    p->type = common_float(g->k->type, g->v->type);
    p->n_dims = 2;
    p->dim[0] = hp->kv_lora_rank;
    p->dim[1] = hp->n_heads * (hp->d_nope + hp->d_v);
    note_kv(plan, g->k->type, g->v->type, p->type);
    return ERR_OK;
}

static enum err_code plan_k_v(struct layout_plan *plan, const struct group *g, struct err *e)
{
    const struct hparams *hp = &plan->m->hp;
    struct layout_piece *k, *v;

    if (g->k && g->v) {
        k = add_copy(plan, g->k);
        v = add_copy(plan, g->v);
    } else {
        TRY(check_decodable(plan->m, g->kv, e));
        k = add_made(plan, PIECE_K, g->block, "k", g->kv);
        v = add_made(plan, PIECE_V, g->block, "v", g->kv);
        v->type = quant_info[g->kv->type].plain;
        note_k(plan, g->kv->type);
    }
    set_shape(plan, k, hp->d_nope, hp->kv_lora_rank);
    set_shape(plan, v, hp->kv_lora_rank, hp->d_v);
    return ERR_OK;
}

/* ---- The interface ------------------------------------------------------ */

enum err_code layout_plan_make(struct layout_plan *plan, struct err *e)
{
    const struct gguf *file = plan->m->gguf;
    int n = gguf_tensor_count(file);

    plan->pieces = calloc(3 * (size_t)n + 1, sizeof *plan->pieces); /* one may become three */
    if (!plan->pieces)
        return err_set(e, ERR_NOMEM, "no memory for a list of %d tensors", n);
    for (int i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(file, i);
        struct group g;
        if (!find_group(plan->m, t, &g)) {
            add_copy(plan, t);
            continue;
        }
        if (!is_complete(&g))
            return err_set(e, ERR_FORMAT,
                           "%s: blk.%d has neither attn_kv_b nor both attn_k_b and attn_v_b; it is "
                           "not complete",
                           gguf_part_path(file, 0), g.block);
        TRY(check_group(plan->m, &g, e));
        if (t != (g.kv ? g.kv : g.k)) /* the group takes the place of one of them */
            continue;
        if (plan->to != LAYOUT_MAINLINE)
            TRY(plan_kv(plan, &g, e));
        if (plan->to != LAYOUT_LEGACY)
            TRY(plan_k_v(plan, &g, e));
    }
    return ERR_OK;
}

void layout_plan_free(struct layout_plan *plan)
{
    free(plan->pieces);
    plan->pieces = NULL;
}
