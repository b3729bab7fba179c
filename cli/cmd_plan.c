/* SPDX-License-Identifier: MIT */
/* cli/cmd_plan.c - `latent plan`: where everything would go, whether it fits, how fast it is.
 *
 * Reads headers only, so a file that was cut behind its tensor table will do.  Wrong rules do
 * not stop the report; they decide the exit status.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/draft.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/machine.h"
#include "options/options.h"
#include "cli/state_dir.h"
#include "cli/output.h"
#include "placement/changes.h"
#include "placement/lint.h"
#include "placement/probe.h"
#include "placement/profile.h"
#include "placement/report.h"

struct planning {
    const struct options *o;
    const char *path;
    struct model *model;
    struct inventory inventory;
    struct rules rules;
    struct hot hot;
    struct named_tensor *names; /* [n_names], in file order */
    int n_names;
    struct match match;
    struct findings findings;
    struct plan_input in;
    struct plan plan;
    struct changes changes;
};

/* What bench --devices measured here, if it ever did and the machine is still the same. */
static enum err_code use_profile(struct planning *x, struct err *e)
{
    struct profile profile;
    struct str path = { 0 };
    char cpu[sizeof profile.cpu];
    struct err why = { 0 };

    if (state_dir_profile(&path, x->o->state_dir, 0, &why) != ERR_OK ||
        (!x->o->state_dir && access(path.data, F_OK) != 0)) {
        str_free(&path);
        return ERR_OK;
    }
    enum err_code rc = profile_read(&profile, path.data, e);
    machine_cpu_name(cpu, sizeof cpu);
    if (rc == ERR_OK && (strcmp(cpu, profile.cpu) != 0 || !profile_apply(&profile, &x->inventory)))
        log_warn("%s is of another machine and not used; run latent bench --devices", path.data);
    str_free(&path);
    return rc;
}

static enum err_code read_machine(struct planning *x, struct err *e)
{
    if (x->o->devices)
        TRY(inventory_read(&x->inventory, x->o->devices, e));
    else
        TRY(inventory_probe(&x->inventory, e));
    if (!x->o->devices)
        TRY(use_profile(x, e));
    if (x->o->ranks > 0)
        TRY(inventory_set_ranks(&x->inventory, (int)x->o->ranks, e));
    return ERR_OK;
}

static enum err_code read_rules(struct planning *x, struct err *e)
{
    const struct options *o = x->o;
    char source[32];

    for (size_t i = 0; i < o->override_tensor.n; i++) {
        if (o->override_tensor.n > 1)
            snprintf(source, sizeof source, "-ot #%zu", i + 1);
        else
            snprintf(source, sizeof source, "-ot");
        TRY(rules_add_text(&x->rules, source, o->override_tensor.v[i], e));
    }
    for (size_t i = 0; i < o->rules.n; i++)
        TRY(rules_add_file(&x->rules, o->rules.v[i], e));
    if (o->cpu_moe)
        TRY(rules_add_cpu_moe(&x->rules, e));
    TRY(rules_add_n_cpu_moe(&x->rules, (int)o->n_cpu_moe, e));
    if (o->hot)
        TRY(hot_read(&x->hot, o->hot, x->model->hp.n_layers, x->model->hp.n_experts, e));
    return ERR_OK;
}

static enum err_code match_all(struct planning *x, struct err *e)
{
    x->n_names = gguf_tensor_count(x->model->gguf);
    x->names = calloc((size_t)x->n_names + 1, sizeof *x->names);
    if (!x->names)
        return err_set(e, ERR_NOMEM, "no memory for %d tensor names", x->n_names);
    for (int i = 0; i < x->n_names; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(x->model->gguf, i);
        x->names[i] = (struct named_tensor){ t->name, (int64_t)t->bytes };
    }
    TRY(match_rules(&x->match, &x->rules, x->names, x->n_names, &x->findings, e));
    return lint_rules(&x->findings, &x->rules, &x->match, x->o->allow_unused_rules, e);
}

static enum err_code make_plan(struct planning *x, struct err *e)
{
    const struct options *o = x->o;
    const struct hparams *hp = &x->model->hp;

    x->in = (struct plan_input){
        .model = x->model, .inventory = &x->inventory, .rules = &x->rules, .match = &x->match
    };
    x->in.opt = (struct plan_options){ .n_context = o->ctx_size,
                                       .n_sequences = (int)o->parallel,
                                       .ubatch = (int)o->ubatch,
                                       .cache_type = (enum plan_cache_type)o->cache_type,
                                       .amb_mib = (int)o->amb,
                                       .n_threads = (int)o->threads,
                                       .batch = (int)o->batch,
                                       .depth = o->plan_depth,
                                       .hot = o->hot ? &x->hot : NULL,
                                       .engine = efficiency_by_name(o->engine) };
    if (!x->in.opt.engine)
        return err_set(e, ERR_USAGE, "--engine %.40s: not in the table; known are %s", o->engine,
                       efficiency_names());
    if (o->given[OPTION_mla])
        log_info("-mla: memory does not depend on it, and the prediction takes the cheaper form");
    if (o->ctx_size == 0 && o->fit == 1) /* off */
        x->in.opt.n_context = hp->context_length * o->parallel;
    TRY(plan_make(&x->plan, &x->in, &x->findings, e));
    if (x->findings.failed)
        return err_set(e, ERR_NOMEM, "no memory for the report");
    return changes_find(&x->changes, &x->in, &x->plan, e);
}

/* ---- Output ----------------------------------------------------------------- */

static enum err_code write_page(const struct report *r, const char *path, struct err *e)
{
    struct draft draft;
    struct str page = { 0 };

    TRY(draft_open(&draft, path, e));
    report_html(&page, r);
    if (page.failed) {
        draft_drop(&draft);
        return err_set(e, ERR_NOMEM, "%s: no memory for the page", path);
    }
    fwrite(page.data, 1, page.len, draft.file);
    str_free(&page);
    return draft_keep(&draft, e);
}

static enum err_code print(const struct planning *x, struct err *e)
{
    const struct options *o = x->o;
    const char *advice[CHANGES_MAX];
    const struct report r = { .model = x->path,
                              .plan = &x->plan,
                              .rules = &x->rules,
                              .match = &x->match,
                              .findings = &x->findings,
                              .advice = advice,
                              .n_advice = x->changes.n };
    struct str out = { 0 };
    enum err_code rc = ERR_OK;

    for (int i = 0; i < x->changes.n; i++)
        advice[i] = x->changes.text[i];
    if (o->explain)
        rc = report_explain(&out, &r, o->explain, e);
    else if (o->json)
        report_json(&out, &r);
    else
        report_text(&out, &r);
    if (rc == ERR_OK && out.failed)
        rc = err_set(e, ERR_NOMEM, "no memory for the report");
    if (rc == ERR_OK && o->html)
        rc = write_page(&r, o->html, e);
    if (rc == ERR_OK && out.data)
        rc = output_write(out.data, out.len, e);
    str_free(&out);
    return rc;
}

/* What the exit status says. */
static enum err_code judge(const struct planning *x, struct err *e)
{
    int errors = findings_count(&x->findings, FINDING_ERROR, -1);
    char shortfall[128];

    for (int i = 0; i < x->findings.n; i++)
        if (x->findings.v[i].level == FINDING_ERROR)
            log_error("%s", x->findings.v[i].text);
    if (errors > 0)
        return err_set(e, ERR_USAGE, "plan: %d error%s in the rules; correct what is named above",
                       errors, errors == 1 ? "" : "s");
    if (x->plan.fits)
        return ERR_OK;
    changes_shortfall(&x->plan, shortfall, sizeof shortfall);
    return err_set(e, ERR_NOFIT, "the plan does not fit: %s; %s%s", shortfall,
                   x->changes.n > 0
                       ? "the cheapest change that fits: "
                       : "no single change makes it fit: use a smaller quantisation or more memory",
                   x->changes.n > 0 ? x->changes.text[0] : "");
}

static enum err_code run_steps(struct planning *x, struct err *e)
{
    const struct options *o = x->o;

    TRY(read_machine(x, e));
    TRY(model_open(&x->model, x->path, GGUF_HEADERS_ONLY, o->override_kv.v, (int)o->override_kv.n,
                   e));
    TRY(read_rules(x, e));
    TRY(match_all(x, e));
    TRY(make_plan(x, e));
    TRY(print(x, e));
    return judge(x, e);
}

enum err_code run_plan(const struct options *o, struct err *e)
{
    struct planning x = { .o = o, .path = o->args[0] };
    enum err_code rc = run_steps(&x, e);

    plan_free(&x.plan);
    findings_free(&x.findings);
    match_free(&x.match);
    free(x.names);
    hot_free(&x.hot);
    rules_free(&x.rules);
    inventory_free(&x.inventory);
    model_close(&x.model);
    return rc;
}
