/* SPDX-License-Identifier: MIT */
/* placement/changes.c - see changes.h. */
#include "placement/changes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "placement/number_range.h"

enum { PAGE = 64, MAX_MORE_HOSTS = 16, MAX_RULES_TRIED = 16 };

struct trial {
    struct changes *out;
    const struct plan *p; /* the one that does not fit */
    struct plan_input in; /* varied                    */
};

static void propose(struct trial *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void propose(struct trial *t, const char *fmt, ...)
{
    va_list ap;

    if (t->out->n == CHANGES_MAX)
        return;
    va_start(ap, fmt);
    vsnprintf(t->out->text[t->out->n++], sizeof t->out->text[0], fmt, ap);
    va_end(ap);
}

static enum err_code fits(const struct plan_input *in, int64_t n_context, int *yes, struct err *e)
{
    struct findings ignored = { 0 };
    struct plan p;
    struct plan_input quick = *in;

    quick.opt.no_prediction = 1;
    enum err_code rc = plan_make_at(&p, &quick, n_context, &ignored, e);
    findings_free(&ignored);
    if (rc == ERR_OK) {
        *yes = p.fits;
        plan_free(&p);
    }
    return rc;
}

/* The largest context below the present one; only a proposal if it leaves room for a text. */
static enum err_code try_context(struct trial *t, struct err *e)
{
    int64_t low = 0, high = (t->p->opt.n_context - 1) / PAGE;
    int yes = 0;

    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        TRY(fits(&t->in, middle * PAGE, &yes, e));
        if (yes)
            low = middle;
        else
            high = middle - 1;
    }
    if (low * PAGE >= 512)
        propose(t, "-c %lld (instead of %lld)", (long long)low * PAGE,
                (long long)t->p->opt.n_context);
    return ERR_OK;
}

static enum err_code try_cache_type(struct trial *t, struct err *e)
{
    struct plan_input in = t->in;
    int yes = 0;

    if (t->p->opt.cache_type == PLAN_CACHE_Q8_0 || t->p->model->hp.kv_lora_rank % 32 != 0)
        return ERR_OK;
    in.opt.cache_type = PLAN_CACHE_Q8_0;
    TRY(fits(&in, t->p->opt.n_context, &yes, e));
    if (yes)
        propose(t, "-ctk q8_0 (instead of %s)", plan_cache_name(t->p->opt.cache_type));
    return ERR_OK;
}

static enum err_code try_ubatch(struct trial *t, struct err *e)
{
    struct plan_input in = t->in;
    int yes = 0;

    for (int ub = t->p->opt.ubatch / 2; ub >= 32 && !yes; ub /= 2) {
        in.opt.ubatch = ub;
        TRY(fits(&in, t->p->opt.n_context, &yes, e));
        if (yes)
            propose(t, "-ub %d (instead of %d)", ub, t->p->opt.ubatch);
    }
    return ERR_OK;
}

/* Plans with other rules than the user's. */
static enum err_code fits_with_rules(const struct trial *t, const struct rules *rules, int *yes,
                                     struct err *e)
{
    struct findings ignored = { 0 };
    struct match m;
    const struct match *now = t->in.match;
    enum err_code rc = match_rules(&m, rules, now->tensors, now->n_tensors, &ignored, e);

    findings_free(&ignored);
    if (rc != ERR_OK)
        return rc;
    struct plan_input in = t->in;
    in.rules = rules;
    in.match = &m;
    rc = fits(&in, t->p->opt.n_context, yes, e);
    match_free(&m);
    return rc;
}

static int on_short_device(const struct plan *p, int rule)
{
    for (int i = 0; i < p->n_parts; i++)
        if (p->tensors[p->parts[i].tensor].rule == rule &&
            plan_slack(&p->devices[p->parts[i].device]) < 0)
            return 1;
    return 0;
}

/* Leaving out one rule that fills a device which is too small. */
static enum err_code try_without_rules(struct trial *t, struct err *e)
{
    const struct rules *rules = t->in.rules;
    struct rules fewer = { .v = calloc((size_t)rules->n + 1, sizeof *fewer.v) };
    enum err_code rc = ERR_OK;
    int tried = 0, yes = 0;

    if (!fewer.v)
        return err_set(e, ERR_NOMEM, "no memory for other rules");
    for (int r = rules->n - 1; rc == ERR_OK && r >= 0 && tried < MAX_RULES_TRIED && !yes; r--) {
        if (!on_short_device(t->p, r))
            continue;
        tried++;
        fewer.n = 0; /* borrows the texts of the others */
        for (int i = 0; i < rules->n; i++)
            if (i != r)
                fewer.v[fewer.n++] = rules->v[i];
        rc = fits_with_rules(t, &fewer, &yes, e);
        if (rc == ERR_OK && yes)
            propose(t, "without rule %d (%.80s=%.30s)", r + 1, rules->v[r].pattern,
                    rules->v[r].target_text);
    }
    free(fewer.v);
    return rc;
}

/* The planner's own placement, without any rule. */
static enum err_code try_no_rules(struct trial *t, struct err *e)
{
    const struct rules none = { 0 };
    int yes = 0;

    if (t->in.rules->n == 0)
        return ERR_OK;
    TRY(fits_with_rules(t, &none, &yes, e));
    if (yes)
        propose(t, "no rules: what the planner places by itself");
    return ERR_OK;
}

/* The experts of the first N blocks in host memory, in front of all other rules. */
static enum err_code fits_with_cpu_blocks(const struct trial *t, int n_blocks, int *yes,
                                          struct err *e)
{
    const struct rules *rules = t->in.rules;
    struct rules first = { 0 };
    struct rules all = { .v = calloc((size_t)rules->n + 1, sizeof *all.v) };
    enum err_code rc = ERR_NOMEM;

    if (!all.v)
        return err_set(e, rc, "no memory for other rules");
    if ((rc = rules_add_n_cpu_moe(&first, n_blocks, e)) == ERR_OK) {
        all.v[all.n++] = first.v[0];
        memcpy(all.v + 1, rules->v, (size_t)rules->n * sizeof *rules->v);
        all.n += rules->n;
        rc = fits_with_rules(t, &all, yes, e);
    }
    rules_free(&first);
    free(all.v);
    return rc;
}

static enum err_code try_cpu_experts(struct trial *t, struct err *e)
{
    int low = 1, high = t->p->model->hp.n_layers, yes = 0;
    char range[96];

    if (t->p->n_gpus == 0 || t->in.rules->n == 0)
        return ERR_OK; /* without rules the experts are in host memory already */
    TRY(fits_with_cpu_blocks(t, high, &yes, e));
    if (!yes)
        return ERR_OK;
    while (low < high) {
        int middle = (low + high) / 2;
        TRY(fits_with_cpu_blocks(t, middle, &yes, e));
        if (yes)
            high = middle;
        else
            low = middle + 1;
    }
    number_range_pattern(0, high - 1, range, sizeof range);
    propose(t, "-ot '^blk\\.%s\\.ffn_.*_exps=CPU' in front of the other rules", range);
    return ERR_OK;
}

static enum err_code try_more_hosts(struct trial *t, struct err *e)
{
    const struct inventory *inv = t->in.inventory;
    struct inventory more = *inv;
    struct plan_input in = t->in;
    enum err_code rc = ERR_OK;
    int yes = 0;

    if (inv->probed)
        return ERR_OK;
    more.hosts = calloc((size_t)inv->n + MAX_MORE_HOSTS, sizeof *more.hosts);
    if (!more.hosts)
        return err_set(e, ERR_NOMEM, "no memory for more hosts");
    memcpy(more.hosts, inv->hosts, (size_t)inv->n * sizeof *inv->hosts);
    in.inventory = &more;
    for (int extra = 1; rc == ERR_OK && extra <= MAX_MORE_HOSTS && !yes; extra *= 2) {
        while (more.n < inv->n + extra)
            more.hosts[more.n++] = inv->hosts[inv->n - 1];
        rc = fits(&in, t->p->opt.n_context, &yes, e);
        if (rc == ERR_OK && yes)
            propose(t, "%d more host%s like the last one", extra, extra == 1 ? "" : "s");
    }
    free(more.hosts);
    return rc;
}

enum err_code changes_find(struct changes *c, const struct plan_input *in, const struct plan *p,
                           struct err *e)
{
    struct trial t = { .out = c, .p = p, .in = *in };

    *c = (struct changes){ 0 };
    if (p->fits)
        return ERR_OK;
    TRY(try_context(&t, e));
    TRY(try_cache_type(&t, e));
    TRY(try_ubatch(&t, e));
    TRY(try_cpu_experts(&t, e));
    TRY(try_without_rules(&t, e));
    TRY(try_no_rules(&t, e));
    return try_more_hosts(&t, e);
}

void changes_shortfall(const struct plan *p, char *out, size_t size)
{
    struct plan_memory worst = { .needed_bytes = INT64_MIN };
    int64_t together = 0;
    char needs[32], has[32], lacks[32], ranks[40] = "";
    int n = 0, n_short = 0;

    for (int i = 0; i < plan_memories(p); i++) {
        struct plan_memory m;
        if (!plan_memory_at(p, i, &m))
            continue;
        n++;
        n_short += m.needed_bytes > m.available_bytes;
        together += m.needed_bytes - m.available_bytes;
        if (m.needed_bytes - m.available_bytes > worst.needed_bytes - worst.available_bytes)
            worst = m;
    }
    if (p->n_ranks > 1 && worst.n_ranks > 0)
        snprintf(ranks, sizeof ranks, worst.n_ranks > 1 ? " (RANK%d and %d more)" : " (RANK%d)",
                 worst.first_rank, worst.n_ranks - 1);
    int at = snprintf(
        out, size, "%s%s needs %s and has %s available, %s too little%s", worst.name, ranks,
        str_bytes(needs, sizeof needs, (double)worst.needed_bytes),
        str_bytes(has, sizeof has, (double)worst.available_bytes),
        str_bytes(lacks, sizeof lacks, (double)(worst.needed_bytes - worst.available_bytes)),
        n_short > 1 ? ", and others lack some too" : "");
    if (together > 0 && n_short < n && at > 0 && (size_t)at < size)
        snprintf(out + at, size - (size_t)at, " (all memory together lacks %s)",
                 str_bytes(lacks, sizeof lacks, (double)together));
}
