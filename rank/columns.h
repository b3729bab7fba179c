/* SPDX-License-Identifier: MIT */
/* rank/columns.h - activations of several tokens, ready to meet a matrix.
 *
 * A set of columns owns space for `n` rows of `width` floats in int8 with a scale per
 * 32, and one struct cpu_column per row.  The floats themselves are borrowed.
 */
#ifndef RANK_COLUMNS_H
#define RANK_COLUMNS_H

#include "kernels/cpu/cpu_kernels.h"
#include "rank/carve.h"

struct columns {
    int64_t width;
    struct cpu_column *col; /* [n]          */
    int8_t *q;              /* [n][width]   */
    float *d, *s;           /* [n][width/32] */
    int16_t *sum;           /* [n][width/16] */
};

/* Carves space for n rows. */
void columns_carve(struct columns *c, struct carve *from, int64_t n, int64_t width);

/* Row i becomes x[width]; quantised if `int8` is set.  x stays borrowed until the row is set
 * again. */
void columns_set(struct columns *c, const struct cpu_kernels *k, int64_t i, const float *x,
                 int int8);

#endif
