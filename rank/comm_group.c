/* SPDX-License-Identifier: MIT */
/* rank/comm_group.c - who sits where, and the memory of a group. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "rank/comm_room.h"

enum { SPIN_US_ALONE = 1000, SPIN_US_CROWDED = 5, MEDIAN_STEPS = 20 };

void comm_options_default(struct comm_options *o)
{
    *o = (struct comm_options){ .deadline_ms = 10000,
                                .hang_ms = 30000,
                                .start_ms = 120000,
                                .n_threads = 1,
                                .spin_us = -1,
                                .hosts = 1 };
}

/* ---- Places ------------------------------------------------------------------- */

/* Hosts are numbered in the order of their first ranks. */
static void place_ranks(struct comm *c, const int *host_of, const char (*names)[COMM_NAME])
{
    for (int r = 0; r < c->size; r++) {
        struct comm_place *p = &c->places[r];
        (void)snprintf(p->host_name, sizeof p->host_name, "%s", names[r]);
        p->host = host_of[r];
        if (p->host == c->n_hosts)
            c->leaders[c->n_hosts++] = r;
        for (int q = 0; q < r; q++)
            p->local += host_of[q] == p->host;
    }
    c->local = c->places[c->rank].local;
    c->host = host_of[c->rank];
    for (int r = 0; r < c->size; r++)
        c->n_local += host_of[r] == c->host;
}

/* The alignment to a cache line is more than malloc promises. */
struct comm *comm_group_alloc(const struct comm_ops *ops)
{
    struct comm *c = aligned_alloc(COMM_LINE, sizeof *c);

    if (!c)
        return NULL;
    memset(c, 0, sizeof *c);
    c->ops = ops;
    return c;
}

enum err_code comm_group_init(struct comm *c, const struct comm_options *o, int rank, int size,
                              const int *host_of, const char (*names)[COMM_NAME], struct err *e)
{
    c->opt = *o;
    c->rank = rank;
    c->size = size;
    c->hang_ms = o->hang_ms;
    c->places = calloc((size_t)size, sizeof *c->places);
    c->leaders = calloc((size_t)size, sizeof *c->leaders);
    if (!c->places || !c->leaders)
        return err_set(e, ERR_NOMEM, "no memory for a group of %d ranks", size);
    place_ranks(c, host_of, names);
    return ERR_OK;
}

static size_t room_bytes(const struct comm *c)
{
    return arena_round(sizeof(struct room) + (size_t)c->n_local * sizeof(struct seat));
}

static size_t figures_bytes(const struct comm *c)
{
    return (size_t)c->size * FIGURES_ROW * sizeof *c->figures;
}

size_t comm_group_bytes(const struct comm *c)
{
    return room_bytes(c) + figures_bytes(c) + 2 * (size_t)c->size * COMM_BOARD;
}

void comm_group_set_memory(struct comm *c, void *base)
{
    c->room = base;
    c->figures = (_Atomic int64_t *)(void *)((uint8_t *)base + room_bytes(c));
    c->board = (uint8_t *)base + room_bytes(c) + figures_bytes(c);
    atomic_store(&c->room->seats[c->local].step, -1);
}

void comm_group_set_spin(struct comm *c, int n_threads, int n_cores)
{
    int us = c->opt.spin_us;

    c->oversubscribed = n_threads > n_cores;
    if (us < 0)
        us = c->oversubscribed ? SPIN_US_CROWDED : SPIN_US_ALONE;
    c->spin_ns = us * 1000LL;
}

void comm_group_fini(struct comm *c)
{
    free(c->places);
    free(c->leaders);
}

/* ---- Buffers of the sums --------------------------------------------------------- */

static void *piece_at(uint8_t *base, size_t at)
{
    return base ? base + at : NULL;
}

/* Lays out what a host shares; base NULL only counts. */
static void lay_out(struct comm_memory *m, const struct comm *c, int64_t max_rows, int64_t width)
{
    size_t cells = (size_t)max_rows * (size_t)(width + COMM_EXTRA), at = 0;

    *m = (struct comm_memory){ .max_rows = max_rows, .width = width, .base = m->base };
    m->stride = width + COMM_EXTRA;
    m->rows = piece_at(m->base, 0);
    at += arena_round(cells * 8) * (c->size > 1 ? 2 : 1) * (size_t)c->n_local;
    if (c->size > 1) {
        m->sums = piece_at(m->base, at);
        at += arena_round(cells * 4);
    }
    if (c->n_hosts > 1) {
        m->message = arena_round(cells * 8);
        m->outbox = piece_at(m->base, at);
        m->inbox = piece_at(m->base, at + m->message);
        at += m->message * (size_t)(1 + c->n_hosts);
    }
    m->bytes = at;
}

size_t comm_memory_bytes(const struct comm *c, int64_t max_rows, int64_t width)
{
    struct comm_memory m = { 0 };

    lay_out(&m, c, max_rows, width);
    return m.bytes;
}

void comm_memory_set(struct comm *c, int64_t max_rows, int64_t width, void *base)
{
    c->memory.base = base;
    lay_out(&c->memory, c, max_rows, width);
}

size_t comm_bytes(const struct comm *c, int64_t max_rows, int64_t width)
{
    size_t others = 2 * arena_round((size_t)max_rows * (size_t)(width + COMM_EXTRA) * 8);

    if (!comm_is_leader(c))
        return others;
    return comm_group_bytes(c) + comm_memory_bytes(c, max_rows, width) -
           others * (size_t)(c->n_local - 1);
}

/* The leader maps and says where; a failure of any is everybody's. */
static enum err_code map_shared(struct comm *c, size_t bytes, void **out, struct err *e)
{
    struct comm_token *tokens = calloc((size_t)c->size, sizeof *tokens), mine = { 0 };
    enum err_code rc = tokens ? ERR_OK : err_set(e, ERR_NOMEM, "no memory for a group of ranks");

    if (rc == ERR_OK && comm_is_leader(c))
        rc = c->ops->offer(c, bytes, out, &mine, e);
    rc = comm_share_error(c, rc, e);
    if (rc == ERR_OK) {
        comm_all_gather(c, &mine, sizeof mine, tokens);
        if (!comm_is_leader(c))
            rc = c->ops->take(c, bytes, &tokens[c->leaders[c->host]], out, e);
        rc = comm_share_error(c, rc, e);
    }
    free(tokens);
    return rc;
}

/* Any piece of it must fit into one message of MPI. */
enum err_code comm_memory_check(int64_t max_rows, int64_t width, struct err *e)
{
    if (max_rows >= 1 && width >= 1 && width <= 1 << 20 && max_rows <= (INT_MAX >> 4) / width)
        return ERR_OK;
    return err_set(e, ERR_NOMEM,
                   "sums of %lld rows of %lld columns are beyond what ranks exchange at once; use "
                   "a smaller -ub",
                   (long long)max_rows, (long long)width);
}

enum err_code comm_reserve(struct comm *c, int64_t max_rows, int64_t width, struct err *e)
{
    void *base = NULL;

    if (c->size > 1) /* one rank sends nothing */
        TRY(comm_share_error(c, comm_memory_check(max_rows, width, e), e));
    TRY(map_shared(c, comm_memory_bytes(c, max_rows, width), &base, e));
    comm_memory_set(c, max_rows, width, base);
    return ERR_OK;
}

/* ---- The interface's small parts --------------------------------------------------- */

int comm_rank(const struct comm *c)
{
    return c->rank;
}

int comm_size(const struct comm *c)
{
    return c->size;
}

int64_t comm_width(const struct comm *c)
{
    return c->memory.width;
}

const char *comm_host(const struct comm *c, int rank)
{
    return c->places[rank].host_name;
}

int comm_host_index(const struct comm *c, int rank)
{
    return c->places[rank].host;
}

static int compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* A step of so long may be slow rather than hung. */
static void note_step_time(struct comm *c, double now)
{
    enum { N = sizeof c->step_s / sizeof *c->step_s };
    double sorted[N];

    c->step_s[c->n_steps++ % N] = now - c->step_began_s;
    if (c->n_steps < N)
        return;
    memcpy(sorted, c->step_s, sizeof sorted);
    qsort(sorted, N, sizeof *sorted, compare_seconds);
    int64_t ms = (int64_t)(sorted[N / 2] * 1000 * MEDIAN_STEPS);
    atomic_store(&c->hang_ms, ms > c->opt.hang_ms ? ms : c->opt.hang_ms);
}

void comm_set_step(struct comm *c, int64_t step)
{
    struct seat *s = &c->room->seats[c->local];
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    double now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    if (atomic_load(&s->in_step))
        note_step_time(c, now);
    c->step_began_s = now;
    atomic_fetch_add(&s->progress, 1);
    if (step >= 0)
        atomic_store(&s->step, step);
    atomic_store(&s->in_step, step >= 0);
}

void comm_note_progress(struct comm *c)
{
    atomic_fetch_add_explicit(&c->room->seats[c->local].progress, 1, memory_order_relaxed);
}

double comm_take_sum_us(struct comm *c)
{
    double us = c->sum_us;

    c->sum_us = c->shown_sum_us = 0;
    return us;
}

void comm_add(struct comm *c, enum comm_figure f, int64_t n)
{
    atomic_fetch_add_explicit(&c->figures[c->rank * FIGURES_ROW + (int)f], n, memory_order_relaxed);
}

void comm_add_step(struct comm *c, double us)
{
    double sums = c->sum_us - c->shown_sum_us;

    c->shown_sum_us = c->sum_us;
    comm_add(c, COMM_STEPS, 1);
    comm_add(c, COMM_SUM_US, (int64_t)sums);
    comm_add(c, COMM_COMPUTE_US, (int64_t)(us - sums));
}

int64_t comm_figure(const struct comm *c, int rank, enum comm_figure f)
{
    return atomic_load_explicit(&c->figures[rank * FIGURES_ROW + (int)f], memory_order_relaxed);
}

void comm_free(struct comm **c)
{
    if (!*c)
        return;
    if ((*c)->room) {
        comm_barrier(*c);
        atomic_store(&(*c)->room->seats[(*c)->local].left, 1);
        if ((*c)->ops->leave)
            (*c)->ops->leave(*c);
        comm_watch_stop(*c);
    }
    (*c)->ops->close(*c);
    comm_group_fini(*c);
    free(*c);
    *c = NULL;
}
