/* SPDX-License-Identifier: MIT */
#include "cli/score.h"

#include <math.h>

double score_token(const float *logits, int n_vocab, int32_t id)
{
    double highest = logits[0], sum = 0;

    for (int i = 1; i < n_vocab; i++)
        if (logits[i] > highest)
            highest = logits[i];
    for (int i = 0; i < n_vocab; i++)
        sum += exp(logits[i] - highest);
    return highest + log(sum) - logits[id];
}

void score_add(struct score *s, double nll)
{
    s->sum += nll;
    s->sum_squares += nll * nll;
    s->n++;
}

double score_perplexity(const struct score *s)
{
    return exp(s->sum / (double)s->n);
}

double score_error(const struct score *s)
{
    if (s->n < 2)
        return 0;
    double mean = s->sum / (double)s->n;
    double variance = s->sum_squares / (double)s->n - mean * mean;
    if (variance < 0)
        variance = 0; /* rounding, where all are equal */
    return score_perplexity(s) * sqrt(variance / (double)(s->n - 1));
}

int64_t score_chunk_count(int64_t n_tokens, int64_t chunk)
{
    return (n_tokens + 1) / chunk;
}
