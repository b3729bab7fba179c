/* SPDX-License-Identifier: MIT */
/* tests/support/sums.h - partial sums that are made up, and what comm_settle must make of them.
 *
 * Partials depend on (turn, rank, element) alone, so every rank knows what all of them add up to,
 * and computes it here one after the other.
 */
#ifndef TESTS_SUPPORT_SUMS_H
#define TESTS_SUPPORT_SUMS_H

#include "rank/comm.h"

enum { SUMS_TURNS = 3 };

struct sums_shape {
    int ranks, threads, hosts; /* ranks are dealt to hosts in consecutive parts */
    int64_t rows, width;
    enum comm_reduce reduce;
};

/* A number that looks random. */
uint64_t sums_mix(uint64_t v);

struct sums {
    const struct sums_shape *shape;
    float *wanted[SUMS_TURNS]; /* [rows][width], the residual after each turn */
};

/* Exits when there is no memory. */
void sums_init(struct sums *s, const struct sums_shape *shape);
void sums_fini(struct sums *s);

/* What one thread of a rank does: settles SUMS_TURNS times, and returns in how many rows anything
 * was wrong.  x: [rows][width], zeros; bad: [rows]. */
int sums_settle(const struct sums *s, struct comm *c, float *x, int64_t *bad, int thread);

#endif
