/* SPDX-License-Identifier: MIT */
/* daemon/core_plan.c - the plan before anything is started: what does not fit is not tried.
 *
 * The ranks make theirs from the same options, and send it.  What --launch or mpirun starts on
 * other hosts can only be planned there.
 */
#include "daemon/core.h"
#include "session/plan_texts.h"

enum err_code core_plan(struct core *d, struct err *e)
{
    const struct options *o = d->opt;
    struct planning x = { .o = o, .n_context = o->ctx_size };
    enum err_code rc;

    if (o->launch || (d->job.rank >= 0 && !d->job.one_host))
        return ERR_OK;
    x.ranks = d->job.rank >= 0 ? d->job.size : planning_ranks(o);
    rc = planning_make(&x, d->model, e);
    if (rc == ERR_OK) {
        planning_log(&x);
        rc = planning_judge(&x, e);
    }
    if (rc == ERR_OK)
        rc = plan_texts_make(&d->plan, &x, e);
    planning_free(&x);
    return rc;
}
