/* SPDX-License-Identifier: MIT */
#include "rank/rope.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925;

/* The pair index at which a full context of yarn_context positions turns `rotations` times. */
static double yarn_pair(const struct hparams *hp, double rotations)
{
    return (double)hp->d_rope * (double)logl((long double)hp->yarn_context / (two_pi * rotations)) /
           (2 * (double)logl(hp->rope_theta));
}

enum err_code rope_init(struct rope *r, const struct hparams *hp, struct err *e)
{
    double low = 0, high = 0;

    if (hp->d_rope % 2 || hp->d_rope / 2 > ROPE_MAX_PAIRS)
        return err_set(e, ERR_UNSUPPORTED,
                       "rope.dimension_count is %lld: an even number up to %d is supported",
                       (long long)hp->d_rope, 2 * ROPE_MAX_PAIRS);
    r->n_pairs = (int)(hp->d_rope / 2);
    if (hp->rope_yarn) {
        low = fmax(0, floor(yarn_pair(hp, hp->yarn_beta_fast)));
        high = fmin((double)hp->d_rope - 1, ceil(yarn_pair(hp, hp->yarn_beta_slow)));
    }
    for (int i = 0; i < r->n_pairs; i++) {
        double base = (double)powl(hp->rope_theta, -2.0L * i / hp->d_rope);
        double interpolate = 1; /* linear scaling; 1 / 1 without any */
        if (hp->rope_yarn)
            interpolate = fmin(fmax((i - low) / fmax(0.001, high - low), 0), 1);
        r->freq[i] = base * (1 - interpolate) + base / hp->rope_factor * interpolate;
    }
    return ERR_OK;
}

void rope_angles(const struct rope *r, int64_t pos, float *cos_sin)
{
    for (int i = 0; i < r->n_pairs; i++) {
        long double angle = (long double)pos * r->freq[i];
        cos_sin[2 * i] = (float)cosl(angle);
        cos_sin[2 * i + 1] = (float)sinl(angle);
    }
}

void rope_rotate(float *x, const float *cos_sin, int n_pairs)
{
    for (int i = 0; i < n_pairs; i++) {
        float a = x[2 * i], b = x[2 * i + 1], c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
        x[2 * i] = a * c - b * s;
        x[2 * i + 1] = a * s + b * c;
    }
}

float rope_softmax_scale(const struct hparams *hp)
{
    double mu = 1;

    if (hp->rope_yarn && hp->rope_factor > 1)
        mu = 1 + hp->yarn_log_mul * (double)logl(hp->rope_factor);
    return (float)(mu * mu / sqrt((double)(hp->d_nope + hp->d_rope)));
}

float rope_query_temperature(const struct hparams *hp, int64_t pos)
{
    if (hp->attn_temp_scale == 0 || hp->attn_temp_length <= 0)
        return 1;
    int64_t periods = pos / hp->attn_temp_length;
    return (float)(1 + hp->attn_temp_scale * (double)logl(1 + (long double)periods));
}
