/* SPDX-License-Identifier: MIT */
/* rank/weights.c - see weights.h.
 *
 * Reading order: one function lays out a layer's matrices (used for counting and for
 * loading alike); then the jobs that fill them; then the interface.
 */
#include "rank/weights.h"

#include <stdlib.h>
#include <string.h>

#include "rank/carve.h"
#include "rank/load.h"

/* One walk over all weights: counting (carve.base NULL, jobs ignored) or placing. */
struct walk {
    const struct model *m;
    const struct share *share;
    struct carve carve;
    struct load_list *jobs;
    enum quant derived_k_b; /* of a k_b that is transposed out of a quantised kv_b */
};

/* What of a tensor: rows and columns of each slab, and slabs, which are slab_rows rows of the file
 * apart: from `slab` on, or the listed ones. */
struct piece {
    int64_t row, rows, col, cols;
    int slab, n_slabs;
    int64_t slab_rows;
    const int32_t *slabs;
};

static void take_matrix(struct walk *walk, struct matrix *m)
{
    m->data = carve_take(&walk->carve, matrix_bytes(m));
}

static void lay_out(struct walk *walk, struct matrix *m, const struct gguf_tensor *t,
                    struct piece p)
{
    *m = (struct matrix){ 0 };
    if (!t || p.rows == 0 || p.cols == 0 || p.n_slabs == 0)
        return;
    matrix_init(m, quant_info[t->type].plain, p.rows, p.cols, p.n_slabs);
    take_matrix(walk, m);
    load_list_add(walk->jobs, (struct load_job){ .tensor = t,
                                                 .to = *m,
                                                 .src_stride = p.slab_rows,
                                                 .src_first = p.slab * p.slab_rows + p.row,
                                                 .src_col = p.col,
                                                 .src_slabs = p.slabs });
}

/* Rows [begin, end) of a matrix. */
static void lay_out_rows(struct walk *walk, struct matrix *m, const struct gguf_tensor *t,
                         int64_t begin, int64_t end)
{
    if (t)
        lay_out(
            walk, m, t,
            (struct piece){ .row = begin, .rows = end - begin, .cols = t->dim[0], .n_slabs = 1 });
}

/* Columns [begin, end) of all `rows` rows. */
static void lay_out_columns(struct walk *walk, struct matrix *m, const struct gguf_tensor *t,
                            int64_t rows, int64_t begin, int64_t end)
{
    lay_out(walk, m, t,
            (struct piece){ .rows = rows, .col = begin, .cols = end - begin, .n_slabs = 1 });
}

static float *lay_out_vector(struct walk *walk, const struct gguf_tensor *t)
{
    if (!t)
        return NULL;
    float *v = carve_take(&walk->carve, (size_t)t->dim[0] * sizeof(float));
    load_list_add(walk->jobs, (struct load_job){ .tensor = t, .vector = v });
    return v;
}

/* The type of a k_b that is transposed out of a kv_b of type t. */
static enum quant transposed_type(const struct walk *walk, enum quant t)
{
    return quant_info[t].program == QUANT_FLOAT ? t : walk->derived_k_b;
}

static void lay_out_kv(struct walk *walk, struct layer_weights *w, int layer)
{
    const struct model *m = walk->m;
    const struct hparams *hp = &m->hp;
    const struct share_layer *own = &walk->share->layers[layer];
    const struct gguf_tensor *kv_b = model_tensor(m, layer, ROLE_ATTN_KV_B);
    struct piece heads = { .slab = own->head_begin, .n_slabs = share_heads(own) };

    if (hp->layout != LAYOUT_LEGACY) {
        heads.rows = heads.slab_rows = hp->kv_lora_rank;
        heads.cols = hp->d_nope;
        lay_out(walk, &w->k_b, model_tensor(m, layer, ROLE_ATTN_K_B), heads);
        heads.rows = heads.slab_rows = hp->d_v;
        heads.cols = hp->kv_lora_rank;
        lay_out(walk, &w->v_b, model_tensor(m, layer, ROLE_ATTN_V_B), heads);
        return;
    }
    int64_t stride = hp->d_nope + hp->d_v; /* rows of one head in kv_b */
    enum quant plain = quant_info[kv_b->type].plain;

    if (heads.n_slabs > 0) {
        matrix_init(&w->k_b, transposed_type(walk, plain), hp->kv_lora_rank, hp->d_nope,
                    heads.n_slabs);
        take_matrix(walk, &w->k_b);
        load_list_add(walk->jobs, (struct load_job){ .tensor = kv_b,
                                                     .to = w->k_b,
                                                     .src_stride = stride,
                                                     .src_first = heads.slab * stride,
                                                     .transpose = 1 });
    }
    heads.slab_rows = stride;
    heads.row = hp->d_nope;
    heads.rows = hp->d_v;
    heads.cols = hp->kv_lora_rank;
    lay_out(walk, &w->v_b, kv_b, heads);
}

static void lay_out_experts(struct walk *walk, struct layer_weights *w, int layer)
{
    const struct model *m = walk->m;
    const struct hparams *hp = &m->hp;
    const struct share_layer *own = &walk->share->layers[layer];
    const struct gguf_tensor *gate = model_tensor(m, layer, ROLE_GATE_EXPS);
    const struct gguf_tensor *merged = model_tensor(m, layer, ROLE_GATE_UP_EXPS);
    struct piece p = { .rows = hp->d_expert,
                       .cols = hp->d_model,
                       .n_slabs = own->n_experts,
                       .slab_rows = hp->d_expert,
                       .slabs = own->experts };

    if (gate) {
        lay_out(walk, &w->gate_exps, gate, p);
        lay_out(walk, &w->up_exps, model_tensor(m, layer, ROLE_UP_EXPS), p);
    } else { /* within each expert first the gate rows, then the up rows */
        p.slab_rows = 2 * hp->d_expert;
        lay_out(walk, &w->gate_exps, merged, p);
        p.row = hp->d_expert;
        lay_out(walk, &w->up_exps, merged, p);
    }
    p.row = 0;
    p.rows = p.slab_rows = hp->d_model;
    p.cols = hp->d_expert;
    lay_out(walk, &w->down_exps, model_tensor(m, layer, ROLE_DOWN_EXPS), p);
}

static void lay_out_attention(struct walk *walk, struct layer_weights *w, int layer)
{
    const struct model *m = walk->m;
    const struct hparams *hp = &m->hp;
    const struct share_layer *own = &walk->share->layers[layer];
    const struct gguf_tensor *q_a = model_tensor(m, layer, ROLE_ATTN_Q_A);
    int64_t query = hp->d_nope + hp->d_rope;

    w->attn_norm = lay_out_vector(walk, model_tensor(m, layer, ROLE_ATTN_NORM));
    w->kv_a_norm = lay_out_vector(walk, model_tensor(m, layer, ROLE_ATTN_KV_A_NORM));
    w->ffn_norm = lay_out_vector(walk, model_tensor(m, layer, ROLE_FFN_NORM));
    w->q_a_norm = lay_out_vector(walk, model_tensor(m, layer, ROLE_ATTN_Q_A_NORM));
    lay_out_rows(walk, &w->q_a, q_a, 0, hp->q_lora_rank);
    lay_out_rows(walk, &w->q_b, model_tensor(m, layer, q_a ? ROLE_ATTN_Q_B : ROLE_ATTN_Q),
                 own->head_begin * query, own->head_end * query);
    lay_out_rows(walk, &w->kv_a, model_tensor(m, layer, ROLE_ATTN_KV_A), 0,
                 hp->kv_lora_rank + hp->d_rope);
    lay_out_kv(walk, w, layer);
    lay_out_columns(walk, &w->attn_output, model_tensor(m, layer, ROLE_ATTN_OUTPUT), hp->d_model,
                    own->head_begin * hp->d_v, own->head_end * hp->d_v);
}

static void lay_out_layer(struct walk *walk, struct layer_weights *w, int layer)
{
    const struct model *m = walk->m;
    const struct hparams *hp = &m->hp;
    const struct share_layer *own = &walk->share->layers[layer];
    enum tensor_role roles[3] = { ROLE_FFN_GATE, ROLE_FFN_UP, ROLE_FFN_DOWN };

    *w = (struct layer_weights){ .is_moe = layer >= hp->n_dense };
    lay_out_attention(walk, w, layer);
    if (w->is_moe) {
        roles[0] = ROLE_GATE_SHEXP;
        roles[1] = ROLE_UP_SHEXP;
        roles[2] = ROLE_DOWN_SHEXP;
        lay_out_rows(walk, &w->router, model_tensor(m, layer, ROLE_ROUTER), 0, hp->n_experts);
        w->router_bias = lay_out_vector(walk, model_tensor(m, layer, ROLE_ROUTER_BIAS));
        lay_out_experts(walk, w, layer);
    }
    lay_out_rows(walk, &w->gate, model_tensor(m, layer, roles[0]), own->column_begin,
                 own->column_end);
    lay_out_rows(walk, &w->up, model_tensor(m, layer, roles[1]), own->column_begin,
                 own->column_end);
    lay_out_columns(walk, &w->down, model_tensor(m, layer, roles[2]), hp->d_model,
                    own->column_begin, own->column_end);
}

static void lay_out_model(struct walk *walk, struct weights *w)
{
    const struct model *m = walk->m;
    const struct gguf_tensor *embedding = model_tensor(m, -1, ROLE_TOKEN_EMBD);
    const struct gguf_tensor *output = model_tensor(m, -1, ROLE_OUTPUT);
    enum quant plain = quant_info[embedding->type].plain;

    w->embedding_row_bytes = quant_row_bytes(plain, (size_t)m->hp.d_model);
    w->embedding_type = plain;
    w->d_model = m->hp.d_model;
    w->embedding_rows = carve_take(&walk->carve, (size_t)m->hp.n_vocab * w->embedding_row_bytes);
    load_list_add(walk->jobs, (struct load_job){ .tensor = embedding, .rows = w->embedding_rows });
    w->output_norm = lay_out_vector(walk, model_tensor(m, -1, ROLE_OUTPUT_NORM));
    struct plan_range vocab = walk->share->vocab[walk->share->rank];
    lay_out_rows(walk, &w->output, output ? output : embedding, vocab.begin, vocab.end);
    for (int l = 0; l < m->hp.n_layers; l++)
        lay_out_layer(walk, &w->layers[l], l);
}

/* ---- The interface ------------------------------------------------------ */

static enum err_code lay_out_new(struct weights **out, struct walk *walk, struct err *e)
{
    struct weights *w = calloc(1, sizeof *w);
    int n_layers = walk->m->hp.n_layers;

    *out = w;
    if (w)
        w->layers = calloc((size_t)n_layers, sizeof *w->layers);
    if (!w || !w->layers)
        return err_set(e, ERR_NOMEM, "no memory for the list of weights");
    w->n_layers = n_layers;
    lay_out_model(walk, w);
    return ERR_OK;
}

/* A quantised kv_b transposed: F16 holds what its few bits say but for the last of f32's, which
 * --exact-math keeps too. */
static enum quant derived_k_b(const struct weights_options *opt)
{
    return opt->exact_math ? QUANT_F32 : QUANT_F16;
}

enum err_code weights_bytes(size_t *bytes, const struct model *m, const struct weights_options *opt,
                            struct err *e)
{
    struct weights *w = NULL;
    struct load_list none = { .ignore = 1 };
    struct walk count = {
        .m = m, .share = opt->share, .jobs = &none, .derived_k_b = derived_k_b(opt)
    };
    enum err_code rc = lay_out_new(&w, &count, e);

    weights_free(&w);
    *bytes = count.carve.used;
    return rc;
}

enum err_code weights_load(struct weights **out, const struct model *m, const struct team *team,
                           const struct weights_options *opt, struct err *e)
{
    struct weights *w = NULL;
    struct load_list jobs = { 0 };
    struct arena arena = { 0 };
    size_t bytes;
    enum err_code rc = weights_bytes(&bytes, m, opt, e);

    if (rc != ERR_OK || (rc = arena_map(&arena, bytes, "weights", e)) != ERR_OK)
        goto out;
    struct walk walk = { .m = m,
                         .share = opt->share,
                         .carve.base = arena.base,
                         .jobs = &jobs,
                         .derived_k_b = derived_k_b(opt) };
    struct load_options load = { .check_values = opt->check_values, .comm = opt->comm };
    if ((rc = lay_out_new(&w, &walk, e)) != ERR_OK)
        goto out;
    w->arena = arena;
    arena = (struct arena){ 0 };
    if ((rc = load_run(&jobs, m, team, &load, &w->file_bytes, e)) != ERR_OK)
        goto out;
    *out = w;
    w = NULL;
out:
    load_list_free(&jobs);
    arena_unmap(&arena);
    weights_free(&w);
    return rc;
}

void weights_free(struct weights **w)
{
    if (!*w)
        return;
    arena_unmap(&(*w)->arena);
    free((*w)->layers);
    free(*w);
    *w = NULL;
}

void weights_embed(const struct weights *w, int32_t token, float *out)
{
    quant_dequantize_row(w->embedding_type,
                         w->embedding_rows + (size_t)token * w->embedding_row_bytes, w->d_model,
                         out);
}

size_t weights_active_bytes(const struct weights *w, double used)
{
    size_t bytes = matrix_bytes(&w->output);

    for (int l = 0; l < w->n_layers; l++) {
        const struct layer_weights *lw = &w->layers[l];
        const struct matrix *all[] = { &lw->q_a,  &lw->q_b,         &lw->kv_a, &lw->k_b,
                                       &lw->v_b,  &lw->attn_output, &lw->gate, &lw->up,
                                       &lw->down, &lw->router };
        const struct matrix *experts[] = { &lw->gate_exps, &lw->up_exps, &lw->down_exps };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            bytes += matrix_bytes(all[i]);
        for (size_t i = 0; lw->is_moe && i < sizeof experts / sizeof *experts; i++)
            bytes += (size_t)((double)matrix_bytes(experts[i]) * used);
    }
    return bytes;
}
