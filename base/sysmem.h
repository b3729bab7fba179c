/* SPDX-License-Identifier: MIT */
/* base/sysmem.h - how much memory this process may still take. */
#ifndef BASE_SYSMEM_H
#define BASE_SYSMEM_H

#include <stdint.h>

/* Bytes: the kernel's MemAvailable, or what the control groups of this process leave if that is
 * less.  INT64_MAX where neither is known. */
int64_t sysmem_available(void);

/* What the control groups that `list` (/proc/self/cgroup) names, and those above them, leave below
 * their limits (memory.max and memory.high, as of systemd's MemoryMax and MemoryHigh); what they
 * use for files that are cached can be taken back and does not count.  root: /sys/fs/cgroup.
 * INT64_MAX: there is no limit. */
int64_t sysmem_groups_available(const char *list, const char *root);

/* Free, or used for files that are cached, on one NUMA node; 0 where that is not known. */
int64_t sysmem_node_available(int node);

#endif
