/* SPDX-License-Identifier: MIT */
/* session/plan_texts.c - see plan_texts.h. */
#include "session/plan_texts.h"

#include <inttypes.h>

enum { RULES_SHOWN = 100, PATTERN_SHOWN = 200 };

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

static void put_rule(struct str *out, const char *metric, const struct rules *rules, int r,
                     int64_t value)
{
    str_printf(out, "latentd_%s{rule=\"%d\",source=\"", metric, r + 1);
    str_label(out, rules->v[r].source, PATTERN_SHOWN);
    str_puts(out, "\",pattern=\"");
    str_label(out, rules->v[r].pattern, PATTERN_SHOWN);
    str_printf(out, "\"} %" PRId64 "\n", value);
}

/* Prometheus text: what each rule took. */
static void count_rules(struct str *out, const struct planning *x)
{
    const struct rules *rules = &x->rules;
    int n = rules->n < RULES_SHOWN ? rules->n : RULES_SHOWN;

    str_printf(out,
               "# HELP latentd_rules placement rules; the first %d have metrics of their own\n"
               "# TYPE latentd_rules gauge\nlatentd_rules %d\n"
               "# HELP latentd_rule_tensors tensors that a placement rule took\n"
               "# TYPE latentd_rule_tensors gauge\n",
               RULES_SHOWN, rules->n);
    for (int r = 0; r < n; r++)
        put_rule(out, "rule_tensors", rules, r, x->match.takes[r].tensors);
    str_puts(out, "# HELP latentd_rule_bytes bytes of these tensors in the file\n"
                  "# TYPE latentd_rule_bytes gauge\n");
    for (int r = 0; r < n; r++)
        put_rule(out, "rule_bytes", rules, r, x->match.takes[r].bytes);
}

enum err_code plan_texts_make(struct link_plan *p, const struct planning *x, struct err *e)
{
    const char *advice[CHANGES_MAX];
    struct report r = planning_report(x, x->o->model, advice);
    int failed = 0;

    *p = (struct link_plan){ 0 };
    report_text(&p->text[LINK_PLAN_REPORT], &r);
    report_json(&p->text[LINK_PLAN_JSON], &r);
    if (p->text[LINK_PLAN_JSON].len > LINK_JSON_MAX) {
        str_free(&p->text[LINK_PLAN_JSON]);
        r.no_tensors = 1;
        report_json(&p->text[LINK_PLAN_JSON], &r);
    }
    summarize(&p->text[LINK_PLAN_SUMMARY], &x->plan);
    count_rules(&p->text[LINK_PLAN_METRICS], x);
    for (int i = 0; i < LINK_PLAN_TEXTS; i++)
        failed |= p->text[i].failed;
    if (!failed)
        return ERR_OK;
    link_plan_free(p);
    return err_set(e, ERR_NOMEM, "no memory for the texts of the plan");
}
