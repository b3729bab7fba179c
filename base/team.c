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
