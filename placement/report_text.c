/* SPDX-License-Identifier: MIT */
/* placement/report_text.c - the page for a terminal: verdict, rules, weights, devices, speed,
 * what to look at.
 *
 * Every line is at most WIDTH columns; long texts are wrapped, long names cut in the middle.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "placement/report_parts.h"

enum { WIDTH = 100, MAX_LISTED = 32 /* devices */ };

/* ---- Words --------------------------------------------------------------------- */

/* Appends words of text, `indent` blanks before every line but the first. */
static void put_wrapped(struct str *out, int column, int indent, const char *text)
{
    struct str safe = { 0 };

    str_printable(&safe, text, strlen(text), strlen(text));
    const char *at = safe.data ? safe.data : "";
    while (*at) {
        size_t room = (size_t)(WIDTH - column), n = strlen(at);
        if (n > room) {
            n = room;
            while (n > 0 && at[n] != ' ')
                n--;
            n = n ? n : room; /* one word that is wider than the line */
        }
        str_append(out, at, n);
        at += n;
        at += strspn(at, " ");
        str_printf(out, "\n%*s", *at ? indent : 0, "");
        column = indent;
    }
    str_free(&safe);
}

/* At most `width` columns of text, the middle left out. */
static void put_cut(struct str *out, const char *text, int width)
{
    struct str safe = { 0 };

    str_printable(&safe, text, strlen(text), strlen(text));
    int n = (int)safe.len;
    const char *s = safe.data ? safe.data : "";
    if (n <= width)
        str_printf(out, "%-*s", width, s);
    else
        str_printf(out, "%.*s..%s", width / 2 - 1, s, s + n - (width - width / 2 - 1));
    str_free(&safe);
}

static void put_bytes(struct str *out, double bytes, int width)
{
    char buf[32];

    str_printf(out, " %*s", width, str_bytes(buf, sizeof buf, bytes));
}

/* ---- Head ------------------------------------------------------------------------ */

static int64_t file_bytes(const struct plan *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->n_tensors; i++)
        n += (int64_t)p->tensors[i].t->bytes;
    return n;
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static void put_head(struct str *out, const struct report *r)
{
    const struct plan *p = r->plan;
    const struct hparams *hp = &p->model->hp;
    const char *family = hparams_family(hp);
    char buf[32];

    str_puts(out, "model     ");
    put_wrapped(out, 10, 10, r->model);
    str_printf(out, "          %s, %d layers, %d experts of which a token uses %d\n",
               family ? family : "deepseek2", hp->n_layers, hp->n_experts, hp->n_experts_used);
    str_printf(out, "          %s in %d tensors\n",
               str_bytes(buf, sizeof buf, (double)file_bytes(p)), p->n_tensors);
    str_printf(out, "machine   %d host%s, %d rank%s, %d GPU%s%s\n", p->inventory->n,
               plural(p->inventory->n), p->n_ranks, plural(p->n_ranks), p->n_gpus,
               plural(p->n_gpus),
               p->inventory->guessed ? "; bandwidth is assumed: run latent bench --devices" : "");
    str_printf(out, "settings  -c %" PRId64 " -ctk %s -ub %d -np %d\n\n", p->opt.n_context,
               plan_cache_name(p->opt.cache_type), p->opt.ubatch, p->opt.n_sequences);
}

static void put_verdict(struct str *out, const struct report *r)
{
    const struct plan *p = r->plan;
    char lacks[32];

    if (p->fits) {
        str_puts(out, "It fits.\n\n");
        return;
    }
    str_puts(out, "It does not fit.\n");
    int shown = 0;
    for (int i = 0; i < plan_memories(p); i++) {
        struct plan_memory m;
        if (plan_memory_at(p, i, &m) && m.needed_bytes > m.available_bytes && shown++ < MAX_LISTED)
            str_printf(
                out, "  %s lacks %s\n", m.name,
                str_bytes(lacks, sizeof lacks, (double)(m.needed_bytes - m.available_bytes)));
    }
    if (shown > MAX_LISTED)
        str_printf(out, "  and %d more\n", shown - MAX_LISTED);
    for (int i = 0; i < r->n_advice; i++) {
        str_puts(out, i ? "  or:  " : "  try: ");
        put_wrapped(out, 7, 7, r->advice[i]);
    }
    str_puts(out, "\n");
}

/* ---- Rules ------------------------------------------------------------------------ */

static void put_rule(struct str *out, const struct report *r, int i)
{
    const struct rule *rule = &r->rules->v[i];
    const struct rule_take *take = &r->match->takes[i];
    const char *error = report_rule_error(r, i);

    str_printf(out, "%5d ", i + 1);
    put_cut(out, rule->source ? rule->source : "", 14);
    str_puts(out, " ");
    put_cut(out, rule->pattern ? rule->pattern : "", 34);
    str_puts(out, " ");
    put_cut(out, rule->target_text ? rule->target_text : "", 14);
    str_printf(out, " %6d %6d", take->tensors, take->tensors_alone);
    put_bytes(out, (double)take->bytes, 9);
    str_puts(out, "\n");
    if (take->lost_to >= 0 && take->tensors < take->tensors_alone)
        str_printf(out, "      %d of its tensors were taken by earlier rules, most by rule %d\n",
                   take->tensors_alone - take->tensors, take->lost_to + 1);
    if (error) {
        str_puts(out, "      error: ");
        put_wrapped(out, 13, 13, error);
    }
}

static void put_rules(struct str *out, const struct report *r)
{
    int left = r->plan->n_tensors;
    double bytes = (double)file_bytes(r->plan);

    str_printf(out, "RULES the first that matches a name takes the tensor; alone: if it were the "
                    "only rule\n");
    if (r->rules->n > 0)
        str_printf(out, "%5s %-14s %-34s %-14s %6s %6s %9s\n", "#", "from", "pattern", "target",
                   "takes", "alone", "bytes");
    for (int i = 0; i < r->rules->n; i++) {
        put_rule(out, r, i);
        left -= r->match->takes[i].tensors;
        bytes -= (double)r->match->takes[i].bytes;
    }
    str_printf(out, "%5s %-64s %6d %6s", "",
               r->rules->n ? "no rule: placed by the planner"
                           : "no rules: all placed by the planner",
               left, "");
    put_bytes(out, bytes, 9);
    str_puts(out, "\n\n");
}

/* ---- Weights ----------------------------------------------------------------------- */

static void put_groups(struct str *out, const struct plan *p)
{
    struct {
        double file, memory[2];
        int tensors;
    } g[N_REPORT_GROUPS] = { 0 };

    for (int i = 0; i < p->n_tensors; i++) {
        enum report_group k = report_group_of(&p->tensors[i]);
        g[k].tensors++;
        g[k].file += (double)p->tensors[i].t->bytes;
    }
    for (int i = 0; i < p->n_parts; i++)
        g[report_group_of(&p->tensors[p->parts[i].tensor])]
            .memory[p->devices[p->parts[i].device].kind] += (double)p->parts[i].memory_bytes;
    str_puts(out, "WEIGHTS what stands on every rank counts once for each copy\n");
    str_printf(out, "      %-24s %8s %10s %14s %14s\n", "", "tensors", "in file", "host memory",
               "GPU memory");
    for (int k = 0; k < N_REPORT_GROUPS; k++) {
        if (g[k].tensors == 0)
            continue;
        str_printf(out, "      %-24s %8d", report_group_names[k], g[k].tensors);
        put_bytes(out, g[k].file, 10);
        put_bytes(out, g[k].memory[DEVICE_HOST], 14);
        put_bytes(out, g[k].memory[DEVICE_GPU], 14);
        str_puts(out, "\n");
    }
    str_puts(out, "\n");
}

/* ---- Devices ------------------------------------------------------------------------- */

static void put_room(struct str *out, int64_t capacity, int64_t slack)
{
    put_bytes(out, (double)capacity, 8);
    put_bytes(out, (double)slack, 8);
    str_puts(out, slack < 0 ? " <-\n" : "\n");
}

/* Ranks that share the memory of a host: a row of the host says what is left. */
static int shares_memory(const struct plan *p, const struct plan_device *d)
{
    const struct host *h = &p->inventory->hosts[d->host];

    return d->kind == DEVICE_HOST && h->ranks > 1 && !h->apart;
}

static void put_device(struct str *out, const struct plan *p, const struct plan_device *d)
{
    str_printf(out, "%-9.9s %4d", d->name, d->host);
    for (int i = 0; i < N_DEVICE_PIECES; i++)
        put_bytes(out, (double)report_piece(d, i), 8);
    if (shares_memory(p, d))
        str_puts(out, "\n");
    else
        put_room(out, d->capacity_bytes, plan_slack(d));
}

/* What the ranks of host h take together, where that is what counts. */
static void put_host(struct str *out, const struct plan *p, int h)
{
    int64_t pieces[N_DEVICE_PIECES] = { 0 };
    struct plan_memory m;

    if (!plan_memory_at(p, h, &m) || m.n_ranks < 2)
        return;
    for (int r = 0; r < p->n_ranks; r++)
        for (int i = 0; p->ranks[r].host == h && i < N_DEVICE_PIECES; i++)
            pieces[i] += report_piece(&p->devices[r], i);
    str_printf(out, "%-9.9s %4d", "together", h);
    for (int i = 0; i < N_DEVICE_PIECES; i++)
        put_bytes(out, (double)pieces[i], 8);
    put_room(out, m.available_bytes, m.available_bytes - m.needed_bytes);
}

/* Of many devices: the fullest of a kind. */
static void put_fullest(struct str *out, const struct plan *p, enum device_kind kind)
{
    const struct plan_device *fullest = NULL;
    int n = 0;

    for (int i = 0; i < p->n_devices; i++) {
        const struct plan_device *d = &p->devices[i];
        if (d->kind != kind)
            continue;
        n++;
        if (!fullest || plan_slack(d) < plan_slack(fullest))
            fullest = d;
    }
    if (!fullest)
        return;
    put_device(out, p, fullest);
    if (kind == DEVICE_HOST)
        put_host(out, p, fullest->host);
    str_printf(out, "%14s is the fullest of %d %s\n", "", n,
               kind == DEVICE_GPU ? "GPUs" : "host memories, one for each rank");
}

static void put_devices(struct str *out, const struct plan *p)
{
    int many = p->n_devices > MAX_LISTED;

    str_printf(out, "DEVICES what lies where%s\n%-9s %4s",
               many ? "; --json and --html list them all" : "", "", "host");
    for (int i = 0; i < N_DEVICE_PIECES; i++)
        str_printf(out, " %8.8s", i == 2 ? "activ." : report_piece_names[i]);
    str_printf(out, " %8s %8s\n", "capacity", "slack");
    for (int i = 0; !many && i < p->n_devices; i++)
        put_device(out, p, &p->devices[i]);
    for (int h = 0; !many && h < p->inventory->n; h++)
        put_host(out, p, h);
    if (many) {
        put_fullest(out, p, DEVICE_HOST);
        put_fullest(out, p, DEVICE_GPU);
    }
    str_puts(out, "\n");
}

/* ---- Speed ---------------------------------------------------------------------------- */

static void put_terms(struct str *out, const struct plan_predict *x, enum plan_phase phase)
{
    static const char bar[] = "##############################";
    double total = report_phase_us(x, phase);
    const struct plan_term *first = cost_dominating(x, phase);
    char buf[32];

    for (int i = 0; i < x->n_terms; i++) {
        const struct plan_term *t = &x->terms[i];
        if (t->phase != phase)
            continue;
        int length = (int)lrint(t->us / total * (double)(sizeof bar - 1));
        str_printf(out, "      %-28s %10s %4.0f %%%s%.*s%s\n", t->name,
                   report_time(buf, sizeof buf, t->us), 100 * t->us / total, length ? " " : "",
                   length, bar, t == first ? " dominates" : "");
    }
}

static void put_speed(struct str *out, const struct plan *p)
{
    const struct plan_predict *x = &p->predict;
    char buf[32];

    str_printf(out, "SPEED predicted for %s\n", p->opt.engine ? p->opt.engine->name : "latentd");
    str_printf(out, "  decode  %.2f tokens/s, %d request%s at depth %" PRId64 "; a step takes %s\n",
               x->decode_tps, x->batch, plural(x->batch), x->depth,
               report_time(buf, sizeof buf, report_phase_us(x, PHASE_DECODE)));
    put_terms(out, x, PHASE_DECODE);
    str_printf(out, "  prefill %.1f tokens/s in steps of %d; a step takes %s\n", x->prefill_tps,
               p->opt.ubatch, report_time(buf, sizeof buf, report_phase_us(x, PHASE_PREFILL)));
    put_terms(out, x, PHASE_PREFILL);
    str_printf(out, "  load    %s", report_time(buf, sizeof buf, 1e6 * x->load_s));
    const struct plan_term *load = cost_dominating(x, PHASE_LOAD);
    str_printf(out, "%s%s\n", load ? ", set by " : "", load ? load->name : "");
    for (int i = 0; i < x->n_links; i++)
        str_printf(out, "  link    %s: %s in %.0f messages a token\n", x->links[i].name,
                   str_bytes(buf, sizeof buf, x->links[i].bytes), x->links[i].messages);
    str_puts(out, "\n");
}

/* ---- What to look at --------------------------------------------------------------------- */

static void put_findings(struct str *out, const struct report *r)
{
    static const char *const words[] = { "note: ", "warning: ", "error: " };
    int shown = 0;

    for (int level = FINDING_ERROR; level >= FINDING_NOTE; level--)
        for (int i = 0; i < r->findings->n; i++) {
            const struct finding *f = &r->findings->v[i];
            if ((int)f->level != level || (level == FINDING_ERROR && f->rule >= 0))
                continue; /* a rule's errors stand beside it */
            if (!shown++)
                str_puts(out, "TO LOOK AT\n");
            str_printf(out, "  %s", words[level]);
            put_wrapped(out, 2 + (int)strlen(words[level]), 4, f->text);
        }
    if (shown)
        str_puts(out, "\n");
}

void report_text(struct str *out, const struct report *r)
{
    put_head(out, r);
    put_rules(out, r);
    put_groups(out, r->plan);
    put_devices(out, r->plan);
    put_speed(out, r->plan);
    put_findings(out, r);
    put_verdict(out, r);
}
