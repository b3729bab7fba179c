/* SPDX-License-Identifier: MIT */
/* rank/head.h - the output head: logits of the tokens that want them.
 *
 * Every rank multiplies its rows of the vocabulary; rank 0 gets all of them, some tokens at
 * a time:
 *
 *     own   [rows][own vocabulary + 1]     the last is not 0 if a logit is no number
 *     all   each rank's `own`, one after the other; on rank 0 alone
 *
 * A single rank writes where the logits are wanted.  Rank 0 also has room for whoever drives it.
 */
#ifndef RANK_HEAD_H
#define RANK_HEAD_H

#include "rank/batch.h"
#include "rank/columns.h"
#include "rank/comm.h"
#include "rank/weights.h"

struct head {
    const struct hparams *hp;
    const struct math *math;
    const struct share *share;
    const struct weights *weights;
    struct comm *comm;
    int rows;         /* gathered at once */
    float *logits;    /* [max_logits][n_vocab] of rank 0, for its driver */
    int32_t *wanted;  /* [max_tokens] tokens of the batch */
    float *own, *all; /* NULL with one rank */
    size_t *bytes_of; /* [n_ranks] of a gather */
};

/* What a step brings: x [n][d_model] is complete; h and cols are free to use.  Threads count bad
 * values in bad[thread * bad_stride + token]. */
struct head_step {
    struct batch *batch;
    const float *x;
    float *h;
    struct columns *cols;
    int64_t *bad, bad_stride;
    float *logits; /* [tokens that want them][n_vocab], of rank 0 */
};

/* share: with its numbers of ranks and rows, also when only counted. */
void head_carve(struct head *o, struct carve *from, const struct share *share, int max_tokens,
                int max_logits);

/* Called by all threads of the team, after a barrier; ends with one.  Sets bad_layer, on rank 0,
 * of tokens whose logits are no numbers. */
void head_run(struct head *o, const struct head_step *s, int thread, int n_threads);

#endif
