/* SPDX-License-Identifier: MIT */
/* rank/sampler.h - from logits to a token.
 *
 * Pure: the choice is a function of the logits, the parameters, the tokens so far and
 * (seed, position).  Random numbers come from a counter-based generator (Philox 4x32-10,
 * Salmon et al. 2011), so that a resumed request continues as if nothing had happened.
 */
#ifndef RANK_SAMPLER_H
#define RANK_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct logit_bias {
    int32_t id;
    float bias;
};

struct sampling {
    float temperature;       /* 0: greedy, the lowest id among equals     */
    int top_k;               /* 0: off                                    */
    float top_p;             /* 1: off                                    */
    float min_p;             /* 0: off                                    */
    float repeat_penalty;    /* 1: off                                    */
    float presence_penalty;  /* 0: off                                    */
    float frequency_penalty; /* 0: off                                    */
    int penalty_last_n;      /* tokens looked back at; -1: all            */
    uint64_t seed;
    const struct logit_bias *bias; /* [n_bias], borrowed                  */
    int n_bias;
};

/* llama.cpp's defaults: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalties. */
void sampling_default(struct sampling *s);

/* Errors: ERR_USAGE, a parameter that is outside its range or not a number, by name. */
enum err_code sampling_check(const struct sampling *s, struct err *e);

struct sampler; /* scratch of n_vocab entries; nothing in it outlives a call */

/* What it takes. */
size_t sampler_bytes(int n_vocab);

/* n_vocab: at least 1.  Errors: ERR_NOMEM. */
enum err_code sampler_create(struct sampler **out, int n_vocab, struct err *e);
void sampler_free(struct sampler **s);

/* Chooses the token at `position`.  p: passed sampling_check.  logits: [n_vocab], unchanged; -inf
 * is allowed.  history: [n_history] tokens of the request so far, prompt included, oldest
 * first.  Order: bias, penalties, top-k, top-p and min-p on the probabilities at temperature
 * 1, then temperature and the draw over what is left, in descending order of logits.
 * A repeated token's logit is divided by repeat_penalty if positive, multiplied if
 * negative; then presence_penalty and its count times frequency_penalty are taken off.
 * Errors: ERR_NUMERIC, a NaN or +inf among the logits, or nothing but -inf; ERR_USAGE, a bias
 * for a token that does not exist, or biases that forbid every token. */
enum err_code sampler_choose(struct sampler *s, const struct sampling *p, const float *logits,
                             const int32_t *history, size_t n_history, int64_t position,
                             int32_t *token, struct err *e);

#endif
