/* SPDX-License-Identifier: MIT */
/* rank/engine_parts.h - what engine.c and feed.c share; private to rank/. */
#ifndef RANK_ENGINE_PARTS_H
#define RANK_ENGINE_PARTS_H

#include "base/str.h"
#include "rank/engine.h"
#include "rank/forward.h"

struct feed;

struct engine {
    const struct model *model;
    struct engine_options opt;
    struct engine_memory memory;
    struct step_limits limits;
    struct engine_totals totals;
    struct share share;
    struct team team;
    const struct cpu_kernels *kernels;
    struct weights *weights;
    struct cache *cache;
    struct forward *forward;
    struct comm *comm, *own_comm; /* own: made by the engine, to be freed */
    struct str message;           /* a step on its way to the others      */
    struct feed *feed;            /* of rank 0 */
    struct sampler *sampler;      /* likewise  */
    uint64_t *expert_counts;      /* [n_layers][n_experts], only when asked for */
};

/* The sequences of engine_begin and engine_feed.  Errors: ERR_NOMEM. */
enum err_code feed_create(struct feed **out, const struct step_limits *l, struct err *e);
void feed_free(struct feed **f);

/* follow.c: rank 0 tells the others. */
enum err_code follow_send(struct engine *e, const struct step *s, struct err *err);

/* One step on this rank alone. */
enum err_code engine_compute(struct engine *e, struct step *s, float *logits, struct err *err);

#endif
