/* SPDX-License-Identifier: MIT */
/* rank/attention.h - MLA attention over the latent cache, absorbed and expanded.
 *
 *   absorbed   qa[h] = k_b[h] q_nope[h];  s = scale * (qa . c_j + q_rope . kr_j);
 *              oc = sum_j softmax(s)_j c_j;  o[h] = v_b[h] oc
 *   expanded   kn_j = k_b[h]^T c_j (in float), v_j = v_b[h] c_j, for pieces of the context;
 *              s = scale * (q_nope . kn_j + q_rope . kr_j);  o[h] = sum_j softmax(s)_j v_j
 *
 * Keys and values come only from the cache, those of the running step included.  The
 * order of sums belongs to the position alone: a left fold over key blocks of 64 from
 * position 0; for produced positions inside splits of S = max(256, 2^ceil(log2((p+1)/32)))
 * positions, joined in ascending order.
 *
 * A rank computes its slice of the heads, which are shared out over its threads.
 */
#ifndef RANK_ATTENTION_H
#define RANK_ATTENTION_H

#include "model/hparams.h"
#include "rank/batch.h"
#include "rank/cache.h"
#include "rank/columns.h"
#include "rank/comm.h"
#include "rank/weights.h"

/* What all layers share. */
struct attention {
    const struct hparams *hp;
    int max_heads; /* the most that this rank has in any layer */
    struct math math;
    struct cache *cache;
    struct comm *comm; /* is told of progress */
    float softmax_scale;
    int64_t piece; /* positions expanded at a time, a multiple of 64 */
    int max_tokens, n_threads;
};

/* Folding state of several query rows: softmax maximum and sum, weighted values. */
struct fold {
    float *o, *joined_o;                        /* [rows][width] */
    float *max, *sum, *joined_max, *joined_sum; /* [rows]      */
    int64_t width;
};

/* Working memory of one thread. */
struct attention_scratch {
    int absorbed_rows; /* queries (heads x tokens) handled at once */
    struct fold fold;
    float *query, *query_rope; /* absorbed: [rows][d_c], [rows][d_rope] */
    float *scores;             /* [rows][64]                            */
    float *latent;             /* [piece][d_c + d_rope]                 */
    float *keys, *values;      /* expanded: [piece][d_nope], [piece][d_v] */
    float *w_k;                /* expanded: one head's k_b transposed, x16 f32 */
    float *row;                /* a row of k_b, and as it is stored     */
    uint8_t *row_bytes;
    struct columns nope, latents; /* inputs of k_b and v_b              */
};

/* The number of positions to expand at a time so that the threads' buffers stay below
 * amb_mib MiB: at least 64, at most 512. */
int64_t attention_piece(const struct hparams *hp, int n_threads, int amb_mib);

/* Carves the scratch of one thread. */
void attention_carve(struct attention_scratch *s, struct carve *from, const struct attention *a);

/* The form of a prompt position (docs/design.md, section 7): full chunks of 512 expanded, the last
 * partial one by cost.  mla: 0 expanded, 1 absorbed, 2 and 3 this rule. */
enum mla_form attention_form(const struct hparams *hp, int mla, int64_t pos, int64_t prompt_len);

/* o[t][h * d_v ..] for every token of the batch and the heads of this thread, counted from the
 * rank's first.  q: [n][q_stride], rotated; the cache rows of the batch are written.  layer: of
 * the cache. */
void attention_run(const struct attention *a, const struct layer_weights *w, int layer,
                   const struct batch *b, const float *q, int64_t q_stride, float *o,
                   int64_t o_stride, struct attention_scratch *s, int thread);

#endif
