/* SPDX-License-Identifier: MIT */
/* daemon/core_plan.c - the plan before anything is started, for the operator and for clients.
 *
 * The ranks of this machine make the same one from the same options.  What --launch starts on other
 * hosts is planned there: then there is none here.
 */
#include "base/str.h"
#include "daemon/core.h"
#include "placement/report.h"
#include "session/planning.h"

static void summarize(struct str *out, const struct plan *p)
{
    str_printf(out, "%d rank%s, context %lld positions, %d requests at once\n", p->n_ranks,
               p->n_ranks == 1 ? "" : "s", (long long)p->opt.n_context, p->opt.n_sequences);
    for (int i = 0; i < p->n_devices; i++) {
        const struct plan_device *d = &p->devices[i];
        char weights[32], cache[32], left[32];
        str_printf(out, "%s: weights %s, cache %s, free %s\n", d->name,
                   str_bytes(weights, sizeof weights, (double)d->weights_bytes),
                   str_bytes(cache, sizeof cache, (double)d->cache_bytes),
                   str_bytes(left, sizeof left, (double)plan_slack(d)));
    }
}

static enum err_code describe(struct core *d, const struct planning *x, struct err *e)
{
    const char *advice[CHANGES_MAX];
    const struct report r = { .model = d->opt->model,
                              .plan = &x->plan,
                              .rules = &x->rules,
                              .match = &x->match,
                              .findings = &x->findings,
                              .advice = advice,
                              .n_advice = x->changes.n };

    for (int i = 0; i < x->changes.n; i++)
        advice[i] = x->changes.text[i];
    report_text(&d->plan_text, &r);
    report_json(&d->plan_json, &r);
    summarize(&d->plan_summary, &x->plan);
    if (d->plan_text.failed || d->plan_json.failed || d->plan_summary.failed)
        return err_set(e, ERR_NOMEM, "no memory for the plan");
    return ERR_OK;
}

enum err_code core_plan(struct core *d, struct err *e)
{
    const struct options *o = d->opt;
    struct planning x = { .o = o, .n_context = o->ctx_size };
    enum err_code rc;

    if (o->launch)
        return ERR_OK;
    x.ranks = o->ranks > 0 ? (int)o->ranks : 1;
    rc = planning_make(&x, d->model, e);
    if (rc == ERR_OK) {
        planning_log(&x);
        rc = planning_judge(&x, e);
    }
    if (rc == ERR_OK)
        rc = describe(d, &x, e);
    planning_free(&x);
    return rc;
}
