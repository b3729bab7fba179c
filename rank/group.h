/* SPDX-License-Identifier: MIT */
/* rank/group.h - all ranks of a plan as threads of this process.
 *
 * Every rank has a team of its own, on cores of its own where there are enough.  The caller is rank
 * 0 and drives; the others follow.
 */
#ifndef RANK_GROUP_H
#define RANK_GROUP_H

#include "rank/engine.h"

struct group;

/* Loads all ranks of the plan, which must outlive the group.
 * Errors: those of engine_create_rank; ERR_NOMEM. */
enum err_code group_create(struct group **out, const struct plan *plan,
                           const struct engine_options *o, struct err *e);

/* Ends all ranks. */
void group_free(struct group **g);

/* Rank 0's.  It stays the group's. */
struct engine *group_engine(struct group *g);

#endif
