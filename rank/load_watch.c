/* SPDX-License-Identifier: MIT */
/* rank/load_watch.c - see load_watch.h. */
#include "rank/load_watch.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/str.h"

enum { LOOK_MS = 200 };

struct load_watch {
    const struct comm *c;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t over;
    int ended;
};

static load_watch_fn *listener;
static void *listener_arg;

void load_watch_tell(load_watch_fn *fn, void *arg)
{
    listener = fn;
    listener_arg = arg;
}

/* Bytes of all ranks, and which is the last.  Returns 0 while one does not know how much it has to
 * read. */
static int look(const struct comm *c, struct progress *p, int *last)
{
    p->done = p->total = 0;
    p->slowest = 2;
    for (int r = 0; r < comm_size(c); r++) {
        int64_t done = comm_figure(c, r, COMM_LOADED), total = comm_figure(c, r, COMM_TO_LOAD);
        if (total == 0)
            return 0;
        p->done += done;
        p->total += total;
        if ((double)done / (double)total >= p->slowest)
            continue;
        p->slowest = (double)done / (double)total;
        *last = r;
    }
    return 1;
}

static void show(const struct comm *c, struct progress *p)
{
    double spent = clock_seconds() - p->started_s;
    char rate[32];
    int last = 0;

    if (!look(c, p, &last) || p->slowest == 0)
        return;
    int n = snprintf(p->more, sizeof p->more, ", %s/s",
                     str_bytes(rate, sizeof rate, (double)p->done / spent));
    if (comm_size(c) > 1)
        (void)snprintf(p->more + n, sizeof p->more - (size_t)n, ", rank %d is the last with %.0f%%",
                       last, 100 * p->slowest);
    progress_update(p, p->done);
}

/* Until the end, or for a while.  Returns 1 at the end. */
static int wait_for_end(struct load_watch *w)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&w->lock);
    while (!w->ended && pthread_cond_clockwait(&w->over, &w->lock, CLOCK_MONOTONIC, &until) == 0)
        ;
    int ended = w->ended;
    pthread_mutex_unlock(&w->lock);
    return ended;
}

static void *run(void *arg)
{
    struct load_watch *w = arg;
    struct progress p;

    progress_start(&p, "loading", 0);
    do {
        show(w->c, &p);
        if (listener)
            listener(listener_arg, w->c);
    } while (!wait_for_end(w));
    progress_end(&p);
    return NULL;
}

struct load_watch *load_watch_begin(const struct comm *c)
{
    struct load_watch *w = calloc(1, sizeof *w);
    sigset_t all, old;

    if (!w)
        return NULL;
    w->c = c;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->over, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&w->thread, NULL, run, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!failed)
        return w;
    free(w);
    return NULL;
}

void load_watch_end(struct load_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->ended = 1;
    pthread_cond_signal(&w->over);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->over);
    free(w);
}
