/* SPDX-License-Identifier: MIT */
/* rank/comm_measure.h - how long sums over ranks take here. */
#ifndef RANK_COMM_MEASURE_H
#define RANK_COMM_MEASURE_H

#include "rank/comm.h"

struct comm_time {
    double median_us, min_us;
};

/* Settles n_rows rows of the width that was reserved, `times` times, one thread a rank.  What a sum
 * takes is what it takes the rank that comes last, which waits for nobody: the least of all ranks'
 * times, the same on all.  Collective.  Errors: ERR_NOMEM, ERR_PEER. */
enum err_code comm_measure(struct comm *c, int64_t n_rows, int times, struct comm_time *out,
                           struct err *e);

#endif
