/* SPDX-License-Identifier: MIT */
#include "base/team.h"

#include <omp.h>
#include <sched.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static int count_cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void team_init(struct team *t, int n_threads)
{
    t->n_threads = n_threads > 0 ? n_threads : count_cores();
}

int team_is_crowded(int n_teams, int n_threads)
{
    return (int64_t)n_teams * n_threads > count_cores();
}

/* The core of all that comes after as many others as the thread. */
static void bind_one(void *arg, int thread, int n_threads)
{
    const cpu_set_t *all = arg;
    cpu_set_t one;
    int cpu = 0;

    (void)n_threads;
    for (int before = thread; cpu < CPU_SETSIZE && (!CPU_ISSET(cpu, all) || before-- > 0);)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

void team_bind(const struct team *t)
{
    cpu_set_t all;

    if (t->n_threads > 1 && sched_getaffinity(0, sizeof all, &all) == 0 &&
        CPU_COUNT(&all) == t->n_threads)
        team_run(t, bind_one, &all);
}

void team_flush_denormals(void)
{
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040); /* MXCSR bits 15 FTZ and 6 DAZ */
#endif
}

void team_run(const struct team *t, team_fn *fn, void *arg)
{
#pragma omp parallel num_threads(t->n_threads)
    {
        team_flush_denormals();
        fn(arg, omp_get_thread_num(), omp_get_num_threads());
    }
}
