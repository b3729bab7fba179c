/* SPDX-License-Identifier: MIT */
/* daemon/clock.h - milliseconds, of the calendar and for waiting. */
#ifndef DAEMON_CLOCK_H
#define DAEMON_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ms(clockid_t which)
{
    struct timespec t;

    clock_gettime(which, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline int64_t clock_unix_ms(void)
{
    return clock_ms(CLOCK_REALTIME);
}

static inline int64_t clock_monotonic_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

/* The moment `ms` from now, for pthread_cond_timedwait on the monotonic clock. */
static inline struct timespec clock_in_ms(int64_t ms)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

#endif
