/* SPDX-License-Identifier: MIT */
/* rank/comm_gate.c - gates, exchanges and faults: everything that waits.
 *
 * A wait spins for a while and then sleeps on a futex; it ends early when a fault is known.  A
 * sleeper looks after the fault at least every 100 ms, so that a wake-up that comes between its
 * look and its sleep costs no more than that.
 */
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/log.h"
#include "rank/comm_room.h"

enum { SLEEP_NS = 100 * 1000 * 1000, PAUSES = 32, EXIT_GROUP_FAILED = 70 };

static void pause_cpu(void)
{
#if defined(__x86_64__)
    _mm_pause();
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The word lies in memory of several processes: no private futex. */
static void futex_sleep(_Atomic uint32_t *word, uint32_t seen)
{
    struct timespec limit = { .tv_nsec = SLEEP_NS };

    syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* ---- Gates ----------------------------------------------------------------- */

static void gate_open(struct gate *g)
{
    atomic_store_explicit(&g->arrived, 0, memory_order_relaxed);
    atomic_fetch_add(&g->epoch, 1); /* sequentially consistent, against the sleeper's look */
    if (atomic_load(&g->sleepers) > 0)
        futex_wake_all(&g->epoch);
}

/* A fault ends the wait only where somebody may be missing for ever: the threads of a rank all
 * come, also after a fault, and what one has prepared for the others must be whole even then. */
static void gate_wait(const struct comm *c, struct gate *g, uint32_t epoch, int until_fault)
{
    for (int64_t begin = 0;;) {
        for (int i = 0; i < PAUSES; i++) {
            if (atomic_load_explicit(&g->epoch, memory_order_acquire) != epoch)
                return;
            pause_cpu();
        }
        if (until_fault && comm_failed(c))
            return;
        int64_t now = now_ns();
        if (begin == 0)
            begin = now;
        if (now - begin >= c->spin_ns)
            break;
    }
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->epoch) == epoch && !(until_fault && comm_failed(c)))
        futex_sleep(&g->epoch, epoch);
    atomic_fetch_sub(&g->sleepers, 1);
}

/* Whether the caller is the last of n. */
static int gate_arrive(struct gate *g, int n)
{
    return atomic_fetch_add_explicit(&g->arrived, 1, memory_order_acq_rel) + 1 == (uint32_t)n;
}

void comm_team_gate(struct comm *c, int n_threads, void (*last)(struct comm *c))
{
    uint32_t epoch = atomic_load_explicit(&c->team.epoch, memory_order_acquire);

    if (gate_arrive(&c->team, n_threads)) {
        if (last)
            last(c);
        gate_open(&c->team);
    } else {
        gate_wait(c, &c->team, epoch, 1);
    }
}

void comm_team_barrier(struct comm *c, int n_threads)
{
    uint32_t epoch = atomic_load_explicit(&c->inside.epoch, memory_order_acquire);

    if (gate_arrive(&c->inside, n_threads))
        gate_open(&c->inside);
    else
        gate_wait(c, &c->inside, epoch, 0);
}

/* The threads of a rank count themselves at their own gate, but wait at the room's. */
void comm_host_gate(struct comm *c, int thread, int n_threads)
{
    struct seat *s = &c->room->seats[c->local];
    struct gate *g = &c->room->gate;
    uint32_t epoch = atomic_load_explicit(&g->epoch, memory_order_acquire);

    if (gate_arrive(&c->team, n_threads)) {
        atomic_store_explicit(&c->team.arrived, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&s->progress, 1, memory_order_relaxed);
        atomic_store_explicit(&s->waiting, 1, memory_order_relaxed);
        if (gate_arrive(g, c->n_local))
            gate_open(g);
    }
    gate_wait(c, g, epoch, 1);
    if (thread == 0)
        atomic_store_explicit(&s->waiting, 0, memory_order_relaxed);
}

/* ---- Between hosts ------------------------------------------------------------ */

static void sleep_us(int64_t us)
{
    struct timespec t = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

    nanosleep(&t, NULL);
}

/* Polls ever more rarely: who waits for the next step may wait for hours. */
void comm_exchange(struct comm *c, const struct comm_piece *pieces, int n)
{
    struct seat *s = &c->room->seats[c->local];
    int64_t begin = now_ns();

    atomic_fetch_add_explicit(&s->progress, 1, memory_order_relaxed);
    atomic_store_explicit(&s->waiting, 1, memory_order_relaxed);
    c->ops->exchange(c, pieces, n);
    while (!c->ops->exchanged(c) && !comm_failed(c)) {
        int64_t waited = now_ns() - begin;
        if (waited < c->spin_ns)
            pause_cpu();
        else
            sleep_us(waited < 20 * 1000 * 1000 ? 20 : 1000);
    }
    if (c->opt.delay_us > 0)
        sleep_us(c->opt.delay_us);
    atomic_store_explicit(&s->waiting, 0, memory_order_relaxed);
}

/* ---- Faults --------------------------------------------------------------------- */

int comm_room_raise(struct room *r, int culprit, int number, const char *line)
{
    uint32_t none = FAULT_NONE;

    if (!atomic_compare_exchange_strong(&r->fault, &none, FAULT_WRITING))
        return 0;
    r->fault_rank = culprit;
    r->fault_signal = number;
    (void)snprintf(r->why, sizeof r->why, "%s", line);
    atomic_store(&r->fault, FAULT_KNOWN);
    futex_wake_all(&r->gate.epoch);
    return 1;
}

void comm_raise_line(struct comm *c, int culprit, int number, const char *line)
{
    if (!comm_room_raise(c->room, culprit, number, line))
        return;
    futex_wake_all(&c->team.epoch);
    if (c->ops->processes && !(number && atomic_load(&c->ends)))
        log_error("%s", line);
    if (c->ops->tell)
        c->ops->tell(c, culprit, line);
}

/* "rank R on host H WHAT in step S: WHY". */
static void raise_fault(struct comm *c, int culprit, int number, const char *what, const char *why)
{
    const struct comm_place *p = &c->places[culprit];
    const struct seat *s = &c->room->seats[p->host == c->host ? p->local : c->local];
    int64_t step = atomic_load(&s->step);
    char line[sizeof c->room->why], when[40] = "before the first step";

    if (step >= 0)
        (void)snprintf(when, sizeof when, "%s step %lld", atomic_load(&s->in_step) ? "in" : "after",
                       (long long)step);
    (void)snprintf(line, sizeof line, "rank %d on host %s %s %s: %s", culprit, p->host_name, what,
                   when, why);
    comm_raise_line(c, culprit, number, line);
}

void comm_raise(struct comm *c, int culprit, const char *what, const char *why)
{
    raise_fault(c, culprit, 0, what, why);
}

void comm_raise_signal(struct comm *c, int number)
{
    char why[16];

    (void)snprintf(why, sizeof why, "SIG%s", sigabbrev_np(number));
    raise_fault(c, c->rank, number, "was told to end", why);
}

void comm_abort(struct comm *c, const char *why)
{
    comm_raise(c, c->rank, "gave up", why);
}

enum err_code comm_check(const struct comm *c, struct err *e)
{
    if (!comm_failed(c))
        return ERR_OK;
    for (int ms = 0; ms < 1000 && atomic_load(&c->room->fault) != FAULT_KNOWN; ms++)
        sleep_us(1000); /* the line is being written */
    int known = atomic_load(&c->room->fault) == FAULT_KNOWN;
    return err_set(e, ERR_PEER, "%s", known ? c->room->why : "a rank failed while it said why");
}

int comm_exit_status(const struct comm *c)
{
    int number = comm_check(c, NULL) == ERR_OK ? 0 : c->room->fault_signal;

    return number ? 128 + number : EXIT_GROUP_FAILED;
}
