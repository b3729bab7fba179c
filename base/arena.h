/* SPDX-License-Identifier: MIT */
/* base/arena.h - memory that is sized once and carved up.
 *
 * An arena is one anonymous mapping.  Weights, latent cache and activations each
 * get one, sized by the plan; it never grows, so what the plan says is what is
 * mapped.  Pieces are 64-byte aligned and zero until written.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { ARENA_ALIGN = 64 };

struct arena {
    uint8_t *base;
    size_t size, used;
};

/* Bytes that a piece of `bytes` takes in an arena. */
static inline size_t arena_round(size_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

/* Maps `size` bytes (huge pages where the kernel grants them).  `what` names the
 * arena in the error.  Errors: ERR_NOMEM; *a is then empty. */
enum err_code arena_map(struct arena *a, size_t size, const char *what, struct err *e);

/* The next piece, or NULL when it does not fit: a plan that was too small. */
void *arena_take(struct arena *a, size_t bytes);

/* Gives back everything that was taken since `used` was read. */
void arena_reset(struct arena *a, size_t used);

/* Unmaps; an empty arena is fine. */
void arena_unmap(struct arena *a);

#endif
