/* SPDX-License-Identifier: MIT */
/* rank/sampler.c - see sampler.h.
 *
 * One order rules everything: descending logit, equal logits by ascending id.  It is kept
 * in 64-bit keys that ascend in that order, so that selecting, sorting and adding up have
 * one possible outcome each.
 *
 * Reading order: keys; the logits as bias and penalties leave them; selecting the
 * candidates; cutting them by probability and drawing; the interface.
 */
#include "rank/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rank/philox.h"

struct sampler {
    int n_vocab;
    float *logit;    /* [n_vocab] after bias and penalties                        */
    int32_t *count;  /* [n_vocab] occurrences of a token; all zero between calls  */
    uint64_t *key;   /* [n_vocab] the candidates                                  */
    uint64_t *spare; /* [n_vocab] the other half of the radix sort                */
    double *weight;  /* [n_vocab] of the candidates, the first one has 1          */
};

/* ---- Keys --------------------------------------------------------------- */

/* High half: the bits of the logit, turned so that unsigned numbers ascend while the logit
 * descends.  Low half: the id. */
static uint64_t key_make(float logit, int32_t id)
{
    uint32_t bits;

    if (logit == 0)
        logit = 0; /* -0 is equal to 0, and so must not sort behind it */
    memcpy(&bits, &logit, sizeof bits);
    if (!(bits >> 31))
        bits = ~bits & 0x7FFFFFFFu;
    return (uint64_t)bits << 32 | (uint32_t)id;
}

static int32_t key_id(uint64_t key)
{
    return (int32_t)(uint32_t)key;
}

/* ---- Bias and penalties ------------------------------------------------- */

static enum err_code take_logits(struct sampler *s, const float *logits, struct err *e)
{
    int good = 1, any = 0, first = 0;

    for (int i = 0; i < s->n_vocab; i++) {
        s->logit[i] = logits[i];
        good &= logits[i] < INFINITY;
        any |= logits[i] > -INFINITY;
    }
    if (good && any)
        return ERR_OK;
    while (first < s->n_vocab - 1 && logits[first] < INFINITY)
        first++;
    return err_set(e, ERR_NUMERIC, "sampling: the logit of token %d is %g%s; check the weights",
                   first, (double)logits[first], good ? " as are all others" : "");
}

static enum err_code set_logit(struct sampler *s, int32_t id, float value, struct err *e)
{
    if (!(value < INFINITY))
        return err_set(e, ERR_NUMERIC,
                       "sampling: bias or penalty makes the logit of token %d %g; use smaller ones",
                       id, (double)value);
    s->logit[id] = value;
    return ERR_OK;
}

static enum err_code add_bias(struct sampler *s, const struct sampling *p, struct err *e)
{
    for (int i = 0; i < p->n_bias; i++) {
        int32_t id = p->bias[i].id;
        if (id < 0 || id >= s->n_vocab)
            return err_set(e, ERR_USAGE, "logit bias: there is no token %d; ids end at %d", id,
                           s->n_vocab - 1);
        TRY(set_logit(s, id, s->logit[id] + p->bias[i].bias, e));
    }
    return ERR_OK;
}

static float penalised(const struct sampling *p, float logit, int32_t count)
{
    logit = logit > 0 ? logit / p->repeat_penalty : logit * p->repeat_penalty;
    return logit - (float)count * p->frequency_penalty - p->presence_penalty;
}

/* Two walks over the window: the first counts, the second lets each token pay once and
 * leaves its count at zero, so that nobody clears n_vocab counts. */
static enum err_code penalise(struct sampler *s, const struct sampling *p, const int32_t *history,
                              size_t n_history, struct err *e)
{
    enum err_code rc = ERR_OK;
    size_t n = n_history;

    if (p->repeat_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0)
        return ERR_OK;
    if (p->penalty_last_n >= 0 && n > (size_t)p->penalty_last_n)
        n = (size_t)p->penalty_last_n;
    if (!n)
        return ERR_OK;
    history += n_history - n;
    for (size_t i = 0; i < n; i++)
        if (history[i] >= 0 && history[i] < s->n_vocab)
            s->count[history[i]]++;
    for (size_t i = 0; i < n; i++) {
        int32_t id = history[i];
        if (id < 0 || id >= s->n_vocab || !s->count[id])
            continue;
        if (rc == ERR_OK)
            rc = set_logit(s, id, penalised(p, s->logit[id], s->count[id]), e);
        s->count[id] = 0;
    }
    return rc;
}

/* ---- Candidates --------------------------------------------------------- */

/* The best token, or -1 if all are forbidden. */
static int32_t best_token(const struct sampler *s)
{
    int32_t best = -1;
    float most = -INFINITY;

    for (int i = 0; i < s->n_vocab; i++)
        if (s->logit[i] > most) {
            most = s->logit[i];
            best = i;
        }
    return best;
}

/* Lets h[0] of a heap with the largest key on top sink to its place. */
static void sink(uint64_t *h, size_t n)
{
    uint64_t key = h[0];
    size_t at = 0;

    for (size_t child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && h[child + 1] > h[child])
            child++;
        if (h[child] <= key)
            break;
        h[at] = h[child];
        at = child;
    }
    h[at] = key;
}

static void rise(uint64_t *h, size_t at)
{
    uint64_t key = h[at];

    for (; at && h[(at - 1) / 2] < key; at = (at - 1) / 2)
        h[at] = h[(at - 1) / 2];
    h[at] = key;
}

/* The k first in order, sorted; returns how many there are.  The heap holds the best so
 * far, the worst of them on top; most tokens fail the one comparison with it. */
static size_t select_top(struct sampler *s, size_t k)
{
    uint64_t *h = s->key;
    float floor = -INFINITY; /* once the heap is full: later ids lose against an equal logit */
    size_t n = 0;

    for (int i = 0; i < s->n_vocab; i++) {
        if (!(s->logit[i] > floor))
            continue;
        uint64_t key = key_make(s->logit[i], i);
        if (n < k) {
            h[n] = key;
            rise(h, n++);
        } else {
            h[0] = key;
            sink(h, n);
        }
        if (n == k)
            floor = s->logit[key_id(h[0])];
    }
    for (size_t left = n; left > 1; left--) {
        uint64_t worst = h[0];
        h[0] = h[left - 1];
        sink(h, left - 1);
        h[left - 1] = worst;
    }
    return n;
}

/* All tokens that are not forbidden and have this logit or more, sorted: three passes of 11 bits
 * over the high half; the passes are stable and the ids come in ascending, so the low half needs
 * none. */
static size_t sort_from(struct sampler *s, double least)
{
    enum { BITS = 11, PASSES = 3, SIZE = 1 << BITS };
    size_t start[PASSES][SIZE] = { { 0 } };
    size_t n = 0;

    for (int i = 0; i < s->n_vocab; i++) {
        if (!(s->logit[i] >= least && s->logit[i] > -INFINITY))
            continue;
        uint64_t key = key_make(s->logit[i], i);
        s->key[n++] = key;
        for (int pass = 0; pass < PASSES; pass++)
            start[pass][key >> (32 + BITS * pass) & (SIZE - 1)]++;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        size_t sum = 0;
        for (int digit = 0; digit < SIZE; digit++) {
            size_t here = start[pass][digit];
            start[pass][digit] = sum;
            sum += here;
        }
        for (size_t i = 0; i < n; i++) {
            int digit = (int)(s->key[i] >> (32 + BITS * pass) & (SIZE - 1));
            s->spare[start[pass][digit]++] = s->key[i];
        }
        uint64_t *sorted = s->spare;
        s->spare = s->key;
        s->key = sorted;
    }
    return n;
}

static size_t select_candidates(struct sampler *s, int top_k)
{
    enum { HEAP_MAX = 1024 }; /* beyond, sorting everything is not slower */
    size_t n;

    if (top_k <= HEAP_MAX)
        return select_top(s, (size_t)top_k);
    n = sort_from(s, -INFINITY);
    return n < (size_t)top_k ? n : (size_t)top_k;
}

/* ---- Probabilities ------------------------------------------------------ */

enum { NO_WEIGHT = 700 }; /* e^-700 is nothing beside e^0 */

/* e^x for x <= 0.  Written out, because the C library's has more than one version and picks
 * by CPU: a resumed request on another machine must draw the same token. */
static double exp_down(double x)
{
    /* 1/n!, n = 13 ... 2; below 2^-55 relative for |r| <= ln(2)/2. */
    static const double c[] = { 1 / 6227020800., 1 / 479001600., 1 / 39916800., 1 / 3628800.,
                                1 / 362880.,     1 / 40320.,     1 / 5040.,     1 / 720.,
                                1 / 120.,        1 / 24.,        1 / 6.,        1 / 2. };
    double sum = c[0], scale;

    if (!(x > -NO_WEIGHT))
        return 0;
    int64_t k = (int64_t)(x * 1.4426950408889634 - 0.5);
    /* ln 2 in two parts: the first has zeros at its end, so k times it is exact. */
    double r = (x - (double)k * 0x1.62e42feep-1) - (double)k * 0x1.a39ef35793c76p-33;
    for (size_t i = 1; i < sizeof c / sizeof *c; i++)
        sum = sum * r + c[i];
    sum = (sum * r + 1) * r + 1;
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

static void weigh(struct sampler *s, size_t n, double temperature)
{
    double top = s->logit[key_id(s->key[0])];

    for (size_t i = 0; i < n; i++)
        s->weight[i] = exp_down((s->logit[key_id(s->key[i])] - top) / temperature);
}

static double sum_of(const double *weight, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += weight[i];
    return sum;
}

/* How many of the n first weights it takes to exceed `mass` (or to reach it, if `reach`); n + 1:
 * all are too few. */
static size_t first_reaching(const double *weight, size_t n, double mass, int reach)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += weight[i];
        if (sum > mass || (reach && sum == mass))
            return i + 1;
    }
    return n + 1;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Of all tokens, in the order of their ids: nothing need be sorted for it. */
static double weight_of_all(const struct sampler *s, double top, double temperature)
{
    double sum = 0;

    for (int i = 0; i < s->n_vocab; i++)
        sum += exp_down((s->logit[i] - top) / temperature);
    return sum;
}

/* The first of all tokens in order until their weights come to `mass` (see first_reaching), or
 * those whose logit is at most `deepest` under the best one, `top`.  A few tokens have nearly all
 * the weight: only those near the top are sorted, more if they were too few. */
static size_t select_mass(struct sampler *s, double top, double temperature, double mass, int reach,
                          double deepest)
{
    /* All of 129,280 tokens that far down have 1.5 % of the best one's weight. */
    double depth = 16 * temperature;

    for (;; depth *= 2) {
        size_t n = sort_from(s, top - (depth < deepest ? depth : deepest));
        weigh(s, n, temperature);
        size_t first = first_reaching(s->weight, n, mass, reach);
        if (first <= n || depth >= deepest)
            return smaller(first, n);
    }
}

/* How many of the n first have min_p of the best one's probability; one at least. */
static size_t cut_unlikely(const struct sampler *s, size_t n, double min_p)
{
    while (n > 1 && s->weight[n - 1] < min_p)
        n--;
    return n;
}

static size_t cut_by_probability(struct sampler *s, const struct sampling *p, size_t n)
{
    if (p->top_p >= 1 && p->min_p <= 0)
        return n;
    weigh(s, n, 1);
    if (p->top_p < 1)
        n = smaller(n, first_reaching(s->weight, n, p->top_p * sum_of(s->weight, n), 1));
    return cut_unlikely(s, n, p->min_p);
}

/* The same of all tokens, sorting no more of them than it keeps and some. */
static size_t cut_all(struct sampler *s, const struct sampling *p, double top)
{
    double deepest =
        p->min_p > 0 ? 1 - log((double)p->min_p) : NO_WEIGHT; /* 1: to be cut exactly below */
    double mass = p->top_p < 1 ? p->top_p * weight_of_all(s, top, 1) : INFINITY;

    return cut_unlikely(s, select_mass(s, top, 1, mass, 1, deepest), p->min_p);
}

/* The draw among all tokens. */
static int32_t draw_uncut(struct sampler *s, double top, double temperature, double u)
{
    double mass = u * weight_of_all(s, top, temperature);
    size_t n = select_mass(s, top, temperature, mass, 0, NO_WEIGHT * temperature);

    return key_id(s->key[n - 1]);
}

/* `u`: where in the mass, from 0 to 1.  -1: every token is forbidden. */
static int32_t draw(struct sampler *s, const struct sampling *p, double u)
{
    size_t n;

    if (p->top_k > 0) {
        n = select_candidates(s, p->top_k);
        if (n == 0)
            return -1;
        n = cut_by_probability(s, p, n);
    } else {
        int32_t best = best_token(s);
        if (best < 0)
            return -1;
        if (p->top_p >= 1 && p->min_p <= 0)
            return draw_uncut(s, s->logit[best], p->temperature, u);
        n = cut_all(s, p, s->logit[best]);
    }
    weigh(s, n, p->temperature);
    n = smaller(n, first_reaching(s->weight, n, u * sum_of(s->weight, n), 0));
    return key_id(s->key[n - 1]);
}

/* ---- The interface ------------------------------------------------------ */

void sampling_default(struct sampling *s)
{
    *s = (struct sampling){
        .temperature = 0.8f,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .repeat_penalty = 1,
        .penalty_last_n = 64,
    };
}

static enum err_code out_of_range(struct err *e, const char *name, double value, const char *want)
{
    return err_set(e, ERR_USAGE, "%s: %g is out of range; want %s", name, value, want);
}

enum err_code sampling_check(const struct sampling *s, struct err *e)
{
    if (!(s->temperature >= 0 && s->temperature < INFINITY))
        return out_of_range(e, "temperature", s->temperature, "0 (greedy) or more");
    if (s->top_k < 0)
        return out_of_range(e, "top-k", s->top_k, "0 (off) or more");
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return out_of_range(e, "top-p", s->top_p, "0 to 1 (off)");
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return out_of_range(e, "min-p", s->min_p, "0 (off) to 1");
    if (!(s->repeat_penalty > 0 && s->repeat_penalty < INFINITY))
        return out_of_range(e, "repeat penalty", s->repeat_penalty, "more than 0; 1 is off");
    if (!(fabsf(s->presence_penalty) < INFINITY))
        return out_of_range(e, "presence penalty", s->presence_penalty, "a number; 0 is off");
    if (!(fabsf(s->frequency_penalty) < INFINITY))
        return out_of_range(e, "frequency penalty", s->frequency_penalty, "a number; 0 is off");
    if (s->penalty_last_n < -1)
        return out_of_range(e, "penalty window", s->penalty_last_n, "-1 (all) or more");
    for (int i = 0; i < s->n_bias; i++)
        if (!(s->bias[i].bias < INFINITY))
            return out_of_range(e, "logit bias", s->bias[i].bias, "a number or -inf (never)");
    return ERR_OK;
}

size_t sampler_bytes(int n_vocab)
{
    const struct sampler *s = NULL;

    return (size_t)n_vocab * (sizeof *s->logit + sizeof *s->count + sizeof *s->key +
                              sizeof *s->spare + sizeof *s->weight);
}

enum err_code sampler_create(struct sampler **out, int n_vocab, struct err *e)
{
    size_t n = (size_t)n_vocab;
    struct sampler *s = calloc(1, sizeof *s);

    if (s) {
        s->n_vocab = n_vocab;
        s->logit = calloc(n, sizeof *s->logit);
        s->count = calloc(n, sizeof *s->count);
        s->key = calloc(n, sizeof *s->key);
        s->spare = calloc(n, sizeof *s->spare);
        s->weight = calloc(n, sizeof *s->weight);
    }
    if (!s || !s->logit || !s->count || !s->key || !s->spare || !s->weight) {
        sampler_free(&s);
        return err_set(e, ERR_NOMEM, "sampler: no memory for %d tokens", n_vocab);
    }
    *out = s;
    return ERR_OK;
}

void sampler_free(struct sampler **s)
{
    if (!*s)
        return;
    free((*s)->logit);
    free((*s)->count);
    free((*s)->key);
    free((*s)->spare);
    free((*s)->weight);
    free(*s);
    *s = NULL;
}

enum err_code sampler_choose(struct sampler *s, const struct sampling *p, const float *logits,
                             const int32_t *history, size_t n_history, int64_t position,
                             int32_t *token, struct err *e)
{
    TRY(take_logits(s, logits, e));
    TRY(add_bias(s, p, e));
    TRY(penalise(s, p, history, n_history, e));

    int32_t chosen =
        p->temperature == 0 ? best_token(s) : draw(s, p, philox_uniform(p->seed, position));
    if (chosen < 0)
        return err_set(e, ERR_USAGE, "sampling: bias and penalties forbid every token; allow some");
    *token = chosen;
    return ERR_OK;
}
