/* SPDX-License-Identifier: MIT */
/* base/bind.h - ranks of one host on cores of their own.
 *
 * The cores that a thread may use are dealt to ranks node by node if the number of NUMA nodes
 * divides that of the ranks, and otherwise in the order of the topology: a rank's cores lie in one
 * node where that is possible, and memory that its threads touch first lies beside them.
 */
#ifndef BASE_BIND_H
#define BASE_BIND_H

#include <hwloc.h>

/* This machine, and where the thread that opened it might run then.  Both are NULL where that
 * cannot be known; nothing is bound then. */
struct bind {
    hwloc_topology_t topology;
    hwloc_bitmap_t allowed;
};

void bind_open(struct bind *b);
void bind_close(struct bind *b);

/* NUMA nodes with cores that the thread may use; nodes that share their cores count as one. */
int bind_count_nodes(const struct bind *b);

/* part: the cores of rank i of n.  Returns 0, and leaves part alone, for one rank and where there
 * are less than n_threads for each. */
int bind_part(const struct bind *b, int i, int n, int n_threads, hwloc_bitmap_t part);

/* Binds the calling thread, and every thread that it starts from now on, to that part. */
void bind_thread(const struct bind *b, int i, int n, int n_threads);

/* Lets the calling thread run where it might before. */
void bind_release(const struct bind *b);

#endif
