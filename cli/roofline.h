/* SPDX-License-Identifier: MIT */
/* cli/roofline.h - how fast a model could be on this machine, if memory and cores were perfect.
 *
 * Decode reads every weight that a token meets, and the latent cache, once per token.  Prefill
 * must do all multiply-adds of its tokens and read every weight they meet once per step.
 * Attention's own arithmetic, norms and the router's choice are left out, so the floor is a
 * little low and a fraction of it a little unkind.
 */
#ifndef CLI_ROOFLINE_H
#define CLI_ROOFLINE_H

#include "cli/machine.h"
#include "model/model.h"

/* Weights that every token meets, and those of one expert, summed over all layers. */
struct model_work {
    double shared_bytes, shared_macs; /* bytes in the file; multiply-adds of one token */
    double expert_bytes, expert_macs;
    int n_experts, n_experts_used;
};

void model_work_read(struct model_work *w, const struct model *m);

/* Least seconds for one token of one sequence: weight_bytes and cache_bytes are read. */
double roofline_decode_s(const struct machine *m, double weight_bytes, double cache_bytes);

/* Least seconds for n tokens in steps of at most `step` tokens, whose experts are drawn evenly. */
double roofline_prefill_s(const struct machine *m, const struct model_work *w, int64_t n,
                          int64_t step);

#endif
