/* SPDX-License-Identifier: MIT */
/* rank/sampler.h - from logits to a token, and from tokens to text that may be shown.
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
#include "base/str.h"

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

/* Errors: ERR_USAGE, a parameter outside its range, by name. */
enum err_code sampling_check(const struct sampling *s, struct err *e);

struct sampler; /* scratch of n_vocab entries */
enum err_code sampler_create(struct sampler **out, int n_vocab, struct err *e);
void sampler_free(struct sampler **s);

/* Chooses the token at `position`.  logits: [n_vocab], unchanged.  history: [n_history] tokens
 * of the request so far, prompt included, oldest first.  Order: bias, penalties, top-k,
 * temperature-free top-p and min-p, temperature.  Errors: ERR_NUMERIC, a NaN among the logits. */
enum err_code sampler_choose(struct sampler *s, const struct sampling *p, const float *logits,
                             const int32_t *history, size_t n_history, int64_t position,
                             int32_t *token, struct err *e);

/* ---- Holding text back -------------------------------------------------- */

/* Bytes of tokens go in, bytes that may be shown come out: whole UTF-8 characters only, and
 * nothing that may still become a stop string.  Invalid UTF-8 becomes U+FFFD once it can no
 * longer become valid. */
struct text_filter;
enum err_code text_filter_create(struct text_filter **out, const char *const *stops, int n_stops,
                                 struct err *e);
void text_filter_free(struct text_filter **f);

/* Appends to `shown` what may be shown after these bytes.  Returns 1 once a stop string is
 * complete: the text ends before it, and later bytes are ignored. */
int text_filter_push(struct text_filter *f, const char *bytes, size_t n, struct str *shown);

/* The end of generation: appends what was held back. */
void text_filter_flush(struct text_filter *f, struct str *shown);

#endif
