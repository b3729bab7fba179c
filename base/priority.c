/* SPDX-License-Identifier: MIT */
/* base/priority.c - see priority.h.  What the system refuses is done without. */
#include "base/priority.h"

#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SHORT_TURN_NS = 100 * 1000, /* the least that the kernel takes */
    RESET_ON_FORK = 1,          /* SCHED_FLAG_RESET_ON_FORK of linux/sched.h */
};

/* Of sched_setattr(2), for which glibc has no name before 2.41. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t turn_ns, deadline_ns, period_ns;
};

/* Who was started with a policy of its own, by chrt(1) or a service manager, keeps it. */
static void set(struct attributes a)
{
    a.size = sizeof a;
    if (sched_getscheduler(0) == SCHED_OTHER)
        (void)syscall(SYS_sched_setattr, 0, &a, 0);
}

void priority_short_turns(void)
{
    set((struct attributes){
        .policy = SCHED_OTHER, .nice = getpriority(PRIO_PROCESS, 0), .turn_ns = SHORT_TURN_NS });
}

void priority_at_once(void)
{
    set((struct attributes){ .policy = SCHED_RR, .flags = RESET_ON_FORK, .priority = 1 });
}

void priority_give_way(int nice_by)
{
    int fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
    char digit = (char)('0' + nice_by); /* as text */

    set((struct attributes){ .policy = SCHED_BATCH,
                             .nice = getpriority(PRIO_PROCESS, 0) + nice_by });
    if (fd < 0)
        return;
    (void)!write(fd, &digit, 1);
    close(fd);
}
