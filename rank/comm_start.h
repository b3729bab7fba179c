/* SPDX-License-Identifier: MIT */
/* rank/comm_start.h - a guard of the start; private to comm_mpi.c and comm_start.c. */
#ifndef RANK_COMM_START_H
#define RANK_COMM_START_H

#include <pthread.h>

#include "rank/comm.h"

/* MPI_Init waits for ever for a rank that does not come.  The guard ends this process after `ms`,
 * or when a rank of this host has ended: then one line says which. */
struct comm_guard {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ms, done, started;
};

void comm_guard_start(struct comm_guard *g, int ms);
void comm_guard_stop(struct comm_guard *g);

#endif
