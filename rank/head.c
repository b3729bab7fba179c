/* SPDX-License-Identifier: MIT */
/* rank/head.c - see head.h. */
#include "rank/head.h"

#include <math.h>
#include <string.h>

#include "base/team.h"

enum { GATHER_ROWS = 64 }; /* as many as share one pass over a matrix */

static int64_t vocab_rows(const struct share *s, int rank)
{
    return s->vocab[rank].end - s->vocab[rank].begin;
}

void head_carve(struct head *o, struct carve *from, const struct share *share, int max_tokens,
                int max_logits)
{
    size_t ranks = (size_t)share->n_ranks, all = ranks;

    o->share = share;
    o->rows = max_tokens < GATHER_ROWS ? max_tokens : GATHER_ROWS;
    o->wanted = carve_take(from, (size_t)max_tokens * sizeof *o->wanted);
    if (share->rank == 0)
        o->logits =
            carve_take(from, (size_t)max_logits * (size_t)o->hp->n_vocab * sizeof *o->logits);
    if (ranks == 1)
        return;
    for (int r = 0; r < share->n_ranks; r++)
        all += (size_t)vocab_rows(share, r);
    o->bytes_of = carve_take(from, ranks * sizeof *o->bytes_of);
    o->own = carve_take(from, (size_t)o->rows * (size_t)(vocab_rows(share, share->rank) + 1) *
                                  sizeof *o->own);
    if (share->rank == 0)
        o->all = carve_take(from, (size_t)o->rows * all * sizeof *o->all);
}

/* Normalises the wanted rows, dealt to the threads; returns their number. */
static int take_rows(struct head *o, const struct head_step *s, int thread, int n_threads)
{
    const struct cpu_kernels *k = o->math->kernels;
    int int8 = matrix_wants_int8(o->math, &o->weights->output), n = 0;
    int64_t d = o->hp->d_model;

    for (int t = 0; t < s->batch->n; t++) {
        if (!s->batch->tokens[t].want_logits)
            continue;
        if (thread == 0)
            o->wanted[n] = t;
        if (n % n_threads == thread) {
            k->rms_norm(s->h + t * d, s->x + t * d, o->weights->output_norm, d,
                        (float)o->hp->rms_eps);
            columns_set(s->cols, k, n, s->h + t * d, int8);
        }
        n++;
    }
    return n;
}

/* This thread's rows of the vocabulary for n wanted tokens from `first` on.  What is no number is
 * counted. */
static void multiply(struct head *o, const struct head_step *s, int first, int n, float *y,
                     int64_t stride, int thread, int n_threads)
{
    const struct matrix *m = &o->weights->output;
    int64_t g0 = team_begin(m->n_groups, thread, n_threads);
    int64_t g1 = team_end(m->n_groups, thread, n_threads);
    int64_t end = g1 * PACK_ROWS < m->rows ? g1 * PACK_ROWS : m->rows;

    matrix_mul(o->math, m, 0, g0, g1, s->cols->col + first, n, y, stride);
    for (int i = 0; i < n; i++) {
        int finite = 1;
        for (int64_t v = g0 * PACK_ROWS; v < end; v++)
            finite &= fabsf(y[i * stride + v]) < INFINITY;
        s->bad[thread * s->bad_stride + o->wanted[first + i]] += !finite;
    }
}

static int is_bad(const struct head_step *s, int token, int n_threads)
{
    for (int i = 0; i < n_threads; i++)
        if (s->bad[i * s->bad_stride + token])
            return 1;
    return 0;
}

static void charge(const struct head *o, const struct head_step *s, int token)
{
    if (!s->batch->tokens[token].bad_layer)
        s->batch->tokens[token].bad_layer = o->weights->n_layers + 1;
}

/* ---- One rank --------------------------------------------------------------- */

static void run_alone(struct head *o, const struct head_step *s, int n, int thread, int n_threads)
{
    multiply(o, s, 0, n, s->logits, o->hp->n_vocab, thread, n_threads);
    comm_team_barrier(o->comm, n_threads);
    for (int i = thread; i < n; i += n_threads)
        if (is_bad(s, o->wanted[i], n_threads))
            charge(o, s, o->wanted[i]);
}

/* ---- Several ---------------------------------------------------------------- */

static void gather(struct head *o, const struct head_step *s, int first, int n, int n_threads)
{
    int64_t stride = vocab_rows(o->share, o->share->rank) + 1;

    for (int i = 0; i < n; i++)
        o->own[(i + 1) * stride - 1] = (float)is_bad(s, o->wanted[first + i], n_threads);
    for (int r = 0; r < o->share->n_ranks; r++)
        o->bytes_of[r] = (size_t)n * (size_t)(vocab_rows(o->share, r) + 1) * sizeof *o->own;
    comm_gather(o->comm, o->own, o->bytes_of, o->all);
}

/* Row i of all ranks to its place among the logits. */
static void scatter(const struct head *o, const struct head_step *s, int first, int i, int n)
{
    float *to = s->logits + (int64_t)(first + i) * o->hp->n_vocab;
    const float *from = o->all;

    for (int r = 0; r < o->share->n_ranks; r++) {
        int64_t rows = vocab_rows(o->share, r);
        const float *row = from + i * (rows + 1);
        memcpy(to + o->share->vocab[r].begin, row, (size_t)rows * sizeof *to);
        if (row[rows] != 0)
            charge(o, s, o->wanted[first + i]);
        from += n * (rows + 1);
    }
}

static void run_together(struct head *o, const struct head_step *s, int n_wanted, int thread,
                         int n_threads)
{
    int64_t stride = vocab_rows(o->share, o->share->rank) + 1;

    for (int first = 0; first < n_wanted; first += o->rows) {
        int n = n_wanted - first < o->rows ? n_wanted - first : o->rows;
        multiply(o, s, first, n, o->own, stride, thread, n_threads);
        comm_team_barrier(o->comm, n_threads);
        if (thread == 0)
            gather(o, s, first, n, n_threads);
        comm_team_barrier(o->comm, n_threads);
        for (int i = thread; o->share->rank == 0 && i < n; i += n_threads)
            scatter(o, s, first, i, n);
    }
}

void head_run(struct head *o, const struct head_step *s, int thread, int n_threads)
{
    int n = take_rows(o, s, thread, n_threads);

    comm_team_barrier(o->comm, n_threads);
    if (n > 0 && o->share->n_ranks == 1)
        run_alone(o, s, n, thread, n_threads);
    else if (n > 0)
        run_together(o, s, n, thread, n_threads);
    comm_team_barrier(o->comm, n_threads);
}
