/* SPDX-License-Identifier: MIT */
/* rank/rope.h - rotary positions with YaRN, for interleaved pairs (2i, 2i+1).
 *
 * The frequencies are those of the vendor's code (DeepSeek-V3 inference/model.py,
 * precompute_freqs_cis); the magnitude of the rotation is 1 in this family, YaRN's
 * temperature sits in the softmax scale (rope_softmax_scale).
 *
 * Angles are computed in long double, whose x87 functions give the same bits on every
 * x86-64 machine, and stored as f32 cosine and sine: position 1,000,000 is as exact as
 * position 1.
 */
#ifndef RANK_ROPE_H
#define RANK_ROPE_H

#include "model/hparams.h"

enum { ROPE_MAX_PAIRS = 256 };

struct rope {
    int n_pairs; /* d_rope / 2 */
    double freq[ROPE_MAX_PAIRS];
};

/* Errors: ERR_UNSUPPORTED, d_rope is odd or above 2 * ROPE_MAX_PAIRS. */
enum err_code rope_init(struct rope *r, const struct hparams *hp, struct err *e);

/* cos_sin: [n_pairs][2] for one position. */
void rope_angles(const struct rope *r, int64_t pos, float *cos_sin);

/* Rotates x[2 * n_pairs] in place. */
void rope_rotate(float *x, const float *cos_sin, int n_pairs);

/* mu^2 / sqrt(d_nope + d_rope), mu = 1 + yarn_log_mul * ln(factor) under YaRN. */
float rope_softmax_scale(const struct hparams *hp);

/* Mistral's query temperature at a position: 1 + scale * ln(1 + floor(pos / length)); 1 where
 * the model has none. */
float rope_query_temperature(const struct hparams *hp, int64_t pos);

#endif
