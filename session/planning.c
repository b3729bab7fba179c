/* SPDX-License-Identifier: MIT */
/* session/planning.c - see planning.h. */
#include "session/planning.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"
#include "placement/lint.h"
#include "placement/probe.h"
#include "placement/profile.h"
#include "session/state_dir.h"

/* ---- Machines ------------------------------------------------------------------- */

/* What bench --devices measured here, if it ever did and the machine is still the same. */
static enum err_code use_profile(struct planning *x, struct err *e)
{
    struct profile profile;
    struct str path = { 0 };
    char cpu[sizeof profile.cpu];
    struct err why = { 0 };
    /* latentd's state directory is there for more than this. */
    int wanted = x->o->state_dir && x->o->command != COMMAND_latentd;

    if (state_dir_profile(&path, x->o->state_dir, 0, &why) != ERR_OK ||
        (!wanted && access(path.data, F_OK) != 0)) {
        str_free(&path);
        return ERR_OK;
    }
    enum err_code rc = profile_read(&profile, path.data, e);
    probe_cpu_name(cpu, sizeof cpu);
    if (rc == ERR_OK &&
        (strcmp(cpu, profile.cpu) != 0 || !profile_apply(&profile, &x->inventory, x->ranks)))
        log_warn("%s is of another machine and not used; run latent bench --devices", path.data);
    str_free(&path);
    return rc;
}

enum err_code planning_probe(struct planning *x, struct err *e)
{
    TRY(inventory_probe(&x->inventory, e));
    return use_profile(x, e);
}

int planning_ranks(const struct options *o)
{
    return o->ranks > 0 ? (int)o->ranks : probe_ranks((int)o->threads);
}

static enum err_code read_machine(struct planning *x, struct err *e)
{
    if (x->inventory.n > 0)
        return ERR_OK; /* the caller knows better */
    if (x->o->devices)
        TRY(inventory_read(&x->inventory, x->o->devices, e));
    else
        TRY(planning_probe(x, e));
    if (x->ranks == 0 && !x->o->devices)
        x->ranks = planning_ranks(x->o);
    return x->ranks > 0 ? inventory_set_ranks(&x->inventory, x->ranks, e) : ERR_OK;
}

/* ---- Rules ---------------------------------------------------------------------- */

static enum err_code add_rules_file(struct planning *x, const char *path, struct err *e)
{
    int before = x->rules.n;

    TRY(rules_add_file(&x->rules, path, e));
    if (x->rules.n == before)
        log_warn("%s: has no rules: every line is empty or a comment", path);
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
        TRY(add_rules_file(x, o->rules.v[i], e));
    if (o->cpu_moe)
        TRY(rules_add_cpu_moe(&x->rules, e));
    TRY(rules_add_n_cpu_moe(&x->rules, (int)o->n_cpu_moe, e));
    if (!o->hot)
        return ERR_OK;
    TRY(rules_add_hot(&x->rules, e));
    return hot_read(&x->hot, o->hot, x->model->hp.n_layers, x->model->hp.n_experts, e);
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

/* ---- The plan --------------------------------------------------------------------- */

/* Float activations want a float cache. */
static enum plan_cache_type cache_type(const struct options *o)
{
    if (o->exact_math && !o->given[OPTION_cache_type])
        return PLAN_CACHE_F32;
    return (enum plan_cache_type)o->cache_type;
}

/* These two look at every token of a text; elsewhere a request wants what follows its last one. */
static int logits_wanted(const struct options *o)
{
    int all = o->command == COMMAND_logits || o->command == COMMAND_perplexity;

    return (int)(all ? o->ubatch : o->parallel);
}

static enum err_code make_plan(struct planning *x, struct err *e)
{
    const struct options *o = x->o;
    const struct hparams *hp = &x->model->hp;

    x->in = (struct plan_input){
        .model = x->model, .inventory = &x->inventory, .rules = &x->rules, .match = &x->match
    };
    x->in.opt = (struct plan_options){ .n_context = x->n_context,
                                       .n_sequences = (int)o->parallel,
                                       .ubatch = (int)o->ubatch,
                                       .n_logits = logits_wanted(o),
                                       .cache_type = cache_type(o),
                                       .exact_math = o->exact_math,
                                       .amb_mib = (int)o->amb,
                                       .n_threads = (int)o->threads,
                                       .batch = (int)o->batch,
                                       .depth = o->plan_depth,
                                       .hot = o->hot ? &x->hot : NULL,
                                       .engine = efficiency_by_name(o->engine) };
    if (!x->in.opt.engine)
        return err_set(e, ERR_USAGE, "--engine %.40s: not in the table; known are %s", o->engine,
                       efficiency_names());
    if (x->n_context == 0 && o->fit == 1) /* off */
        x->in.opt.n_context = hp->context_length * o->parallel;
    TRY(plan_make(&x->plan, &x->in, &x->findings, e));
    if (x->findings.failed)
        return err_set(e, ERR_NOMEM, "no memory for the report");
    return changes_find(&x->changes, &x->in, &x->plan, e);
}

enum err_code planning_make(struct planning *x, const struct model *m, struct err *e)
{
    x->model = m;
    TRY(read_machine(x, e));
    TRY(read_rules(x, e));
    TRY(match_all(x, e));
    return make_plan(x, e);
}

enum err_code planning_judge(const struct planning *x, struct err *e)
{
    int errors = findings_count(&x->findings, FINDING_ERROR, -1);
    char shortfall[256];

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

static void log_device(const struct plan *p, const struct plan_device *d)
{
    char weights[32], cache[32], buffers[32], left[32];

    str_bytes(weights, sizeof weights, (double)d->weights_bytes);
    str_bytes(cache, sizeof cache, (double)d->cache_bytes);
    str_bytes(buffers, sizeof buffers,
              (double)(d->activation_bytes + d->staging_bytes + d->comm_bytes));
    str_bytes(left, sizeof left, (double)plan_slack(d));
    log_info("%s: %s of weights, %s of cache for %lld positions, %s of buffers, %s left", d->name,
             weights, cache, (long long)p->opt.n_context, buffers, left);
}

/* One line for each rank; of many, for the one with least room. */
void planning_log(const struct planning *x)
{
    enum { MANY = 16 };
    const struct plan *p = &x->plan;
    int fullest = 0;

    for (int i = 0; i < x->findings.n; i++)
        if (x->findings.v[i].level == FINDING_WARNING)
            log_warn("%s", x->findings.v[i].text);
        else if (x->findings.v[i].level == FINDING_NOTE)
            log_info("%s", x->findings.v[i].text);
    for (int i = 0; i < p->n_devices && p->n_devices > 1; i++) {
        if (p->n_devices <= MANY)
            log_device(p, &p->devices[i]);
        if (plan_slack(&p->devices[i]) < plan_slack(&p->devices[fullest]))
            fullest = i;
    }
    if (p->n_devices > MANY) {
        log_info("%d ranks; the fullest:", p->n_ranks);
        log_device(p, &p->devices[fullest]);
    }
}

struct report planning_report(const struct planning *x, const char *model,
                              const char *advice[CHANGES_MAX])
{
    for (int i = 0; i < x->changes.n; i++)
        advice[i] = x->changes.text[i];
    return (struct report){ .model = model,
                            .plan = &x->plan,
                            .rules = &x->rules,
                            .match = &x->match,
                            .findings = &x->findings,
                            .advice = advice,
                            .n_advice = x->changes.n };
}

void planning_free(struct planning *x)
{
    plan_free(&x->plan);
    findings_free(&x->findings);
    match_free(&x->match);
    free(x->names);
    hot_free(&x->hot);
    rules_free(&x->rules);
    inventory_free(&x->inventory);
    *x = (struct planning){ 0 };
}
