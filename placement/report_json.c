/* SPDX-License-Identifier: MIT */
/* placement/report_json.c - the plan for programs (docs/placement.md has the fields).
 *
 * A plan over many ranks has a hundred thousand parts, so arrays are printed row by row: one small
 * jansson object at a time, parts without any.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "placement/report_parts.h"

/* ---- Values ---------------------------------------------------------------------- */

static json_t *text_or_null(const char *s)
{
    struct str safe = { 0 };

    if (!s)
        return json_null();
    json_t *j = json_string(s);
    if (j)
        return j;
    str_printable(&safe, s, strlen(s), strlen(s)); /* not UTF-8 */
    j = json_string(safe.data ? safe.data : "");
    str_free(&safe);
    return j;
}

static json_t *bytes(int64_t n)
{
    return json_integer((json_int_t)n);
}

/* Appends and drops j. */
static void put(struct str *out, json_t *j)
{
    char *s = j ? json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;

    json_decref(j);
    if (s)
        str_puts(out, s);
    else
        out->failed = 1;
    free(s);
}

static void put_field(struct str *out, const char *name, json_t *j)
{
    str_printf(out, "\"%s\":", name);
    put(out, j);
    str_puts(out, ",\n");
}

typedef json_t *row_fn(const struct report *r, int i);

static void put_rows(struct str *out, const char *name, const struct report *r, int n, row_fn *row)
{
    str_printf(out, "\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        str_puts(out, i ? ",\n " : "\n ");
        put(out, row(r, i));
    }
    str_puts(out, "],\n");
}

/* ---- Rows ---------------------------------------------------------------------------- */

static json_t *rule_row(const struct report *r, int i)
{
    const struct rule *rule = &r->rules->v[i];
    const struct rule_take *take = &r->match->takes[i];

    return json_pack("{s:i,s:o,s:o,s:o,s:i,s:i,s:o,s:o}", "index", i, "source",
                     text_or_null(rule->source), "pattern", text_or_null(rule->pattern), "target",
                     text_or_null(rule->target_text), "tensors", take->tensors, "tensors_alone",
                     take->tensors_alone, "bytes", bytes(take->bytes), "error",
                     text_or_null(report_rule_error(r, i)));
}

static json_t *device_row(const struct report *r, int i)
{
    const struct plan_device *d = &r->plan->devices[i];

    return json_pack(
        "{s:s,s:i,s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "name", d->name, "host", d->host, "rank",
        d->rank, "weights_bytes", bytes(d->weights_bytes), "cache_bytes", bytes(d->cache_bytes),
        "activation_bytes", bytes(d->activation_bytes), "staging_bytes", bytes(d->staging_bytes),
        "comm_bytes", bytes(d->comm_bytes), "reserve_bytes", bytes(d->reserve_bytes),
        "capacity_bytes", bytes(d->capacity_bytes), "slack_bytes", bytes(plan_slack(d)));
}

static json_t *host_row(const struct report *r, int i)
{
    const struct host *h = &r->plan->inventory->hosts[i];
    int64_t used = 0;

    for (int k = 0; k < r->plan->n_ranks; k++)
        if (r->plan->ranks[k].host == i)
            used += plan_used(&r->plan->devices[k]);
    return json_pack("{s:o,s:i,s:o,s:o,s:o}", "name",
                     *h->name ? text_or_null(h->name) : json_null(), "ranks", h->ranks,
                     "used_bytes", bytes(used), "capacity_bytes", bytes(h->ram_bytes),
                     "slack_bytes", bytes(h->ram_bytes - used));
}

/* By hand: of these rows there may be a hundred thousand.  Devices, reasons and axes are ours and
 * need no escapes. */
static void put_part(struct str *out, const struct plan *p, const struct plan_part *part)
{
    const struct plan_tensor *t = &p->tensors[part->tensor];
    const struct plan_device *d = &p->devices[part->device];

    str_puts(out, "{\"name\":");
    put(out, text_or_null(t->t->name));
    if (t->rule >= 0)
        str_printf(out, ",\"rule\":%d", t->rule);
    else
        str_puts(out, ",\"rule\":null");
    str_printf(out, ",\"reason\":\"%s\",\"rank\":%d,\"device\":\"%s\",", t->reason, d->rank,
               d->name);
    str_printf(out, "\"slice\":{\"axis\":\"%s\",\"ranges\":[", plan_axis_name(part->axis));
    for (int k = 0; k < part->n_ranges; k++) {
        const struct plan_range *x = &p->ranges[part->first_range + k];
        str_printf(out, k ? ",[%" PRId64 ",%" PRId64 "]" : "[%" PRId64 ",%" PRId64 "]", x->begin,
                   x->end);
    }
    str_printf(out, "]},\"file_bytes\":%" PRId64 ",\"memory_bytes\":%" PRId64 "}", part->file_bytes,
               part->memory_bytes);
}

static void put_parts(struct str *out, const struct plan *p)
{
    str_puts(out, "\"tensors\":[");
    for (int i = 0; i < p->n_parts; i++) {
        str_puts(out, i ? ",\n " : "\n ");
        put_part(out, p, &p->parts[i]);
    }
    str_puts(out, "]");
}

static json_t *texts_of(const struct report *r, enum finding_level level)
{
    json_t *all = json_array();

    for (int i = 0; i < r->findings->n; i++)
        if (r->findings->v[i].level == level)
            json_array_append_new(all, text_or_null(r->findings->v[i].text));
    return all;
}

static json_t *advice_of(const struct report *r)
{
    json_t *all = json_array();

    for (int i = 0; i < r->n_advice; i++)
        json_array_append_new(all, text_or_null(r->advice[i]));
    return all;
}

/* ---- The prediction -------------------------------------------------------------------- */

static json_t *prediction(const struct plan *p)
{
    const struct plan_predict *x = &p->predict;
    json_t *terms = json_array(), *links = json_array();

    for (int i = 0; i < x->n_terms; i++)
        json_array_append_new(terms, json_pack("{s:s,s:s,s:f}", "phase",
                                               report_phase_name(x->terms[i].phase), "name",
                                               x->terms[i].name, "us", x->terms[i].us));
    for (int i = 0; i < x->n_links; i++)
        json_array_append_new(links,
                              json_pack("{s:s,s:f,s:f}", "name", x->links[i].name, "bytes",
                                        x->links[i].bytes, "messages", x->links[i].messages));
    return json_pack("{s:s,s:i,s:I,s:f,s:f,s:f,s:f,s:o,s:o}", "engine",
                     p->opt.engine ? p->opt.engine->name : "latentd", "batch", x->batch, "depth",
                     (json_int_t)x->depth, "decode_tps", x->decode_tps, "prefill_tps",
                     x->prefill_tps, "load_s", x->load_s, "crossings", x->crossings, "links", links,
                     "terms", terms);
}

void report_json(struct str *out, const struct report *r)
{
    const struct plan *p = r->plan;

    str_puts(out, "{");
    put_field(out, "model", text_or_null(r->model));
    put_field(out, "fits", json_boolean(p->fits));
    put_field(out, "settings",
              json_pack("{s:I,s:i,s:i,s:s,s:i,s:i}", "context", (json_int_t)p->opt.n_context,
                        "sequences", p->opt.n_sequences, "ubatch", p->opt.ubatch, "cache_type",
                        plan_cache_name(p->opt.cache_type), "ranks", p->n_ranks, "gpus",
                        p->n_gpus));
    put_rows(out, "rules", r, r->rules->n, rule_row);
    put_rows(out, "hosts", r, p->inventory->n, host_row);
    put_rows(out, "devices", r, p->n_devices, device_row);
    put_field(out, "predict", prediction(p));
    put_field(out, "errors", texts_of(r, FINDING_ERROR));
    put_field(out, "warnings", texts_of(r, FINDING_WARNING));
    put_field(out, "notes", texts_of(r, FINDING_NOTE));
    put_field(out, "advice", advice_of(r));
    if (r->no_tensors)
        str_printf(out, "\"tensors\":[],\n\"tensors_omitted\":%d", p->n_parts);
    else
        put_parts(out, p);
    str_puts(out, "\n}\n");
}
