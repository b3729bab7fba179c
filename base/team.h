/* SPDX-License-Identifier: MIT */
/* base/team.h - the threads of one rank.
 *
 * A team runs one function on all its threads and returns when all are done
 * (OpenMP underneath).  Work is shared out by row ranges that depend on the
 * number of threads, but results never do: no sum crosses two threads.
 *
 * Every team thread computes with denormals flushed (FTZ and DAZ), which is part
 * of the arithmetic that docs/design.md section 8 fixes.
 */
#ifndef BASE_TEAM_H
#define BASE_TEAM_H

#include <stdint.h>

struct team {
    int n_threads;
};

/* Runs on thread `thread` of `n_threads`. */
typedef void team_fn(void *arg, int thread, int n_threads);

/* n_threads <= 0 takes the cores of this process's affinity mask. */
void team_init(struct team *t, int n_threads);

/* Whether n_teams of so many threads each have more of them than this process has cores: those that
 * wait must sleep at once then (OMP_WAIT_POLICY=passive), not look for work for a while.  Of
 * n_threads <= 0 they have not. */
int team_is_crowded(int n_teams, int n_threads);

/* Gives each thread a core of its own, for good, where a team has as many as this process has
 * cores: two on one core would wait for each other at every barrier.  Of teams with one thread
 * none. */
void team_bind(const struct team *t);

/* Returns when every thread has returned from fn.  Not reentrant for one team. */
void team_run(const struct team *t, team_fn *fn, void *arg);

/* The part of [0, n) that belongs to one thread: consecutive, in order. */
static inline int64_t team_begin(int64_t n, int thread, int n_threads)
{
    return n * thread / n_threads;
}
static inline int64_t team_end(int64_t n, int thread, int n_threads)
{
    return n * (thread + 1) / n_threads;
}

/* Sets FTZ and DAZ on the calling thread; team_run does it for its own. */
void team_flush_denormals(void);

#endif
