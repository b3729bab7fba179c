/* SPDX-License-Identifier: MIT */
/* rank/weights.h - the weights of a model as one rank keeps them in host memory.
 *
 * One arena holds the rank's share (rank/share.h): matrices in the x16 form, norms and
 * router bias as f32, the embedding as rows of the file.  weights_bytes tells its size from
 * the headers alone; weights_load fills it, reading nothing but the share.  A matrix of
 * which the share has nothing is empty: rows, slabs and groups are 0.
 *
 * Whatever the file's attention layout, the engine keeps k_b and v_b, one slab per head:
 *
 *     k_b [heads][d_c][d_n]     v_b [heads][d_v][d_c]         slab 0: the share's first head
 *
 * A k_b that must be transposed out of kv_b keeps a float type of the file and is
 * F16 (under --exact-math F32) where kv_b is quantised.
 */
#ifndef RANK_WEIGHTS_H
#define RANK_WEIGHTS_H

#include "base/team.h"
#include "model/model.h"
#include "rank/matrix.h"
#include "rank/share.h"

struct layer_weights {
    float *attn_norm, *q_a_norm, *kv_a_norm, *ffn_norm; /* q_a_norm NULL without q_lora */
    struct matrix q_a, q_b; /* q_a.rows 0 without q_lora: q_b is then attn_q */
    struct matrix kv_a, k_b, v_b, attn_output;

    int is_moe;
    struct matrix gate, up, down; /* dense FFN, or the shared expert; rows 0: none */
    struct matrix router;
    float *router_bias;                          /* NULL: none */
    struct matrix gate_exps, up_exps, down_exps; /* a slab for each expert of the share */
};

struct weights {
    struct arena arena;
    uint8_t *embedding_rows; /* [n_vocab][embedding_row_bytes], as in the file */
    size_t embedding_row_bytes;
    enum quant embedding_type;
    int64_t d_model;
    float *output_norm;
    struct matrix output;         /* the share's rows of the vocabulary */
    int64_t file_bytes;           /* what was read */
    struct layer_weights *layers; /* [n_layers] */
    int n_layers;
};

struct weights_options {
    int exact_math;   /* a derived k_b in F32                     */
    int check_values; /* refuse NaN and Inf: --check-tensors      */
    const struct share *share;
    struct comm *comm; /* whose figures show how far loading is; may be NULL */
};

/* Bytes of the arena that weights_load will map.  Errors: ERR_NOMEM. */
enum err_code weights_bytes(size_t *bytes, const struct model *m, const struct weights_options *opt,
                            struct err *e);

/* Reads, checks and packs the share's weights.
 * Errors: ERR_NOMEM, ERR_IO, ERR_FORMAT.  *out is set only on success. */
enum err_code weights_load(struct weights **out, const struct model *m, const struct team *team,
                           const struct weights_options *opt, struct err *e);
void weights_free(struct weights **w);

/* Bytes of all matrices here that one token meets; of the routed experts the `used` part. */
size_t weights_active_bytes(const struct weights *w, double used);

/* Row of one token as f32 [d_model]. */
void weights_embed(const struct weights *w, int32_t token, float *out);

#endif
