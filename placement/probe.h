/* SPDX-License-Identifier: MIT */
/* placement/probe.h - this machine as a description: NUMA nodes, memory, cores.
 *
 * Only what this process may use counts: its cores, the nodes that they belong to, and the memory
 * that control groups and numactl leave it.
 */
#ifndef PLACEMENT_PROBE_H
#define PLACEMENT_PROBE_H

#include "placement/devices.h"

/* One host: memory is what this process may still take, cores those it may run on.  Bandwidth is
 * an assumption until it is measured (m->guessed).  GPUs are not looked for: this build has no
 * CUDA plug-in.  Errors: ERR_IO, the topology cannot be read; ERR_NOMEM. */
enum err_code inventory_probe(struct inventory *m, struct err *e);

/* How many ranks of n_threads (0: its share of the cores) suit this machine: one for each NUMA
 * node; 1 where the cores are too few for that, or not known. */
int probe_ranks(int n_threads);

/* "AMD EPYC 9654 96-Core Processor" */
void probe_cpu_name(char *name, size_t size);

#endif
