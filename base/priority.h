/* SPDX-License-Identifier: MIT */
/* base/priority.h - who comes first on a processor that all want.
 *
 * No function changes a process that was started with a scheduling policy of its own.
 */
#ifndef BASE_PRIORITY_H
#define BASE_PRIORITY_H

/* The calling thread, and those that it makes from now on, works for microseconds at a time: it
 * asks for short turns, which Linux 6.12 and later give soon. */
void priority_short_turns(void);

/* Somebody waits for what the calling thread does, and it never does much at a time: it runs as
 * soon as it wakes, before all that is not of real time (SCHED_RR, the lowest priority), where root
 * or RLIMIT_RTPRIO allows that.  What it makes or starts inherits nothing. */
void priority_at_once(void);

/* The calling process, and those that it starts, computes for long: its nice value rises by nice_by
 * (0 to 9), as does its session where the kernel weighs sessions against each other (sched(7),
 * autogroup; so after setsid), and takes the processor from nobody when it wakes.  Takes no lock:
 * may be called between fork and exec. */
void priority_give_way(int nice_by);

#endif
