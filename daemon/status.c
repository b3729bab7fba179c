/* SPDX-License-Identifier: MIT */
/* daemon/status.c - see status.h and status_board.h. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/book.h"
#include "daemon/clock.h"
#include "daemon/journal.h"
#include "daemon/status_board.h"

enum { BUCKETS = 14, RECENT = 64, HEALTHY_MS = 30000 };

/* Upper ends in seconds; the last bucket has none. */
static const double bounds[BUCKETS - 1] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                            0.25,  0.5,    1,     2.5,  10,    60 };

struct histogram {
    int64_t count[BUCKETS];
    double sum;
};

struct status {
    pthread_mutex_t lock;
    struct status_view v; /* what does not come from elsewhere */
    struct requests *book;
    struct journal *journal;
    int64_t started_ms, last_step_ms;
    struct status_rank *ranks; /* [n_ranks] */
    int n_ranks;
    double load_began_s;
    struct link_plan plan;
    char last_fault[256];
    /* Earlier groups of ranks counted from 0 too. */
    struct scheduler_counts counts, before;
    struct histogram first_token, next_token, step, round, sum;
    double recent_us[RECENT];
    int n_recent;
};

const char *daemon_phase_name(enum daemon_phase p)
{
    static const char *const names[] = { "starting", "loading", "serving", "restarting",
                                         "stopping" };

    return names[p];
}

/* ---- Writing -------------------------------------------------------------- */

enum err_code status_create(struct status **out, const struct status_facts *f, struct err *e)
{
    struct status *s = calloc(1, sizeof *s);

    if (!s)
        return err_set(e, ERR_NOMEM, "no memory for the status");
    pthread_mutex_init(&s->lock, NULL);
    s->book = f->book;
    s->journal = f->journal;
    s->started_ms = clock_monotonic_ms();
    s->v.n_vocab = f->n_vocab;
    (void)snprintf(s->v.model_path, sizeof s->v.model_path, "%s", f->model_path);
    (void)snprintf(s->v.model_name, sizeof s->v.model_name, "%s", f->model_name);
    (void)snprintf(s->v.model_hash, sizeof s->v.model_hash, "%s", f->model_hash);
    (void)snprintf(s->v.reuse, sizeof s->v.reuse, "%s", f->reuse);
    *out = s;
    return ERR_OK;
}

void status_free(struct status **s)
{
    if (!*s)
        return;
    pthread_mutex_destroy(&(*s)->lock);
    free((*s)->ranks);
    link_plan_free(&(*s)->plan);
    free(*s);
    *s = NULL;
}

void status_set_phase(struct status *s, enum daemon_phase p)
{
    pthread_mutex_lock(&s->lock);
    if (s->v.phase != PHASE_STOPPING)
        s->v.phase = p;
    pthread_mutex_unlock(&s->lock);
}

static void add_counts(struct scheduler_counts *to, const struct scheduler_counts *c)
{
    to->prompt_tokens += c->prompt_tokens;
    to->cached_tokens += c->cached_tokens;
    to->produced_tokens += c->produced_tokens;
    to->preempted += c->preempted;
}

void status_note_restart(struct status *s, const char *why)
{
    pthread_mutex_lock(&s->lock);
    add_counts(&s->before, &s->counts);
    s->counts = (struct scheduler_counts){ 0 };
    s->v.restarts++;
    s->n_ranks = 0;
    if (s->v.phase != PHASE_STOPPING)
        s->v.phase = PHASE_RESTARTING;
    (void)snprintf(s->last_fault, sizeof s->last_fault, "%s", why);
    pthread_mutex_unlock(&s->lock);
}

void status_set_plan(struct status *s, struct link_plan *p)
{
    pthread_mutex_lock(&s->lock);
    link_plan_free(&s->plan);
    s->plan = *p;
    pthread_mutex_unlock(&s->lock);
    *p = (struct link_plan){ 0 };
}

/* What a rank says, beside what it said before. */
static void note_rank(struct status_rank *r, const struct link_rank *now, double load_s)
{
    const int64_t *old = r->is.figures, *new = now->figures;
    double steps = (double)(new[COMM_STEPS] - old[COMM_STEPS]);

    if (new[COMM_LOADED] != old[COMM_LOADED] && load_s > 0)
        r->load_rate = (double)new[COMM_LOADED] / load_s;
    if (steps > 0) {
        r->recent_step_us = (double)(new[COMM_COMPUTE_US] - old[COMM_COMPUTE_US]) / steps;
        r->recent_sum_us = (double)(new[COMM_SUM_US] - old[COMM_SUM_US]) / steps;
    }
    r->is = *now;
}

/* With the lock held.  The first look at a group. */
static enum err_code meet_ranks(struct status *s, int n, struct err *e)
{
    free(s->ranks);
    s->n_ranks = 0;
    s->ranks = calloc((size_t)n, sizeof *s->ranks);
    if (!s->ranks) {
        (void)err_set(e, ERR_NOMEM, "no memory for the status of %d ranks", n);
        return ERR_NOMEM;
    }
    s->n_ranks = n;
    s->load_began_s = clock_seconds();
    if (s->v.phase != PHASE_STOPPING)
        s->v.phase = PHASE_LOADING;
    return ERR_OK;
}

enum err_code status_note_ranks(struct status *s, const struct link_ranks *r, struct err *e)
{
    enum err_code rc = ERR_OK;
    int64_t done = 0, total = 0;

    pthread_mutex_lock(&s->lock);
    if (s->n_ranks != r->n)
        rc = meet_ranks(s, r->n, e);
    for (int i = 0; i < r->n && rc == ERR_OK; i++) {
        note_rank(&s->ranks[i], &r->v[i], clock_seconds() - s->load_began_s);
        done += r->v[i].figures[COMM_LOADED];
        total += r->v[i].figures[COMM_TO_LOAD];
    }
    s->v.load_done_bytes = done;
    s->v.load_total_bytes = total;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void status_note_ready(struct status *s, const struct link_ready *r)
{
    pthread_mutex_lock(&s->lock);
    if (s->v.phase != PHASE_STOPPING)
        s->v.phase = PHASE_SERVING;
    s->v.n_ranks = r->n_ranks;
    s->v.n_sequences = r->limits.n_sequences;
    s->v.max_batch = r->limits.max_batch;
    s->v.n_context = r->limits.n_context;
    (void)snprintf(s->v.kernel_set, sizeof s->v.kernel_set, "%s", r->kernel_set);
    (void)snprintf(s->v.cache_type, sizeof s->v.cache_type, "%s", r->cache_type);
    s->last_step_ms = clock_monotonic_ms();
    pthread_mutex_unlock(&s->lock);
}

void status_note_counts(struct status *s, const struct scheduler_counts *c)
{
    pthread_mutex_lock(&s->lock);
    s->counts = *c;
    pthread_mutex_unlock(&s->lock);
}

static void observe(struct histogram *h, double seconds)
{
    int i = 0;

    while (i < BUCKETS - 1 && seconds > bounds[i])
        i++;
    h->count[i]++;
    h->sum += seconds;
}

void status_note_step(struct status *s, int computed, double round_us, double step_us,
                      double sum_us)
{
    pthread_mutex_lock(&s->lock);
    s->last_step_ms = clock_monotonic_ms();
    if (computed) {
        observe(&s->round, 1e-6 * round_us);
        observe(&s->step, 1e-6 * step_us);
        observe(&s->sum, 1e-6 * sum_us);
        s->recent_us[s->n_recent++ % RECENT] = round_us;
    }
    pthread_mutex_unlock(&s->lock);
}

void status_note_first_token(struct status *s, double seconds)
{
    pthread_mutex_lock(&s->lock);
    observe(&s->first_token, seconds);
    pthread_mutex_unlock(&s->lock);
}

void status_note_next_token(struct status *s, double seconds)
{
    pthread_mutex_lock(&s->lock);
    observe(&s->next_token, seconds);
    pthread_mutex_unlock(&s->lock);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

double status_median_step_us(struct status *s)
{
    double v[RECENT];

    pthread_mutex_lock(&s->lock);
    int n = s->n_recent < RECENT ? s->n_recent : RECENT;
    memcpy(v, s->recent_us, (size_t)n * sizeof *v);
    pthread_mutex_unlock(&s->lock);
    qsort(v, (size_t)n, sizeof *v, compare_doubles);
    return n ? v[n / 2] : 0;
}

/* ---- Reading -------------------------------------------------------------- */

/* Green only if the ranks have shown lately that they work, and what they make can be kept. */
static void judge(struct status_view *v, const char *last_fault)
{
    v->healthy = 0;
    if (v->phase == PHASE_STOPPING)
        (void)snprintf(v->why, sizeof v->why, "the daemon is stopping");
    else if (v->phase == PHASE_RESTARTING)
        (void)snprintf(v->why, sizeof v->why, "the ranks are started again: %.200s", last_fault);
    else if (v->phase != PHASE_SERVING)
        (void)snprintf(v->why, sizeof v->why, "the model is being loaded, %.0f %%",
                       v->load_total_bytes
                           ? 100.0 * (double)v->load_done_bytes / (double)v->load_total_bytes
                           : 0.0);
    else if (!v->journal_ok)
        return; /* the journal has said why */
    else if (v->last_step_s < 0 || v->last_step_s * 1000 > HEALTHY_MS)
        (void)snprintf(v->why, sizeof v->why, "the last step ended %.0f s ago", v->last_step_s);
    else
        v->healthy = 1;
    if (v->healthy)
        v->why[0] = 0;
}

void status_plan(struct status *s, enum link_plan_text which, struct str *out)
{
    pthread_mutex_lock(&s->lock);
    if (s->plan.text[which].len)
        str_append(out, s->plan.text[which].data, s->plan.text[which].len);
    pthread_mutex_unlock(&s->lock);
}

int status_ranks(struct status *s, struct status_rank **out)
{
    pthread_mutex_lock(&s->lock);
    int n = s->n_ranks;
    *out = malloc(((size_t)n + 1) * sizeof **out);
    if (*out && n)
        memcpy(*out, s->ranks, (size_t)n * sizeof **out);
    pthread_mutex_unlock(&s->lock);
    return *out ? n : -1;
}

void status_read(struct status *s, struct status_view *out)
{
    struct requests_counts c;
    char fault[256];

    requests_count(s->book, &c);
    pthread_mutex_lock(&s->lock);
    struct scheduler_counts total = s->before;
    add_counts(&total, &s->counts);
    *out = s->v;
    out->last_step_s =
        s->last_step_ms ? 0.001 * (double)(clock_monotonic_ms() - s->last_step_ms) : -1;
    out->uptime_s = (clock_monotonic_ms() - s->started_ms) / 1000;
    out->pages_total = s->counts.pages_total;
    out->pages_used = s->counts.pages_used;
    out->pages_cached = s->counts.pages_cached;
    memcpy(fault, s->last_fault, sizeof fault);
    pthread_mutex_unlock(&s->lock);
    out->prompt_tokens = total.prompt_tokens;
    out->cached_tokens = total.cached_tokens;
    out->produced_tokens = total.produced_tokens;
    out->preempted = total.preempted;
    out->waiting = c.waiting;
    out->running = c.running;
    out->draining = c.draining;
    out->journal_ok = journal_ok(s->journal, out->why, sizeof out->why);
    judge(out, fault);
}

static void put_head(struct str *out, const char *type, const char *name, const char *help)
{
    str_printf(out, "# HELP latentd_%s %s\n# TYPE latentd_%s %s\n", name, help, name, type);
}

/* One metric of every rank: a figure in units of `unit`. */
static void put_rank_rows(struct str *out, const struct status_rank *ranks, int n, const char *name,
                          enum comm_figure f, double unit)
{
    for (int i = 0; i < n; i++) {
        str_printf(out, "latentd_%s{rank=\"%d\",host=\"", name, i);
        str_label(out, ranks[i].is.host, sizeof ranks[i].is.host);
        str_printf(out, "\"} %.15g\n", (double)ranks[i].is.figures[f] * unit);
    }
}

static void put_ranks(struct status *s, struct str *out)
{
    static const struct {
        const char *type, *name, *help;
        enum comm_figure figure;
        double unit;
    } rows[] = {
        {"gauge",    "rank_load_done_bytes",       "bytes of the model that the rank has read", COMM_LOADED,
         1                                                                                                        },
        { "gauge",   "rank_load_total_bytes",      "bytes of the model that it has to read",    COMM_TO_LOAD,
         1                                                                                                        },
        { "counter", "rank_steps_total",           "steps with tokens",                         COMM_STEPS,   1   },
        { "counter", "rank_compute_seconds_total", "time that the rank computed in them",
         COMM_COMPUTE_US,                                                                                     1e-6},
        { "counter", "rank_sum_seconds_total",
         "time in sums over ranks, waiting for others included",                                COMM_SUM_US,  1e-6},
    };
    struct status_rank *ranks;
    int n = status_ranks(s, &ranks);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_head(out, rows[i].type, rows[i].name, rows[i].help);
        put_rank_rows(out, ranks, n, rows[i].name, rows[i].figure, rows[i].unit);
    }
    free(ranks);
}

static void put_histogram(struct str *out, const char *name, const char *help,
                          const struct histogram *h)
{
    int64_t n = 0;

    put_head(out, "histogram", name, help);
    for (int i = 0; i < BUCKETS - 1; i++) {
        n += h->count[i];
        str_printf(out, "latentd_%s_bucket{le=\"%g\"} %" PRId64 "\n", name, bounds[i], n);
    }
    n += h->count[BUCKETS - 1];
    str_printf(out, "latentd_%s_bucket{le=\"+Inf\"} %" PRId64 "\n", name, n);
    str_printf(out, "latentd_%s_sum %.6f\nlatentd_%s_count %" PRId64 "\n", name, h->sum, name, n);
}

void status_metrics(struct status *s, struct str *out)
{
    struct status_view v;
    struct requests_counts c;

    status_read(s, &v);
    requests_count(s->book, &c);
#define X(TYPE, name, value, help)     \
    put_head(out, #TYPE, #name, help); \
    str_printf(out, "latentd_" #name " %lld\n", (long long)(value));
#include "daemon/metrics.def"
#undef X
    put_head(out, "counter", "requests_ended_total", "requests that ended, by reason");
    for (int i = REASON_STOP; i <= REASON_FAILED; i++)
        str_printf(out, "latentd_requests_ended_total{reason=\"%s\"} %" PRId64 "\n",
                   reason_name((enum reason)i), c.by_reason[i]);
    pthread_mutex_lock(&s->lock);
    struct status copy = *s;
    pthread_mutex_unlock(&s->lock);
    put_histogram(out, "first_token_seconds", "from acceptance to the first token",
                  &copy.first_token);
    put_histogram(out, "token_seconds", "from one token of a request to the next",
                  &copy.next_token);
    put_histogram(out, "step_seconds", "a step on rank 0", &copy.step);
    put_histogram(out, "step_round_seconds", "a step as the coordinator sees it", &copy.round);
    put_histogram(out, "step_sum_seconds", "of a step, the sums over ranks on rank 0", &copy.sum);
    put_ranks(s, out);
    status_plan(s, LINK_PLAN_METRICS, out);
}
