/* SPDX-License-Identifier: MIT */
/* placement/profile.h - what `latent bench --devices` measured of this machine.
 *
 * One JSON object:
 *
 *     {"version": 1, "cpu": "AMD EPYC", "cores": 64, "numa": 2,
 *      "reads": [{"threads": 8, "node": 0, "bytes_per_s": 1.2e11}, ...],   node -1: all of them
 *      "int8_ops_per_s": 1e13, "bf16_ops_per_s": 5e12, "f32_ops_per_s": 2.5e12,
 *      "disk_bytes_per_s": 3e9,                                            0: not measured
 *      "sums": [{"ranks": 2, "hosts": 1, "row_us": 8, "latency_us": 2, "bytes_per_s": 1e10}]}
 *
 * Sums over ranks are there once they were measured under mpirun, for each number of ranks and
 * hosts; what their numbers mean says rank/comm_measure.h.
 */
#ifndef PLACEMENT_PROFILE_H
#define PLACEMENT_PROFILE_H

#include "placement/devices.h"

enum { PROFILE_MAX_READS = 256, PROFILE_ALL_NODES = -1, PROFILE_MAX_SUMS = 16 };

struct profile {
    char cpu[64];
    int cores, numa;
    struct profile_reading {
        int threads, node;
        double bytes_per_s;
    } reads[PROFILE_MAX_READS];
    int n_reads;
    double int8_ops_per_s, bf16_ops_per_s, f32_ops_per_s; /* of all cores */
    double disk_bytes_per_s;
    struct profile_sum {
        int ranks, hosts;
        double row_us, latency_us, bytes_per_s;
    } sums[PROFILE_MAX_SUMS];
    int n_sums;
};

/* Adds what was measured, in place of an older result of as many ranks and hosts, or of the oldest
 * where there is no room. */
void profile_add_sum(struct profile *p, const struct profile_sum *s);

/* Errors: ERR_IO, there is no such file; ERR_FORMAT, it is no profile, or a number in it is
 * absurd: names it; ERR_NOMEM. */
enum err_code profile_read(struct profile *p, const char *path, struct err *e);

/* Replaces the file as a whole.  Errors: ERR_IO; ERR_NOMEM. */
enum err_code profile_write(const struct profile *p, const char *path, struct err *e);

/* Puts the measured numbers into the only host of a probed machine; of its sums those of the number
 * of ranks that is nearest to `ranks`.  Returns 0, and changes
 * nothing, if the profile has another number of cores or NUMA nodes. */
int profile_apply(const struct profile *p, struct inventory *m, int ranks);

#endif
