/* SPDX-License-Identifier: MIT */
/* session/plan_texts.h - a plan as the daemon tells of it.
 *
 * Rank 0 makes them and sends them over the link: it plans with the machines of all ranks.  Before
 * that, and where it can, the coordinator makes its own.
 */
#ifndef SESSION_PLAN_TEXTS_H
#define SESSION_PLAN_TEXTS_H

#include "rank/link.h"
#include "session/planning.h"

/* Fills p, which link_plan_free ends.  JSON that would be longer than LINK_JSON_MAX leaves the
 * tensors out.  Errors: ERR_NOMEM. */
enum err_code plan_texts_make(struct link_plan *p, const struct planning *x, struct err *e);

#endif
