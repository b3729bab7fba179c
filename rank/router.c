/* SPDX-License-Identifier: MIT */
#include "rank/router.h"

#include <math.h>
#include <string.h>

enum err_code router_check(const struct hparams *hp, struct err *e)
{
    if (hp->n_experts > ROUTER_MAX_EXPERTS || hp->n_experts_used > ROUTER_MAX_USED)
        return err_set(e, ERR_UNSUPPORTED,
                       "%d experts with %d used: at most %d with %d are supported", hp->n_experts,
                       hp->n_experts_used, ROUTER_MAX_EXPERTS, ROUTER_MAX_USED);
    return ERR_OK;
}

static int all_finite(const float *x, int n)
{
    float zero = 0;

    for (int i = 0; i < n; i++)
        zero += 0 * x[i];
    return zero == 0;
}

static float largest(const float *x, int n)
{
    float best = -INFINITY;

    for (int i = 0; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

/* Takes the largest of x[n], lowest index among equals, and leaves -inf in its place.  Where
 * nothing is above -inf (NaN everywhere) it takes the first that was not taken. */
static int take_best(float *x, int n, const uint8_t *taken)
{
    int best = -1;

    for (int i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || x[i] > x[best]))
            best = i;
    return best;
}

static float group_score(const struct hparams *hp, const float *sel, int n)
{
    float first = -INFINITY, second = -INFINITY;

    if (hp->group_score_max)
        return largest(sel, n);
    for (int i = 0; i < n; i++) {
        if (sel[i] > first) {
            second = first;
            first = sel[i];
        } else if (sel[i] > second) {
            second = sel[i];
        }
    }
    return first + second;
}

static void drop_groups(const struct hparams *hp, float *sel)
{
    int size = hp->n_experts / hp->n_groups;
    float score[ROUTER_MAX_EXPERTS];
    uint8_t kept[ROUTER_MAX_EXPERTS] = { 0 };

    for (int g = 0; g < hp->n_groups; g++)
        score[g] = group_score(hp, sel + g * size, size);
    for (int i = 0; i < hp->n_groups_used; i++)
        kept[take_best(score, hp->n_groups, kept)] = 1;
    for (int g = 0; g < hp->n_groups; g++)
        for (int i = 0; i < size && !kept[g]; i++)
            sel[g * size + i] = -INFINITY;
}

static void probabilities(const struct hparams *hp, const struct cpu_kernels *k,
                          const float *logits, float *p)
{
    int n = hp->n_experts;

    switch (hp->gating) {
    case GATING_SIGMOID:
        k->sigmoid(p, logits, n);
        break;
    case GATING_SOFTMAX: {
        float sum = k->softmax_part(p, logits, n, largest(logits, n));
        for (int i = 0; i < n; i++)
            p[i] /= sum;
        break;
    }
    case GATING_SOFTMAX_SELECTED: /* the softmax is taken over the chosen ones, below */
        memcpy(p, logits, (size_t)n * sizeof *p);
        break;
    }
}

void router_choose(const struct hparams *hp, const struct cpu_kernels *k, const float *logits,
                   const float *bias, int groups, float *scratch, int32_t *experts, float *weights)
{
    float *p = scratch, *sel = scratch + hp->n_experts;
    uint8_t taken[ROUTER_MAX_EXPERTS] = { 0 };
    int n = hp->n_experts_used, sound;
    float sum = 0;

    probabilities(hp, k, logits, p);
    for (int i = 0; i < hp->n_experts; i++)
        sel[i] = bias ? p[i] + bias[i] : p[i];
    sound = all_finite(logits, hp->n_experts) && all_finite(sel, hp->n_experts);
    if (groups && hp->n_groups > 1)
        drop_groups(hp, sel);
    for (int i = 0; i < n; i++) {
        experts[i] = take_best(sel, hp->n_experts, taken);
        taken[experts[i]] = 1;
        weights[i] = p[experts[i]];
    }
    if (hp->gating == GATING_SOFTMAX_SELECTED) {
        float z = k->softmax_part(weights, weights, n, largest(weights, n));
        for (int i = 0; i < n; i++)
            weights[i] /= z;
    }
    for (int i = 0; i < n; i++)
        sum += weights[i];
    for (int i = 0; i < n; i++) {
        if (hp->weights_norm)
            weights[i] /= sum + 1e-20f;
        if (hp->weights_scale != 0)
            weights[i] *= (float)hp->weights_scale;
        if (!sound) /* an expert with a NaN would just lose, and one with +inf always win */
            weights[i] = NAN;
    }
}
