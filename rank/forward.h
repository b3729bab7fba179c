/* SPDX-License-Identifier: MIT */
/* rank/forward.h - the forward pass: a batch of tokens in, logits out.
 *
 * One step is one parallel region: all threads of the team walk through the layers
 * together, each computing its rows or heads of every phase, with a barrier between
 * phases.  The residual stream is f32 [n][d_model]; what is summed over columns or
 * experts is summed as integers (docs/design.md, section 8), over all ranks: each computes
 * its share, and after attention and after the FFN all have the same residual again.
 */
#ifndef RANK_FORWARD_H
#define RANK_FORWARD_H

#include "base/team.h"
#include "rank/attention.h"
#include "rank/comm.h"
#include "rank/share.h"

struct forward;

struct forward_options {
    const struct cpu_kernels *kernels;
    const struct share *share;
    int exact_math;
    int max_tokens;          /* of a batch (-ub)                       */
    int max_logits;          /* rows of forward_logits                 */
    int amb_mib;             /* -amb                                   */
    int router_groups;       /* 0: --router-groups off                 */
    uint64_t *expert_counts; /* [n_layers][n_experts] to add to, or NULL */
};

/* Bytes of the activation arena for these options. */
enum err_code forward_bytes(size_t *bytes, const struct hparams *hp, const struct team *team,
                            const struct forward_options *opt, struct err *e);

/* Borrows everything, which must outlive it.  comm has room for rows of d_model.
 * Errors: ERR_NOMEM; ERR_UNSUPPORTED, sizes beyond a limit of this build. */
enum err_code forward_create(struct forward **out, const struct hparams *hp,
                             const struct weights *w, struct cache *cache, struct comm *comm,
                             const struct team *team, const struct forward_options *opt,
                             struct err *e);
void forward_free(struct forward **f);

/* Room for logits [max_logits][n_vocab], on rank 0. */
float *forward_logits(const struct forward *f);

/* Runs the batch, together with all ranks (1 <= n <= max_tokens; the cache holds room for its
 * positions, and their predecessors are computed).  logits: [tokens that want them][n_vocab] in
 * batch order, on rank 0. Each token's bad_layer is set. */
void forward_step(struct forward *f, struct batch *b, float *logits);

#endif
