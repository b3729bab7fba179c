/* SPDX-License-Identifier: MIT */
/* rank/moe.h - the routed experts of one layer.
 *
 * Tokens are routed, then sorted by expert, so that an expert's weights are read once
 * for all its tokens.  A pair is one (token, expert) whose expert is on this rank; pairs are
 * kept in expert order:
 *
 *     gate, up   [pairs][d_expert]        down   straight into the sums
 *
 * Every thread owns the same row groups of every expert, so no sum crosses threads.
 */
#ifndef RANK_MOE_H
#define RANK_MOE_H

#include "rank/columns.h"
#include "rank/comm.h"
#include "rank/router.h"
#include "rank/weights.h"

struct moe {
    const struct hparams *hp;
    const struct math *math;
    struct comm *comm; /* is told of progress */
    int groups;        /* group routing on    */

    /* n is the most tokens of a step, k the experts of a token. */
    float *logits;   /* [n][n_experts]                     */
    float *scratch;  /* [n][2 * n_experts]                 */
    int32_t *chosen; /* [n][k]                            */
    float *weights;  /* [n][k]                            */

    int32_t *first;             /* [n_experts + 1] first pair of each slab here    */
    int32_t *pair_token;        /* [n * k]                                         */
    float *pair_weight;         /* [n * k]                                         */
    struct cpu_column *pair_in; /* [n * k] the token's columns                */
    float *gate, *up;           /* [n * k][d_expert]                               */
    struct columns mid;         /* [n * k] inputs of down                          */
};

void moe_init(struct moe *m, const struct hparams *hp, const struct math *math, int groups);
void moe_carve(struct moe *m, struct carve *from, int max_tokens);

/* Adds the weighted outputs of each token's experts on this rank to fix, rows of comm_rows;
 * out-of-range values are counted in bad[n], this thread's.  x: [n] columns of the layer's input.
 * Called by all threads of the team; ends without a barrier. */
void moe_run(struct moe *m, const struct layer_weights *l, const struct share_layer *own,
             const struct cpu_column *x, int n, int64_t *fix, int64_t *bad, int thread,
             int n_threads);

/* Adds to counts[n_experts] how many of the n tokens each expert of the model was chosen for, on
 * this rank or not.  One thread, between a moe_run and the next. */
void moe_count(const struct moe *m, int n, uint64_t *counts);

/* Which experts token t goes to, as one number. */
uint64_t moe_digest(const struct moe *m, int64_t t);

#endif
