/* SPDX-License-Identifier: MIT */
/* cli/cmd_daemon.c - `latent cancel`, `list`, `status`, `metrics`, `drain`: short questions to a
 * daemon.  `status --json` and `list --json` print what docs/cli.md says.
 */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/str.h"
#include "cli/json_out.h"
#include "cli/output.h"
#include "cli/remote.h"

typedef enum err_code question_fn(struct remote *r, const struct options *o, struct err *e);

static enum err_code ask(const struct options *o, question_fn *fn, struct err *e)
{
    struct remote r = { 0 };

    remote_interrupt_begin();
    enum err_code rc = remote_open(&r, o, e);
    if (rc == ERR_OK)
        rc = fn(&r, o, e);
    remote_interrupt_end();
    remote_close(&r);
    return rc;
}

/* ---- cancel, metrics ------------------------------------------------------ */

static enum err_code cancel(struct remote *r, const struct options *o, struct err *e)
{
    struct latent_error le;

    return latent_cancel(r->c, o->args[0], &le) == LATENT_OK ? ERR_OK : remote_err(&le, e);
}

enum err_code run_cancel(const struct options *o, struct err *e)
{
    return ask(o, cancel, e);
}

static enum err_code metrics(struct remote *r, const struct options *o, struct err *e)
{
    struct latent_error le;
    const char *text;
    size_t len;

    (void)o;
    if (latent_metrics(r->c, &text, &len, &le) != LATENT_OK)
        return remote_err(&le, e);
    return output_write(text, len, e);
}

enum err_code run_metrics(const struct options *o, struct err *e)
{
    return ask(o, metrics, e);
}

/* ---- drain ---------------------------------------------------------------- */

static enum err_code drain(struct remote *r, const struct options *o, struct err *e)
{
    const struct timespec pause = { .tv_nsec = 200000000 };
    struct latent_error le;
    uint32_t live = 0;

    for (;;) {
        if (latent_drain(r->c, o->undo, &live, &le) != LATENT_OK)
            return remote_err(&le, e);
        if (!o->wait || o->undo || !live)
            break;
        nanosleep(&pause, NULL);
        if (remote_interrupted())
            return err_set(e, ERR_CANCELLED, "interrupted");
    }
    printf("%s; %" PRIu32 " %s not ended\n", o->undo ? "takes requests again" : "takes nothing new",
           live, live == 1 ? "request has" : "requests have");
    return ERR_OK;
}

enum err_code run_drain(const struct options *o, struct err *e)
{
    return ask(o, drain, e);
}

/* ---- list ----------------------------------------------------------------- */

static json_t *json_info(const struct latent_info *i)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I}", "id", i->id,
                     "client", i->client, "state", latent_state_name(i->state), "reason",
                     latent_reason_name(i->reason), "priority", i->priority, "prompt_tokens",
                     (json_int_t)i->prompt_tokens, "cached_tokens", (json_int_t)i->cached_tokens,
                     "produced_tokens", (json_int_t)i->produced_tokens, "queue_place",
                     (json_int_t)i->queue_place, "accepted_ms", (json_int_t)i->accepted_ms,
                     "ended_ms", (json_int_t)i->ended_ms);
}

static enum err_code print_list_json(const struct latent_info *infos, size_t n, struct err *e)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_info(&infos[i]));
    return json_print(json_pack("{s:o}", "requests", list), e);
}

static enum err_code list(struct remote *r, const struct options *o, struct err *e)
{
    const struct latent_info *infos;
    struct latent_error le;
    size_t n;
    char when[32];

    if (latent_list(r->c, o->client, o->live, (unsigned)o->limit, &infos, &n, &le) != LATENT_OK)
        return remote_err(&le, e);
    if (o->json)
        return print_list_json(infos, n, e);
    printf("%-32s %-12s %-8s %-13s %7s %8s  %s\n", "id", "client", "state", "ended by", "prompt",
           "produced", "accepted");
    for (size_t i = 0; i < n; i++) {
        time_t t = (time_t)(infos[i].accepted_ms / 1000);
        struct tm tm;
        strftime(when, sizeof when, "%F %T", localtime_r(&t, &tm));
        printf("%-32s %-12s %-8s %-13s %7" PRIu32 " %8" PRIu32 "  %s\n", infos[i].id,
               infos[i].client, latent_state_name(infos[i].state),
               latent_reason_name(infos[i].reason), infos[i].prompt_tokens,
               infos[i].produced_tokens, when);
    }
    return ERR_OK;
}

enum err_code run_list(const struct options *o, struct err *e)
{
    return ask(o, list, e);
}

/* ---- status --------------------------------------------------------------- */

static json_t *json_rank(const struct latent_rank *r)
{
    return json_pack("{s:i, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
                     "rank", (int)r->rank, "host", r->host, "device", r->device, "threads",
                     (int)r->threads, "weights_bytes", (json_int_t)r->weights_bytes, "cache_bytes",
                     (json_int_t)r->cache_bytes, "load_done_bytes", (json_int_t)r->load_done_bytes,
                     "load_total_bytes", (json_int_t)r->load_total_bytes, "load_rate",
                     (json_int_t)r->load_rate, "steps", (json_int_t)r->steps, "compute_us",
                     (json_int_t)r->compute_us, "sum_us", (json_int_t)r->sum_us,
                     "recent_compute_us", (json_int_t)r->recent_compute_us, "recent_sum_us",
                     (json_int_t)r->recent_sum_us);
}

static enum err_code print_status_json(const struct latent_status *s, struct err *e)
{
    json_t *j =
        json_pack("{s:s, s:b, s:s, s:s, s:i, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:i, s:i}",
                  "phase", latent_phase_name(s->phase), "green", s->green, "why", s->why, "version",
                  s->version, "pid", (int)s->pid, "uptime_s", (json_int_t)s->uptime_s, "model",
                  s->model, "model_path", s->model_path, "model_hash", s->model_hash, "kernel_set",
                  s->kernel_set, "cache_type", s->cache_type, "reuse", s->reuse, "context",
                  (json_int_t)s->context, "parallel", (int)s->parallel, "ranks", (int)s->ranks);
    json_t *work = json_pack(
        "{s:i, s:i, s:b, s:b, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "running",
        (int)s->running, "waiting", (int)s->waiting, "draining", s->draining, "journal_ok",
        s->journal_ok, "restarts", (int)s->restarts, "load_done_bytes",
        (json_int_t)s->load_done_bytes, "load_total_bytes", (json_int_t)s->load_total_bytes,
        "pages_total", (json_int_t)s->pages_total, "pages_used", (json_int_t)s->pages_used,
        "pages_cached", (json_int_t)s->pages_cached, "prompt_tokens", (json_int_t)s->prompt_tokens,
        "cached_tokens", (json_int_t)s->cached_tokens, "produced_tokens",
        (json_int_t)s->produced_tokens);

    json_t *ranks = json_array();

    for (size_t i = 0; i < s->n_rank_list; i++)
        json_array_append_new(ranks, json_rank(&s->rank_list[i]));
    if (!j || !work || json_object_update(j, work) || json_object_set(j, "rank_list", ranks)) {
        json_decref(j);
        j = NULL;
    }
    json_decref(work);
    json_decref(ranks);
    return json_print(j, e);
}

/* Seconds until a rank has loaded, or -1. */
static double load_left(const struct latent_rank *r)
{
    if (r->load_rate == 0 || r->load_done_bytes > r->load_total_bytes)
        return -1;
    return (double)(r->load_total_bytes - r->load_done_bytes) / (double)r->load_rate;
}

static void print_loading(const struct latent_status *s)
{
    double left = 0, rate = 0;
    char part[32], whole[32], speed[32];

    for (size_t i = 0; i < s->n_rank_list; i++) {
        double its = load_left(&s->rank_list[i]);
        left = its < 0 || left < 0 ? -1 : fmax(left, its);
        rate += (double)s->rank_list[i].load_rate;
    }
    printf("loading     %s of %s", str_bytes(part, sizeof part, (double)s->load_done_bytes),
           str_bytes(whole, sizeof whole, (double)s->load_total_bytes));
    if (left >= 0)
        printf(", %s/s, %.0f s left", str_bytes(speed, sizeof speed, rate), left);
    printf("\n");
}

/* What it keeps stands in the plan. */
static void print_rank(const struct latent_rank *r, int loading)
{
    char part[32], whole[32], speed[32];

    printf("rank %-6" PRIu32 " %s on %s, %" PRIu32 " thread%s", r->rank, r->device, r->host,
           r->threads, r->threads == 1 ? "" : "s");
    if (loading)
        printf("; read %s of %s, %s/s", str_bytes(part, sizeof part, (double)r->load_done_bytes),
               str_bytes(whole, sizeof whole, (double)r->load_total_bytes),
               str_bytes(speed, sizeof speed, (double)r->load_rate));
    if (loading && load_left(r) >= 0)
        printf(", %.0f s left", load_left(r));
    if (!loading && r->steps)
        printf("; computes %.2f ms a step, %.2f ms in sums", (double)r->recent_compute_us * 1e-3,
               (double)r->recent_sum_us * 1e-3);
    printf("\n");
}

static void print_status(const struct latent_status *s)
{
    int loading = s->phase == LATENT_PHASE_LOADING;

    printf("phase       %s%s\n", latent_phase_name(s->phase), s->draining ? ", draining" : "");
    printf("health      %s%s%s\n", s->green ? "green" : "not green", *s->why ? ": " : "", s->why);
    printf("daemon      latentd %s, process %" PRIu32 ", up %" PRIu64 " s, ranks restarted %" PRIu32
           " times\n",
           s->version, s->pid, s->uptime_s, s->restarts);
    printf("model       %s%s%s\n", s->model, *s->model ? ", " : "", s->model_path);
    if (loading)
        print_loading(s);
    if (s->context)
        printf("context     %" PRIu64 " positions a request, %" PRIu32 " at once, %" PRIu32
               " rank%s, cache %s\n",
               s->context, s->parallel, s->ranks, s->ranks == 1 ? "" : "s", s->cache_type);
    printf("requests    %" PRIu32 " running, %" PRIu32 " waiting\n", s->running, s->waiting);
    if (s->pages_total)
        printf("pages       %" PRIu64 " of %" PRIu64 " in use, %" PRIu64 " kept for reuse (%s)\n",
               s->pages_used, s->pages_total, s->pages_cached, s->reuse);
    printf("tokens      %" PRIu64 " of prompts, %" PRIu64 " of them from the cache, %" PRIu64
           " produced\n",
           s->prompt_tokens, s->cached_tokens, s->produced_tokens);
    printf("journal     %s\n", s->journal_ok ? "ok" : "cannot be written");
    for (size_t i = 0; i < s->n_rank_list; i++)
        print_rank(&s->rank_list[i], loading);
    if (*s->plan)
        printf("%s", s->plan);
}

static enum err_code status(struct remote *r, const struct options *o, struct err *e)
{
    struct latent_status s;
    struct latent_error le;

    if (latent_status(r->c, &s, &le) != LATENT_OK)
        return remote_err(&le, e);
    if (o->json)
        return print_status_json(&s, e);
    print_status(&s);
    return ERR_OK;
}

enum err_code run_status(const struct options *o, struct err *e)
{
    return ask(o, status, e);
}
