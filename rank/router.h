/* SPDX-License-Identifier: MIT */
/* rank/router.h - which experts a token goes to, and with which weights.
 *
 * Exactly the vendor's rule (DeepSeek-V3 inference/model.py, Gate), in f32:
 *
 *     p    = softmax(l) or sigmoid(l)
 *     sel  = p + bias                       for the selection only
 *     keep the best groups (score: two largest sel, or the largest), others -inf
 *     I    = the k largest sel, lowest index first among equals
 *     w    = p[I], / (sum + 1e-20) if weights_norm, * weights_scale
 */
#ifndef RANK_ROUTER_H
#define RANK_ROUTER_H

#include "kernels/cpu/cpu_kernels.h"
#include "model/hparams.h"

enum { ROUTER_MAX_EXPERTS = 4096, ROUTER_MAX_USED = 64 };

/* Errors: ERR_UNSUPPORTED, more experts than the limits above. */
enum err_code router_check(const struct hparams *hp, struct err *e);

/* logits: [n_experts].  bias: [n_experts] or NULL.  scratch: [2 * n_experts].  groups: 0 leaves
 * group routing out (--router-groups off).  Writes n_experts_used experts and weights, best
 * first.  NaN or infinity among the logits or the bias yields NaN weights, which the sums then
 * report. */
void router_choose(const struct hparams *hp, const struct cpu_kernels *k, const float *logits,
                   const float *bias, int groups, float *scratch, int32_t *experts, float *weights);

#endif
