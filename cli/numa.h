/* SPDX-License-Identifier: MIT */
/* cli/numa.h - CPUs of this process, one for each core, by NUMA node. */
#ifndef CLI_NUMA_H
#define CLI_NUMA_H

#include "base/err.h"

enum { NUMA_MAX_CPUS = 4096 };

struct numa {
    int cpus[NUMA_MAX_CPUS]; /* [n_cpus] numbers of the operating system, node after node */
    int node[NUMA_MAX_CPUS]; /* [n_cpus] ascending */
    int n_cpus, n_nodes;
};

/* Errors: ERR_IO, the topology cannot be read. */
enum err_code numa_read(struct numa *n, struct err *e);

#endif
