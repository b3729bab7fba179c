/* SPDX-License-Identifier: MIT */
/* tests/tools/random_weights.h - random weights in any type, as fast as a disk takes them.
 *
 * Rows of n columns have an rms of about 1 / sqrt(n), so that a matrix keeps the size of
 * what it multiplies: activations stay finite through any number of layers.  The codes of a
 * quantised type are filled with random bytes and never computed; only the scales are.
 */
#ifndef TESTS_TOOLS_RANDOM_WEIGHTS_H
#define TESTS_TOOLS_RANDOM_WEIGHTS_H

#include <stdint.h>

#include "kernels/quants.h"

struct random_weights {
    uint64_t state[4];
    enum quant type;
    int64_t n;   /* columns of a row */
    float scale; /* of a block or row; of float types, the largest magnitude */
};

/* Whether this can fill a type. */
int random_weights_knows(enum quant t);

/* Starts a stream: the same seed and name yield the same bytes. */
void random_weights_start(struct random_weights *r, uint64_t seed, const char *name,
                          enum quant type, int64_t n);

/* Writes the next rows: n_rows * quant_row_bytes(type, n) bytes. */
void random_weights_fill(struct random_weights *r, int64_t n_rows, uint8_t *out);

#endif
