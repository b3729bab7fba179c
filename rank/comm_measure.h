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

/* What sums over these ranks cost: latency_us for any number of rows, and bytes / bytes_per_s where
 * a row of w columns counts as 12 * w * (n - 1) / n bytes, n the ranks of one host, otherwise the
 * hosts: partial sums of 8 bytes there, finished ones of 4 back. */
struct comm_cost {
    int ranks, hosts;
    int64_t width;
    double row_us; /* one row, the median */
    double latency_us, bytes_per_s;
};

/* Reserves rows of V3's width and measures; collective, instead of comm_reserve. */
enum err_code comm_measure_cost(struct comm *c, struct comm_cost *out, struct err *e);

#endif
