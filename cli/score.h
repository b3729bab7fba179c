/* SPDX-License-Identifier: MIT */
/* cli/score.h - perplexity from the logits of known text. */
#ifndef CLI_SCORE_H
#define CLI_SCORE_H

#include <stdint.h>

/* Negative log-likelihoods so far, in nats. */
struct score {
    double sum, sum_squares;
    int64_t n;
};

/* -log of the probability that softmax(logits[n_vocab]) gives to `id`; NaN if a logit is NaN. */
double score_token(const float *logits, int n_vocab, int32_t id);

void score_add(struct score *s, double nll);

/* exp of the mean, and its standard error (first order: perplexity times the standard error of
 * the mean).  n must be above 0; of a single token the error is 0. */
double score_perplexity(const struct score *s);
double score_error(const struct score *s);

/* The chunks of a text of n_tokens, cut as the peers do: BOS stands before the text, each chunk
 * takes the next `chunk` tokens of this, and its first one becomes BOS.  So chunk i is BOS and
 * the text's tokens i * chunk ... i * chunk + chunk - 2, and one token between two chunks is
 * never seen.  An incomplete last chunk is dropped.  Scored are the positions chunk/2 ...
 * chunk-2, each by the token that follows. */
int64_t score_chunk_count(int64_t n_tokens, int64_t chunk);
static inline int64_t score_first(int64_t chunk)
{
    return chunk / 2;
}
static inline int64_t score_end(int64_t chunk)
{
    return chunk - 1;
}

#endif
