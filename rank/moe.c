/* SPDX-License-Identifier: MIT */
#include "rank/moe.h"

#include <string.h>

#include "base/team.h"

void moe_init(struct moe *m, const struct hparams *hp, const struct math *math, int groups)
{
    *m = (struct moe){ .hp = hp, .math = math, .groups = groups };
}

void moe_carve(struct moe *m, struct carve *from, int max_tokens)
{
    const struct hparams *hp = m->hp;
    size_t n = (size_t)max_tokens, experts = (size_t)hp->n_experts;
    size_t pairs = n * (size_t)hp->n_experts_used, width = (size_t)hp->d_expert;

    if (hp->n_layers <= hp->n_dense)
        return;
    m->logits = carve_take(from, n * experts * sizeof(float));
    m->scratch = carve_take(from, 2 * n * experts * sizeof(float));
    m->chosen = carve_take(from, pairs * sizeof(int32_t));
    m->weights = carve_take(from, pairs * sizeof(float));
    m->first = carve_take(from, (experts + 1) * sizeof(int32_t));
    m->pair_token = carve_take(from, pairs * sizeof(int32_t));
    m->pair_weight = carve_take(from, pairs * sizeof(float));
    m->pair_in = carve_take(from, pairs * sizeof(struct cpu_column));
    m->gate = carve_take(from, pairs * width * sizeof(float));
    m->up = carve_take(from, pairs * width * sizeof(float));
    columns_carve(&m->mid, from, (int64_t)pairs, hp->d_expert);
}

static void route(struct moe *m, const struct layer_weights *l, int n, int thread, int n_threads)
{
    int64_t experts = m->hp->n_experts, k = m->hp->n_experts_used;

    for (int64_t t = team_begin(n, thread, n_threads); t < team_end(n, thread, n_threads); t++)
        router_choose(m->hp, m->math->kernels, m->logits + t * experts, l->router_bias, m->groups,
                      m->scratch + 2 * t * experts, m->chosen + t * k, m->weights + t * k);
}

/* Counting sort of the pairs of this rank by slab; tokens stay in order within an expert. */
static void sort_pairs(struct moe *m, const struct share_layer *own, const struct cpu_column *x,
                       int n)
{
    int k = m->hp->n_experts_used, slabs = own->n_experts;
    int32_t *first = m->first;

    memset(first, 0, (size_t)(slabs + 1) * sizeof *first);
    for (int i = 0; i < n * k; i++)
        if (own->slab_of[m->chosen[i]] >= 0)
            first[own->slab_of[m->chosen[i]] + 1]++;
    for (int i = 0; i < slabs; i++)
        first[i + 1] += first[i];
    for (int i = 0; i < n * k; i++) {
        int slab = own->slab_of[m->chosen[i]];
        if (slab < 0)
            continue;
        int32_t pair = first[slab]++;
        m->pair_token[pair] = i / k;
        m->pair_weight[pair] = m->weights[i];
        m->pair_in[pair] = x[i / k];
    }
    for (int i = slabs; i > 0; i--) /* each now stands at its end: the next one's first */
        first[i] = first[i - 1];
    first[0] = 0;
}

static void gate_and_up(struct moe *m, const struct layer_weights *l, int thread, int n_threads)
{
    int64_t groups = l->gate_exps.n_groups, width = m->hp->d_expert;
    int64_t g0 = team_begin(groups, thread, n_threads), g1 = team_end(groups, thread, n_threads);

    for (int e = 0; e < l->down_exps.n_slabs; e++) {
        int32_t p = m->first[e], n = m->first[e + 1] - p;
        if (n == 0)
            continue;
        comm_note_progress(m->comm);
        matrix_mul(m->math, &l->gate_exps, e, g0, g1, m->pair_in + p, n, m->gate + p * width,
                   width);
        matrix_mul(m->math, &l->up_exps, e, g0, g1, m->pair_in + p, n, m->up + p * width, width);
    }
}

static void activate(struct moe *m, const struct layer_weights *l, int n_pairs, int thread,
                     int n_threads)
{
    int64_t width = m->hp->d_expert;
    int int8 = matrix_wants_int8(m->math, &l->down_exps);

    for (int64_t p = team_begin(n_pairs, thread, n_threads);
         p < team_end(n_pairs, thread, n_threads); p++) {
        m->math->kernels->swiglu(m->gate + p * width, m->up + p * width, width);
        columns_set(&m->mid, m->math->kernels, p, m->gate + p * width, int8);
    }
}

static void down(struct moe *m, const struct layer_weights *l, int64_t *fix, int64_t *bad,
                 int thread, int n_threads)
{
    int64_t groups = l->down_exps.n_groups;
    int64_t g0 = team_begin(groups, thread, n_threads), g1 = team_end(groups, thread, n_threads);

    for (int e = 0; e < l->down_exps.n_slabs; e++) {
        int32_t p = m->first[e], n = m->first[e + 1] - p;
        if (n > 0)
            matrix_mul_expert(m->math, &l->down_exps, e, g0, g1, m->mid.col + p, n,
                              m->pair_weight + p, m->pair_token + p, fix,
                              m->hp->d_model + COMM_EXTRA, bad);
    }
}

void moe_run(struct moe *m, const struct layer_weights *l, const struct share_layer *own,
             const struct cpu_column *x, int n, int64_t *fix, int64_t *bad, int thread,
             int n_threads)
{
    int64_t groups = l->router.n_groups;

    matrix_mul(m->math, &l->router, 0, team_begin(groups, thread, n_threads),
               team_end(groups, thread, n_threads), x, n, m->logits, m->hp->n_experts);
    comm_team_barrier(m->comm, n_threads);
    route(m, l, n, thread, n_threads);
    comm_team_barrier(m->comm, n_threads);
    if (thread == 0)
        sort_pairs(m, own, x, n);
    comm_team_barrier(m->comm, n_threads);
    gate_and_up(m, l, thread, n_threads);
    comm_team_barrier(m->comm, n_threads);
    activate(m, l, m->first[own->n_experts], thread, n_threads);
    comm_team_barrier(m->comm, n_threads);
    down(m, l, fix, bad, thread, n_threads);
}

void moe_count(const struct moe *m, int n, uint64_t *counts)
{
    for (int64_t i = 0; i < (int64_t)n * m->hp->n_experts_used; i++)
        counts[m->chosen[i]]++;
}

uint64_t moe_digest(const struct moe *m, int64_t t)
{
    const int32_t *chosen = m->chosen + t * m->hp->n_experts_used;
    uint64_t sum = 0;

    for (int i = 0; i < m->hp->n_experts_used; i++)
        sum += (uint64_t)(chosen[i] + 1) * (uint64_t)(2 * i + 0x9e3779b97f4a7c15);
    return sum;
}
