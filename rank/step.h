/* SPDX-License-Identifier: MIT */
/* rank/step.h - one step of a group of ranks as plain data.
 *
 * Whoever drives the ranks (the coordinator, or `latent` in the same process) owns the page
 * tables and decides everything: which page holds which positions, which tokens run, which rows
 * are wanted.  Ranks obey, all alike.  A step is carried out in this order: resets, maps,
 * zeros, copies, then the tokens.
 *
 * Encoded it travels from the driver to rank 0 and from rank 0 to all; every count and index
 * is checked against the limits of the engine before it is used.
 */
#ifndef RANK_STEP_H
#define RANK_STEP_H

#include "base/err.h"
#include "base/str.h"
#include "rank/batch.h"

/* Sequence `seq` loses its page table and starts anew. */
struct step_reset {
    int32_t seq;
};

/* Positions 64 * index .. 64 * index + 63 of a sequence are in `page` from now on.  Several
 * sequences may map one page. */
struct step_map {
    int32_t seq, index, page;
};

/* A page is filled with zeros (after a numeric error). */
struct step_zero {
    int32_t page;
};

/* Page `to` becomes a copy of `from`. */
struct step_copy {
    int32_t from, to;
};

struct step {
    int64_t id; /* ascending */
    int n_resets, n_maps, n_zeros, n_copies;
    struct step_reset *resets;
    struct step_map *maps;
    struct step_zero *zeros;
    struct step_copy *copies;
    struct batch batch; /* 0 tokens: a probe through every rank */
};

/* What a step may name; counts and indices beyond are refused. */
struct step_limits {
    int n_vocab, n_sequences, n_pages, max_batch;
    int64_t n_context; /* positions of one sequence */
    int max_logits;    /* rows that the driver of a rank 0 may want with engine_logits */
};

/* Appends the step to out.  Errors: ERR_NOMEM. */
enum err_code step_encode(const struct step *s, struct str *out, struct err *e);

/* Takes a step out of bytes[n], all of them.  The arrays are the step's: step_free.
 * Errors: ERR_FORMAT, it ends early, has bytes left, or goes beyond the limits (says which). */
enum err_code step_decode(struct step *s, const void *bytes, size_t n, const struct step_limits *l,
                          struct err *e);
void step_free(struct step *s);

#endif
