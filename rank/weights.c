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
    struct carve carve;
    struct load_list *jobs;
    enum quant derived_k_b; /* of a k_b that is transposed out of a quantised kv_b */
};

static void take_matrix(struct walk *walk, struct matrix *m)
{
    m->data = carve_take(&walk->carve, matrix_bytes(m));
}

/* A matrix of the file, n_slabs wide, as it stands. */
static void lay_out(struct walk *walk, struct matrix *m, const struct gguf_tensor *t, int64_t rows,
                    int n_slabs)
{
    *m = (struct matrix){ 0 };
    if (!t)
        return;
    matrix_init(m, quant_info[t->type].plain, rows, t->dim[0], n_slabs);
    take_matrix(walk, m);
    load_list_add(walk->jobs, (struct load_job){ .tensor = t, .to = *m, .src_stride = rows });
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
    const struct gguf_tensor *kv_b = model_tensor(m, layer, ROLE_ATTN_KV_B);

    if (hp->layout != LAYOUT_LEGACY) {
        lay_out(walk, &w->k_b, model_tensor(m, layer, ROLE_ATTN_K_B), hp->kv_lora_rank,
                hp->n_heads);
        lay_out(walk, &w->v_b, model_tensor(m, layer, ROLE_ATTN_V_B), hp->d_v, hp->n_heads);
        return;
    }
    enum quant plain = quant_info[kv_b->type].plain;
    int64_t stride = hp->d_nope + hp->d_v; /* rows of one head in kv_b */

    matrix_init(&w->k_b, transposed_type(walk, plain), hp->kv_lora_rank, hp->d_nope, hp->n_heads);
    take_matrix(walk, &w->k_b);
    load_list_add(
        walk->jobs,
        (struct load_job){ .tensor = kv_b, .to = w->k_b, .src_stride = stride, .transpose = 1 });
    matrix_init(&w->v_b, plain, hp->d_v, hp->kv_lora_rank, hp->n_heads);
    take_matrix(walk, &w->v_b);
    load_list_add(walk->jobs, (struct load_job){ .tensor = kv_b,
                                                 .to = w->v_b,
                                                 .src_stride = stride,
                                                 .src_first = hp->d_nope });
}

static void lay_out_experts(struct walk *walk, struct layer_weights *w, int layer)
{
    const struct model *m = walk->m;
    const struct hparams *hp = &m->hp;
    const struct gguf_tensor *merged = model_tensor(m, layer, ROLE_GATE_UP_EXPS);
    const struct gguf_tensor *gate = model_tensor(m, layer, ROLE_GATE_EXPS);
    int64_t width = hp->d_expert;

    if (gate) {
        lay_out(walk, &w->gate_exps, gate, width, hp->n_experts);
        lay_out(walk, &w->up_exps, model_tensor(m, layer, ROLE_UP_EXPS), width, hp->n_experts);
    } else { /* within each expert first the gate rows, then the up rows */
        matrix_init(&w->gate_exps, quant_info[merged->type].plain, width, hp->d_model,
                    hp->n_experts);
        w->up_exps = w->gate_exps;
        take_matrix(walk, &w->gate_exps);
        take_matrix(walk, &w->up_exps);
        load_list_add(
            walk->jobs,
            (struct load_job){ .tensor = merged, .to = w->gate_exps, .src_stride = 2 * width });
        load_list_add(walk->jobs, (struct load_job){ .tensor = merged,
                                                     .to = w->up_exps,
                                                     .src_stride = 2 * width,
                                                     .src_first = width });
    }
    lay_out(walk, &w->down_exps, model_tensor(m, layer, ROLE_DOWN_EXPS), hp->d_model,
            hp->n_experts);
}

static void lay_out_layer(struct walk *walk, struct layer_weights *w, int layer)
{
    const struct model *m = walk->m;
    const struct hparams *hp = &m->hp;
    const struct gguf_tensor *q_a = model_tensor(m, layer, ROLE_ATTN_Q_A);
    int64_t q_width = hp->n_heads * (hp->d_nope + hp->d_rope);
    int64_t shared = hp->n_shared_experts * hp->d_expert;

    *w = (struct layer_weights){ .is_moe = layer >= hp->n_dense };
    w->attn_norm = lay_out_vector(walk, model_tensor(m, layer, ROLE_ATTN_NORM));
    w->kv_a_norm = lay_out_vector(walk, model_tensor(m, layer, ROLE_ATTN_KV_A_NORM));
    w->ffn_norm = lay_out_vector(walk, model_tensor(m, layer, ROLE_FFN_NORM));
    w->q_a_norm = lay_out_vector(walk, model_tensor(m, layer, ROLE_ATTN_Q_A_NORM));
    lay_out(walk, &w->q_a, q_a, hp->q_lora_rank, 1);
    lay_out(walk, &w->q_b, model_tensor(m, layer, q_a ? ROLE_ATTN_Q_B : ROLE_ATTN_Q), q_width, 1);
    lay_out(walk, &w->kv_a, model_tensor(m, layer, ROLE_ATTN_KV_A), hp->kv_lora_rank + hp->d_rope,
            1);
    lay_out_kv(walk, w, layer);
    lay_out(walk, &w->attn_output, model_tensor(m, layer, ROLE_ATTN_OUTPUT), hp->d_model, 1);

    int64_t ffn = w->is_moe ? shared : hp->d_ffn;
    enum tensor_role roles[3] = { ROLE_FFN_GATE, ROLE_FFN_UP, ROLE_FFN_DOWN };
    if (w->is_moe) {
        roles[0] = ROLE_GATE_SHEXP;
        roles[1] = ROLE_UP_SHEXP;
        roles[2] = ROLE_DOWN_SHEXP;
        lay_out(walk, &w->router, model_tensor(m, layer, ROLE_ROUTER), hp->n_experts, 1);
        w->router_bias = lay_out_vector(walk, model_tensor(m, layer, ROLE_ROUTER_BIAS));
        lay_out_experts(walk, w, layer);
    }
    if (ffn > 0) {
        lay_out(walk, &w->gate, model_tensor(m, layer, roles[0]), ffn, 1);
        lay_out(walk, &w->up, model_tensor(m, layer, roles[1]), ffn, 1);
        lay_out(walk, &w->down, model_tensor(m, layer, roles[2]), hp->d_model, 1);
    }
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
    lay_out(walk, &w->output, output ? output : embedding, m->hp.n_vocab, 1);
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
    struct walk count = { .m = m, .jobs = &none, .derived_k_b = derived_k_b(opt) };
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
    struct walk walk = {
        .m = m, .carve.base = arena.base, .jobs = &jobs, .derived_k_b = derived_k_b(opt)
    };
    if ((rc = lay_out_new(&w, &walk, e)) != ERR_OK)
        goto out;
    w->arena = arena;
    arena = (struct arena){ 0 };
    if ((rc = load_run(&jobs, m, team, opt->check_values, e)) != ERR_OK)
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

size_t weights_active_bytes(const struct weights *w, int n_used)
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
            bytes += matrix_bytes(experts[i]) / (size_t)experts[i]->n_slabs * (size_t)n_used;
    }
    return bytes;
}
