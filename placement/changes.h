/* SPDX-License-Identifier: MIT */
/* placement/changes.h - what to change when a plan does not fit, cheapest first.
 *
 * Every proposal was planned again and fits.
 */
#ifndef PLACEMENT_CHANGES_H
#define PLACEMENT_CHANGES_H

#include "placement/plan.h"

enum { CHANGES_MAX = 8 };

struct changes {
    int n;
    char text[CHANGES_MAX][160]; /* "-c 8192 (instead of 131072)", cheapest first */
};

/* Errors: ERR_NOMEM. */
enum err_code changes_find(struct changes *c, const struct plan_input *in, const struct plan *p,
                           struct err *e);

/* "host node1 (RANK4 and 3 more) needs 36.40 GB and has 24.00 GB available, 12.40 GB too little":
 * of the memory that lacks most. */
void changes_shortfall(const struct plan *p, char *out, size_t size);

#endif
