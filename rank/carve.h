/* SPDX-License-Identifier: MIT */
/* rank/carve.h - cutting a block of memory into aligned pieces, or only counting them.
 *
 * The same function that carves the activations is first run with base NULL: it then
 * hands out no memory but sums up the bytes.  So what the plan says and what is
 * mapped cannot differ.
 */
#ifndef RANK_CARVE_H
#define RANK_CARVE_H

#include "base/arena.h"

struct carve {
    uint8_t *base; /* NULL: count only */
    size_t used;
};

static inline void *carve_take(struct carve *c, size_t bytes)
{
    void *p = c->base ? c->base + c->used : NULL;
    c->used += arena_round(bytes);
    return p;
}

#endif
