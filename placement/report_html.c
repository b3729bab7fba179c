/* SPDX-License-Identifier: MIT */
/* placement/report_html.c - the plan as one page that needs nothing else: no script, no font, no
 * picture from elsewhere.
 *
 * The picture has a row for every layer and a column for every group of tensors; a cell is
 * filled with the colours of the devices that hold it, in proportion to bytes.  With many
 * devices a colour stands for all GPUs, or all memory, of a host.
 *
 * Reading order: text; colours; the picture; bars of devices; terms; tables; the page.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/report_parts.h"

/* ---- Text ------------------------------------------------------------------------ */

static void put_escaped(struct str *out, const char *text)
{
    struct str safe = { 0 };

    str_printable(&safe, text, strlen(text), 2000);
    for (size_t i = 0; i < safe.len; i++)
        switch (safe.data[i]) {
        case '&':
            str_puts(out, "&amp;");
            break;
        case '<':
            str_puts(out, "&lt;");
            break;
        case '>':
            str_puts(out, "&gt;");
            break;
        case '"':
            str_puts(out, "&quot;");
            break;
        case '\'':
            str_puts(out, "&#39;");
            break;
        default:
            str_append(out, &safe.data[i], 1);
        }
    str_free(&safe);
}

static const char style[] =
    "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:78rem;padding:0 1.5rem;"
    "color:#1c2430;background:#fff}"
    "h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}"
    "p{margin:.3rem 0}.dim{color:#5b6675}"
    ".verdict{display:inline-block;padding:.25rem .8rem;border-radius:.4rem;font-weight:600;"
    "margin:.8rem 0}.yes{background:#d9f2df;color:#14532d}.no{background:#fde2e1;color:#7f1d1d}"
    "table{border-collapse:collapse;width:100%}th{text-align:left;font-weight:600;color:#5b6675}"
    "th,td{padding:.25rem .7rem .25rem 0;border-bottom:1px solid #e6e9ee;vertical-align:top}"
    "td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    "td.c{font-family:ui-monospace,monospace;font-size:.88rem;overflow-wrap:anywhere}"
    ".bar{display:flex;height:1.05rem;background:#eef0f4;border-radius:.2rem;overflow:hidden}"
    ".bar i{display:block;height:100%}.key{display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;"
    "margin:.5rem 0;font-size:.88rem}.key i{display:inline-block;width:.85rem;height:.85rem;"
    "border-radius:.15rem;margin-right:.35rem;vertical-align:-.1rem}"
    "svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#5b6675}"
    ".err{color:#9b1c1c}.warn{color:#854d0e}ul{margin:.3rem 0;padding-left:1.2rem}"
    ".two{display:grid;grid-template-columns:repeat(auto-fit,minmax(26rem,1fr));gap:0 2.5rem}";

/* ---- Colours ------------------------------------------------------------------------ */

enum { MAX_CLASSES = 40 };

/* Devices that share a colour. */
struct palette {
    const struct plan *p;
    enum { BY_DEVICE, BY_HOST, BY_KIND } by;
    int n;
};

static struct palette make_palette(const struct plan *p)
{
    struct palette x = { .p = p, .by = BY_KIND, .n = 2 };

    if (p->n_devices <= MAX_CLASSES) {
        x.by = BY_DEVICE;
        x.n = p->n_devices;
    } else if (2 * p->inventory->n <= MAX_CLASSES) {
        x.by = BY_HOST;
        x.n = 2 * p->inventory->n;
    }
    return x;
}

static int class_of(const struct palette *x, int device)
{
    const struct plan_device *d = &x->p->devices[device];

    switch (x->by) {
    case BY_DEVICE:
        return device;
    case BY_HOST:
        return 2 * d->host + (int)d->kind;
    default:
        return (int)d->kind;
    }
}

static enum device_kind kind_of_class(const struct palette *x, int class)
{
    return x->by == BY_DEVICE ? x->p->devices[class].kind : (enum device_kind)(class % 2);
}

/* Host memory in greys and browns, GPUs around the wheel from blue on. */
static void put_colour(struct str *out, const struct palette *x, int class)
{
    int index = x->by == BY_DEVICE && kind_of_class(x, class) == DEVICE_GPU
                    ? class - x->p->n_ranks
                    : class / (x->by == BY_DEVICE ? 1 : 2);
    int of = x->by == BY_DEVICE
                 ? (kind_of_class(x, class) == DEVICE_GPU ? x->p->n_gpus : x->p->n_ranks)
                 : x->n / 2;

    if (kind_of_class(x, class) == DEVICE_GPU)
        str_printf(out, "hsl(%d,%d%%,%d%%)", (215 + 300 * index / (of > 0 ? of : 1)) % 360,
                   index % 2 ? 50 : 62, index % 2 ? 62 : 50);
    else
        str_printf(out, "hsl(35,%d%%,%d%%)", index % 2 ? 30 : 45,
                   60 + 25 * index / (of > 0 ? of : 1));
}

static void put_class_name(struct str *out, const struct palette *x, int class)
{
    const char *what = kind_of_class(x, class) == DEVICE_GPU ? "GPUs" : "memory";

    if (x->by == BY_DEVICE)
        str_puts(out, x->p->devices[class].name);
    else if (x->by == BY_HOST)
        str_printf(out, "%s of host %d", what, class / 2);
    else
        str_printf(out, "all %s", what);
}

static int class_is_there(const struct palette *x, int class)
{
    for (int d = 0; d < x->p->n_devices; d++)
        if (class_of(x, d) == class)
            return 1;
    return 0;
}

static void put_palette(struct str *out, const struct palette *x)
{
    str_puts(out, "<div class=key>");
    for (int i = 0; i < x->n; i++) {
        if (!class_is_there(x, i))
            continue;
        str_puts(out, "<span><i style=\"background:");
        put_colour(out, x, i);
        str_puts(out, "\"></i>");
        put_class_name(out, x, i);
        if (x->by == BY_DEVICE && x->p->devices[i].gpu)
            str_printf(out, " (%s)", x->p->devices[i].gpu->name);
        str_puts(out, "</span>");
    }
    str_puts(out, "</div>\n");
}

/* ---- The picture ---------------------------------------------------------------------- */

enum { PICTURE_W = 1180, LABEL_W = 62, ROW_H = 13, HEAD_H = 22, GAP = 6 };

static const struct column {
    const char *title;
    int groups; /* bits of enum report_group */
    int width;  /* share */
} columns[] = {
    {"norms, router",              1 << GROUP_SMALL,                   10},
    { "attention",                 1 << GROUP_ATTENTION,               24},
    { "dense FFN, shared experts", 1 << GROUP_FFN | 1 << GROUP_SHARED, 20},
    { "routed experts",            1 << GROUP_EXPERTS,                 46},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

/* bytes: [n_layers + 1][N_COLUMNS][n classes]; embedding and output stand in the last row */
static void sum_cells(const struct plan *p, const struct palette *x, double *bytes)
{
    for (int i = 0; i < p->n_parts; i++) {
        const struct plan_part *part = &p->parts[i];
        const struct plan_tensor *t = &p->tensors[part->tensor];
        int row = t->layer < 0 ? p->model->hp.n_layers : t->layer;
        for (int c = 0; c < N_COLUMNS; c++)
            if (t->layer < 0 ? c == 0 : columns[c].groups >> report_group_of(t) & 1)
                bytes[((int64_t)row * N_COLUMNS + c) * x->n + class_of(x, part->device)] +=
                    (double)part->memory_bytes;
    }
}

static void put_cell(struct str *out, const struct palette *x, int row, const char *what,
                     const double *bytes, double left, double width)
{
    double total = 0, at = left;
    char buf[32];

    for (int i = 0; i < x->n; i++)
        total += bytes[i];
    for (int i = 0; total > 0 && i < x->n; i++) {
        double w = width * bytes[i] / total;
        if (bytes[i] <= 0)
            continue;
        str_printf(out, "<rect x=\"%.1f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"", at,
                   HEAD_H + row * ROW_H, w, ROW_H - 2);
        put_colour(out, x, i);
        str_printf(out, "\"><title>%s, layer %d: %s on ", what, row,
                   str_bytes(buf, sizeof buf, bytes[i]));
        put_class_name(out, x, i);
        str_puts(out, "</title></rect>");
        at += w;
    }
}

static void put_label(struct str *out, int row, const char *text)
{
    str_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", LABEL_W - 8,
               HEAD_H + row * ROW_H + ROW_H - 3, text);
}

static void put_picture(struct str *out, const struct plan *p, const struct palette *x)
{
    int n_layers = p->model->hp.n_layers;
    double *bytes = calloc(((size_t)n_layers + 1) * N_COLUMNS * (size_t)x->n, sizeof *bytes);
    double room = PICTURE_W - LABEL_W - GAP * N_COLUMNS;

    if (!bytes) {
        out->failed = 1;
        return;
    }
    sum_cells(p, x, bytes);
    str_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\">\n", PICTURE_W,
               HEAD_H + (n_layers + 1) * ROW_H + 4);
    double left = LABEL_W;
    for (int c = 0; c < N_COLUMNS; c++) {
        double width = room * columns[c].width / 100;
        str_printf(out, "<text x=\"%.0f\" y=\"14\">%s</text>\n", left, columns[c].title);
        for (int l = 0; l < n_layers; l++) {
            char what[64];
            snprintf(what, sizeof what, "layer %d, %s", l, columns[c].title);
            put_cell(out, x, l, what, bytes + ((int64_t)l * N_COLUMNS + c) * x->n, left, width);
        }
        str_puts(out, "\n");
        left += width + GAP;
    }
    for (int l = 0; l < n_layers; l += n_layers < 20 ? 1 : 5) {
        char label[24];
        snprintf(label, sizeof label, "layer %d", l);
        put_label(out, l, label);
    }
    put_cell(out, x, n_layers, "embedding and output", bytes + (int64_t)n_layers * N_COLUMNS * x->n,
             LABEL_W, PICTURE_W - LABEL_W - GAP);
    put_label(out, n_layers, "ends");
    str_puts(out, "</svg>\n");
    free(bytes);
}

/* ---- Bars ---------------------------------------------------------------------------------- */

static const char *const piece_colours[N_DEVICE_PIECES] = { "#3b6fb6", "#5aa786", "#c98f3a",
                                                            "#a06cb0", "#c05a5a", "#8b95a5" };

static void put_device_bar(struct str *out, const struct plan_device *d, double longest)
{
    char buf[32], cap[32], slack[32];
    int64_t free_bytes = plan_slack(d);

    str_printf(
        out,
        "<tr><td>%s <span class=dim>%s, host %d, rank %d</span></td><td style=\"width:54%%\">"
        "<div class=bar style=\"width:%.2f%%;min-width:2px\">",
        d->name, d->gpu ? d->gpu->name : "memory", d->host, d->rank,
        100 * fmax((double)d->capacity_bytes, (double)plan_used(d)) / longest);
    for (int i = 0; i < N_DEVICE_PIECES; i++) {
        double bytes = (double)report_piece(d, i);
        double all = fmax((double)d->capacity_bytes, (double)plan_used(d));
        if (bytes > 0)
            str_printf(out, "<i title=\"%s: %s\" style=\"width:%.3f%%;background:%s\"></i>",
                       report_piece_names[i], str_bytes(buf, sizeof buf, bytes), 100 * bytes / all,
                       piece_colours[i]);
    }
    str_printf(out,
               "</div></td><td class=n>%s</td><td class=n>%s</td><td class=\"n%s\">%s</td>"
               "</tr>\n",
               str_bytes(buf, sizeof buf, (double)plan_used(d)),
               str_bytes(cap, sizeof cap, (double)d->capacity_bytes), free_bytes < 0 ? " err" : "",
               str_bytes(slack, sizeof slack, (double)free_bytes));
}

static void put_devices(struct str *out, const struct plan *p)
{
    double longest = 1;

    for (int d = 0; d < p->n_devices; d++) {
        longest = fmax(longest, (double)p->devices[d].capacity_bytes);
        longest = fmax(longest, (double)plan_used(&p->devices[d]));
    }
    str_puts(out, "<h2>Memory of every device</h2><div class=key>");
    for (int i = 0; i < N_DEVICE_PIECES; i++)
        str_printf(out, "<span><i style=\"background:%s\"></i>%s</span>", piece_colours[i],
                   report_piece_names[i]);
    str_puts(out, "</div>\n<table><tr><th>device</th><th>the bar is its capacity</th>"
                  "<th class=n>used</th><th class=n>capacity</th><th class=n>slack</th></tr>\n");
    for (int d = 0; d < p->n_devices; d++)
        put_device_bar(out, &p->devices[d], longest);
    str_puts(out, "</table>\n");
}

static void put_terms(struct str *out, const struct plan_predict *x, enum plan_phase phase)
{
    const struct plan_term *first = cost_dominating(x, phase);
    double total = report_phase_us(x, phase);
    char buf[32];

    str_puts(out, "<table>");
    for (int i = 0; i < x->n_terms; i++) {
        const struct plan_term *t = &x->terms[i];
        if (t->phase != phase)
            continue;
        str_printf(out,
                   "<tr><td>%s%s</td><td style=\"width:40%%\"><div class=bar><i "
                   "style=\"width:%.2f%%;background:%s\"></i></div></td><td class=n>%s</td>"
                   "<td class=n>%.0f&nbsp;%%</td></tr>\n",
                   t->name, t == first ? " <b>(dominates)</b>" : "", 100 * t->us / total,
                   t == first ? "#b4532a" : "#3b6fb6", report_time(buf, sizeof buf, t->us),
                   100 * t->us / total);
    }
    str_puts(out, "</table>");
}

static void put_speed(struct str *out, const struct plan *p)
{
    const struct plan_predict *x = &p->predict;
    char buf[32];

    str_printf(out,
               "<h2>Predicted speed of %s</h2><div class=two><div><p><b>Decode: %.2f "
               "tokens/s</b>, %d request%s at depth %" PRId64 "; a step takes %s</p>",
               p->opt.engine ? p->opt.engine->name : "latentd", x->decode_tps, x->batch,
               x->batch == 1 ? "" : "s", x->depth,
               report_time(buf, sizeof buf, report_phase_us(x, PHASE_DECODE)));
    put_terms(out, x, PHASE_DECODE);
    str_printf(out,
               "</div><div><p><b>Prefill: %.1f tokens/s</b>, in steps of %d; a step takes "
               "%s</p>",
               x->prefill_tps, p->opt.ubatch,
               report_time(buf, sizeof buf, report_phase_us(x, PHASE_PREFILL)));
    put_terms(out, x, PHASE_PREFILL);
    str_printf(out, "</div></div><p>Loading takes %s.",
               report_time(buf, sizeof buf, 1e6 * x->load_s));
    for (int i = 0; i < x->n_links; i++)
        str_printf(out, " %s: %s in %.0f messages a token.", x->links[i].name,
                   str_bytes(buf, sizeof buf, x->links[i].bytes), x->links[i].messages);
    str_puts(out, "</p>\n");
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static void put_rules(struct str *out, const struct report *r)
{
    char buf[32];

    if (r->rules->n == 0)
        return;
    str_puts(out, "<h2>Rules</h2><table><tr><th>#</th><th>from</th><th>pattern</th><th>target</th>"
                  "<th class=n>takes</th><th class=n>alone</th><th class=n>bytes</th></tr>\n");
    for (int i = 0; i < r->rules->n; i++) {
        const struct rule *rule = &r->rules->v[i];
        const struct rule_take *take = &r->match->takes[i];
        const char *error = report_rule_error(r, i);
        str_printf(out, "<tr><td>%d</td><td>", i + 1);
        put_escaped(out, rule->source);
        str_puts(out, "</td><td class=c>");
        put_escaped(out, rule->pattern);
        str_puts(out, "</td><td class=c>");
        put_escaped(out, rule->target_text);
        str_printf(out, "</td><td class=n>%d</td><td class=n>%d</td><td class=n>%s</td></tr>\n",
                   take->tensors, take->tensors_alone,
                   str_bytes(buf, sizeof buf, (double)take->bytes));
        if (error) {
            str_puts(out, "<tr><td></td><td colspan=6 class=err>");
            put_escaped(out, error);
            str_puts(out, "</td></tr>\n");
        }
    }
    str_puts(out, "</table>\n");
}

static void put_findings(struct str *out, const struct report *r)
{
    static const char *const classes[] = { "dim", "warn", "err" };
    int shown = 0;

    for (int level = FINDING_ERROR; level >= FINDING_NOTE; level--)
        for (int i = 0; i < r->findings->n; i++) {
            const struct finding *f = &r->findings->v[i];
            if ((int)f->level != level || (level == FINDING_ERROR && f->rule >= 0))
                continue;
            str_puts(out, shown++ ? "" : "<h2>To look at</h2><ul>\n");
            str_printf(out, "<li class=%s>", classes[level]);
            put_escaped(out, f->text);
            str_puts(out, "</li>\n");
        }
    str_puts(out, shown ? "</ul>\n" : "");
}

/* ---- The page ----------------------------------------------------------------------------------
 */

static void put_verdict(struct str *out, const struct report *r)
{
    const struct plan *p = r->plan;
    char buf[32];

    str_printf(out, "<p class=\"verdict %s\">%s</p>\n", p->fits ? "yes" : "no",
               p->fits ? "It fits" : "It does not fit");
    for (int i = 0; i < plan_memories(p); i++) {
        struct plan_memory m;
        if (!plan_memory_at(p, i, &m) || m.needed_bytes <= m.available_bytes)
            continue;
        str_puts(out, "<p class=err>");
        put_escaped(out, m.name);
        str_printf(out, " lacks %s</p>\n",
                   str_bytes(buf, sizeof buf, (double)(m.needed_bytes - m.available_bytes)));
    }
    for (int i = 0; i < r->n_advice; i++) {
        str_puts(out, i ? "<p>or " : "<p>Try ");
        put_escaped(out, r->advice[i]);
        str_puts(out, "</p>\n");
    }
}

static void put_head(struct str *out, const struct report *r)
{
    const struct plan *p = r->plan;
    const struct hparams *hp = &p->model->hp;
    const char *family = hparams_family(hp);
    const char *base = strrchr(r->model, '/');

    str_puts(out, "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport "
                  "content=\"width=device-width\"><title>Plan of ");
    put_escaped(out, base ? base + 1 : r->model);
    str_printf(out, "</title><style>%s</style></head><body>\n<h1>", style);
    put_escaped(out, base ? base + 1 : r->model);
    str_printf(out,
               "</h1>\n<p class=dim>%s, %d layers, %d experts of which a token uses %d, %d "
               "tensors</p>\n",
               family ? family : "deepseek2", hp->n_layers, hp->n_experts, hp->n_experts_used,
               p->n_tensors);
    str_printf(out,
               "<p class=dim>%d host%s, %d rank%s, %d GPU%s; context %" PRId64
               " positions of %s cache, %d tokens a step%s</p>\n",
               p->inventory->n, p->inventory->n == 1 ? "" : "s", p->n_ranks,
               p->n_ranks == 1 ? "" : "s", p->n_gpus, p->n_gpus == 1 ? "" : "s", p->opt.n_context,
               plan_cache_name(p->opt.cache_type), p->opt.ubatch,
               p->inventory->guessed ? "; bandwidth is assumed, not measured" : "");
}

void report_html(struct str *out, const struct report *r)
{
    struct palette x = make_palette(r->plan);

    put_head(out, r);
    put_verdict(out, r);
    str_puts(out, "<h2>Where the weights lie</h2>\n");
    put_palette(out, &x);
    put_picture(out, r->plan, &x);
    put_speed(out, r->plan);
    put_rules(out, r);
    put_findings(out, r);
    put_devices(out, r->plan);
    str_puts(out, "</body></html>\n");
}
