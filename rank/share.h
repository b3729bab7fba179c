/* SPDX-License-Identifier: MIT */
/* rank/share.h - what of the model one rank owns.
 *
 * Taken from a plan, where it is written as parts of tensors on devices; or everything,
 * for one rank without a plan.  Whatever is not sliced (norms, router, q_a, kv_a, the
 * embedding) stands on every rank and is not named here.  Any slice may be empty.
 */
#ifndef RANK_SHARE_H
#define RANK_SHARE_H

#include "model/model.h"
#include "placement/plan.h"

struct share_layer {
    int head_begin, head_end;
    int64_t column_begin, column_end; /* of the dense FFN, or of the shared expert */
    int cache_layer;                  /* in this rank's latent cache; -1: it has no heads here */
    int n_experts;
    int32_t *experts; /* [n_experts] whole routed experts, ascending: slab i of the weights */
    int32_t *slab_of; /* [all experts of a layer] its slab, or -1 where another rank has it */
};

struct share {
    int rank, n_ranks;
    int n_layers, n_cache_layers;
    int max_heads;       /* the most of any layer */
    int64_t max_columns; /* likewise              */
    int64_t file_bytes;  /* of its own parts, by the plan; 0 without one */
    struct share_layer *layers;
    struct plan_range *vocab; /* [n_ranks] rows of the output matrix */
    int32_t *numbers;         /* the lists of experts */
};

/* Both end with share_free, also after a failure.  Errors: ERR_NOMEM. */
enum err_code share_everything(struct share *s, const struct model *m, struct err *e);

/* Also ERR_UNSUPPORTED, something is planned on a GPU. */
enum err_code share_of_plan(struct share *s, const struct plan *p, int rank, struct err *e);

void share_free(struct share *s);

static inline int share_heads(const struct share_layer *l)
{
    return l->head_end - l->head_begin;
}

static inline int64_t share_columns(const struct share_layer *l)
{
    return l->column_end - l->column_begin;
}

#endif
