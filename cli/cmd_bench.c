/* SPDX-License-Identifier: MIT */
/* cli/cmd_bench.c - `latent bench`: prefill and decode speed, beside the roofline of this machine.
 *
 * A test is a number of tokens at a depth: that many others are in the cache before.  Each is
 * run several times and the median counts.  The tokens are drawn at random (the same for every
 * run, others for every sequence), so that the experts of a model are met as evenly as by text
 * of all kinds.  With -np N decode is measured twice: for one sequence, and for N together.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "cli/bench_devices.h"
#include "cli/json_out.h"
#include "cli/roofline.h"
#include "session/session.h"

struct bench_test {
    char name[24];
    int is_prefill;
    int64_t n, depth;
    int batch;       /* sequences, each of n tokens   */
    double *seconds; /* [runs]                        */
    double experts;  /* that a step met, in the mean of all layers; 0: not counted */
    double tps, roofline_tps;
};

struct bench {
    const struct options *o;
    struct session session;
    struct machine machine;
    struct model_work work;
    struct bench_test *tests;
    size_t n_tests;
    int32_t *tokens;          /* [parallel][longest] */
    int64_t longest;          /* tokens of a sequence, at most */
    struct batch_token *step; /* [parallel]              */
    float *logits;            /* [parallel][n_vocab]     */
    uint64_t *counts;         /* of the experts, before a step; NULL where none are counted */
    struct progress progress;
    int64_t done;
};

/* ---- The list of tests ---------------------------------------------------- */

static int64_t prompt_length(const struct bench_test *t)
{
    if (t->is_prefill)
        return t->depth + t->n;
    return t->depth > 0 ? t->depth : 1; /* something must stand before what is produced */
}

/* n 0: none, which leaves a kind of test out. */
static enum err_code add_test(struct bench *b, int is_prefill, int64_t n, int64_t depth, int batch,
                              struct err *e)
{
    struct bench_test *t = &b->tests[b->n_tests];
    int64_t length;

    if (n == 0)
        return ERR_OK;
    b->n_tests++;
    t->is_prefill = is_prefill;
    t->n = n;
    t->depth = depth;
    t->batch = batch;
    snprintf(t->name, sizeof t->name, "%s%" PRId64, is_prefill ? "pp" : "tg", n);
    t->seconds = calloc((size_t)b->o->repetitions, sizeof *t->seconds);
    if (!t->seconds)
        return err_set(e, ERR_NOMEM, "no memory for the list of tests");
    length = prompt_length(t) + (is_prefill ? 0 : n);
    TRY(session_check_length(&b->session, b->o, t->name, length, e));
    b->longest = length > b->longest ? length : b->longest;
    return ERR_OK;
}

static enum err_code list_tests(struct bench *b, struct err *e)
{
    const struct options *o = b->o;

    b->tests = calloc(o->depth.n * (o->pp.n + 2 * o->tg.n), sizeof *b->tests);
    if (!b->tests)
        return err_set(e, ERR_NOMEM, "no memory for the list of tests");
    for (size_t d = 0; d < o->depth.n; d++) {
        for (size_t i = 0; i < o->pp.n; i++)
            TRY(add_test(b, 1, o->pp.v[i], o->depth.v[d], 1, e));
        for (size_t i = 0; i < o->tg.n; i++) {
            TRY(add_test(b, 0, o->tg.v[i], o->depth.v[d], 1, e));
            if (o->parallel > 1)
                TRY(add_test(b, 0, o->tg.v[i], o->depth.v[d], (int)o->parallel, e));
        }
    }
    if (b->n_tests == 0)
        return err_set(e, ERR_USAGE, "bench: --pp and --tg leave nothing to measure");
    return ERR_OK;
}

/* Positions of all sequences, which do not share pages. */
static int64_t positions(const struct bench *b)
{
    return b->o->parallel * cache_pages(b->longest) * CACHE_PAGE;
}

static enum err_code check_parallel(const struct bench *b, struct err *e)
{
    const struct options *o = b->o;

    if (o->parallel > o->ubatch)
        return err_set(e, ERR_USAGE,
                       "-np %" PRId64 ": a step takes %" PRId64 " tokens; give a larger -ub",
                       o->parallel, o->ubatch);
    if (o->parallel > 1 && o->ctx_size > 0 && positions(b) > o->ctx_size)
        return err_set(e, ERR_FULL,
                       "-np %" PRId64 ": the sequences need %" PRId64
                       " positions together, and -c leaves room for %" PRId64
                       "; give fewer, or a larger -c",
                       o->parallel, positions(b), o->ctx_size);
    return ERR_OK;
}

static enum err_code draw_tokens(struct bench *b, struct err *e)
{
    int64_t n = b->o->parallel * b->longest;
    uint32_t state = 1;

    b->tokens = malloc((size_t)n * sizeof *b->tokens);
    if (!b->tokens)
        return err_set(e, ERR_NOMEM, "no memory for %" PRId64 " tokens", n);
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223; /* Numerical Recipes' generator */
        b->tokens[i] = (int32_t)(((uint64_t)state * (uint64_t)b->session.model->hp.n_vocab) >> 32);
    }
    return ERR_OK;
}

/* ---- Runs ----------------------------------------------------------------- */

static enum err_code take_buffers(struct bench *b, struct err *e)
{
    const struct hparams *hp = &b->session.model->hp;
    size_t n = (size_t)b->o->parallel;

    b->step = calloc(n, sizeof *b->step);
    b->logits = calloc(n, (size_t)hp->n_vocab * sizeof *b->logits);
    if (engine_expert_counts(b->session.engine))
        b->counts = calloc((size_t)hp->n_layers * (size_t)hp->n_experts, sizeof *b->counts);
    if (!b->step || !b->logits || (engine_expert_counts(b->session.engine) && !b->counts))
        return err_set(e, ERR_NOMEM, "no memory for a step of %zu tokens", n);
    return ERR_OK;
}

/* How many experts of all layers the counts of a step name, which become those of the next. */
static int64_t experts_met(struct bench *b)
{
    const struct hparams *hp = &b->session.model->hp;
    const uint64_t *now = engine_expert_counts(b->session.engine);
    int64_t met = 0;

    for (int64_t i = 0; b->counts && i < (int64_t)hp->n_layers * hp->n_experts; i++) {
        met += now[i] != b->counts[i];
        b->counts[i] = now[i];
    }
    return met;
}

static void drop_logits(void *arg, int64_t pos, const float *logits)
{
    (void)arg;
    (void)pos;
    (void)logits;
}

static enum err_code feed(struct bench *b, int seq, int64_t at, int64_t n, enum engine_want want,
                          struct err *e)
{
    return engine_feed(b->session.engine, seq, b->tokens + seq * b->longest + at, n, want,
                       drop_logits, NULL, e);
}

/* The next token of every sequence. */
static enum err_code decode(struct bench *b, int n, int64_t at, struct err *e)
{
    struct batch batch = { .tokens = b->step, .n = n };

    for (int s = 0; s < n; s++)
        b->step[s] = (struct batch_token){ .id = b->tokens[s * b->longest + at],
                                           .seq = s,
                                           .want_logits = 1 };
    TRY(engine_step(b->session.engine, &batch, b->logits, e));
    for (int s = 0; s < n; s++)
        if (b->step[s].bad_layer)
            return err_set(e, ERR_NUMERIC,
                           "numeric_error: a sum is not a number or out of range; run with "
                           "--check-tensors to look for bad weights");
    return ERR_OK;
}

static enum err_code run_once(struct bench *b, struct bench_test *t, double *seconds, struct err *e)
{
    int64_t prompt = prompt_length(t), before = t->is_prefill ? t->depth : prompt, met = 0;
    int moe_layers = b->session.model->hp.n_layers - b->session.model->hp.n_dense;

    for (int s = 0; s < t->batch; s++) {
        engine_begin(b->session.engine, s, prompt);
        if (before > 0)
            TRY(feed(b, s, 0, before, ENGINE_NONE, e));
    }
    experts_met(b);
    double begin = clock_seconds();
    if (t->is_prefill)
        TRY(feed(b, 0, before, t->n, ENGINE_LAST, e));
    for (int64_t i = 0; !t->is_prefill && i < t->n; i++) {
        TRY(decode(b, t->batch, before + i, e));
        met += experts_met(b);
    }
    *seconds = clock_seconds() - begin;
    if (!t->is_prefill && moe_layers > 0)
        t->experts = (double)met / (double)(t->n * moe_layers);
    return ERR_OK;
}

static int compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, int64_t n)
{
    qsort(v, (size_t)n, sizeof *v, compare_seconds);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void set_roofline(const struct bench *b, struct bench_test *t)
{
    struct engine *engine = b->session.engine;
    double seconds;

    if (b->machine.read_bytes_per_s <= 0)
        return; /* it could not be measured */
    if (t->is_prefill) {
        seconds = roofline_prefill_s(&b->machine, &b->work, t->n, b->o->ubatch);
    } else {
        const struct engine_totals *all = engine_totals(engine);
        double per_position = (double)all->cache / (double)engine_memory_used(engine)->n_context;
        double positions = (double)prompt_length(t) + (double)t->n / 2;
        double weights = (double)all->active;
        if (t->experts > 0) /* of which all->active has those of one token */
            weights += (t->experts - b->work.n_experts_used) * b->work.expert_bytes;
        seconds = (double)t->n *
                  roofline_decode_s(&b->machine, weights, t->batch * positions * per_position);
    }
    t->roofline_tps = (double)(t->batch * t->n) / seconds;
}

static enum err_code run_tests(struct bench *b, struct err *e)
{
    int64_t runs = b->o->repetitions;
    struct bench_test warm_up = { .n = 2, .depth = 1, .batch = 1 };
    double seconds;

    if (b->longest >= 3)
        TRY(run_once(b, &warm_up, &seconds, e));
    progress_start(&b->progress, "measuring", runs * (int64_t)b->n_tests);
    for (size_t i = 0; i < b->n_tests; i++) {
        struct bench_test *t = &b->tests[i];
        for (int64_t r = 0; r < runs; r++) {
            TRY(run_once(b, t, &t->seconds[r], e));
            progress_update(&b->progress, ++b->done);
        }
        t->tps = (double)(t->batch * t->n) / median(t->seconds, runs);
        set_roofline(b, t);
    }
    progress_end(&b->progress);
    return ERR_OK;
}

/* ---- Results -------------------------------------------------------------- */

/* A test of several sequences beside the one before it, which is of one. */
static void print_ratio(const struct bench *b, const struct bench_test *t)
{
    printf("%s of %d at depth %" PRId64 ": %.2f x the tokens/s of one", t->name, t->batch, t->depth,
           t->tps / t[-1].tps);
    if (t->roofline_tps > 0)
        printf("; the bytes allow %.2f x", t->roofline_tps / t[-1].roofline_tps);
    if (t->experts > 0)
        printf(" (a step meets %.1f of %d experts in a layer)", t->experts, b->work.n_experts);
    printf("\n");
}

static void print_text(const struct bench *b)
{
    const struct engine *engine = b->session.engine;
    const struct engine_totals *all = engine_totals(engine);
    char weights[32], active[32];

    printf("machine   %s\n", b->machine.cpu);
    printf("          %d threads, %s: reads %.1f GB/s, %.0f int8 GOPS\n", all->n_threads,
           engine_isa(engine), b->machine.read_bytes_per_s / 1e9, b->machine.int8_ops_per_s / 1e9);
    printf("model     %s\n          %s of weights, %s read for each token\n%s", b->o->model,
           str_bytes(weights, sizeof weights, (double)all->weights),
           str_bytes(active, sizeof active, (double)all->active), all->n_ranks > 1 ? "" : "\n");
    if (all->n_ranks > 1)
        printf("ranks     %d; the busiest reads %s for a token, %.2f x the mean\n\n", all->n_ranks,
               str_bytes(active, sizeof active, (double)all->busiest_active),
               (double)all->busiest_active * all->n_ranks / (double)all->active);
    printf("%-10s %8s %6s %12s %14s %9s\n", "test", "depth", "batch", "tokens/s", "roofline",
           "fraction");
    for (size_t i = 0; i < b->n_tests; i++) {
        const struct bench_test *t = &b->tests[i];
        printf("%-10s %8" PRId64 " %6d %12.2f", t->name, t->depth, t->batch, t->tps);
        if (t->roofline_tps > 0)
            printf(" %14.2f %9.3f\n", t->roofline_tps, t->tps / t->roofline_tps);
        else
            printf(" %14s %9s\n", "-", "-");
    }
    for (size_t i = 0; i < b->n_tests; i++)
        if (b->tests[i].batch > 1)
            print_ratio(b, &b->tests[i]);
}

static json_t *json_results(const struct bench *b)
{
    json_t *all = json_array();

    for (size_t i = 0; i < b->n_tests; i++) {
        const struct bench_test *t = &b->tests[i];
        int known = t->roofline_tps > 0;
        json_array_append_new(
            all, json_pack("{s:s,s:I,s:i,s:f,s:o,s:o,s:o}", "test", t->name, "depth",
                           (json_int_t)t->depth, "batch", t->batch, "tps", t->tps, "roofline_tps",
                           known ? json_real(t->roofline_tps) : json_null(), "fraction",
                           known ? json_real(t->tps / t->roofline_tps) : json_null(), "experts_met",
                           t->experts > 0 ? json_real(t->experts) : json_null()));
    }
    return all;
}

static enum err_code print_json(const struct bench *b, struct err *e)
{
    const struct engine *engine = b->session.engine;
    json_t *machine =
        json_pack("{s:s,s:s,s:i,s:i,s:f,s:f}", "cpu", b->machine.cpu, "isa", engine_isa(engine),
                  "ranks", engine_totals(engine)->n_ranks, "threads",
                  engine_totals(engine)->n_threads, "read_bytes_per_s", b->machine.read_bytes_per_s,
                  "int8_ops_per_s", b->machine.int8_ops_per_s);
    json_t *root = json_pack("{s:o,s:o,s:o}", "model", json_text(b->o->model, strlen(b->o->model)),
                             "machine", machine, "results", json_results(b));
    return json_print(root, e);
}

/* ---- The command ---------------------------------------------------------- */

static enum err_code bench(struct bench *b, struct err *e)
{
    struct team team;

    TRY(session_open(&b->session, b->o, 0, e));
    TRY(list_tests(b, e));
    TRY(check_parallel(b, e));
    TRY(draw_tokens(b, e));
    team_init(&team, (int)b->o->threads * session_ranks(b->o));
    machine_measure(&b->machine, &team); /* before the weights take the memory */
    TRY(session_load(&b->session, b->o, positions(b), e));
    TRY(take_buffers(b, e));
    model_work_read(&b->work, b->session.model);
    enum err_code rc = run_tests(b, e);
    progress_end(&b->progress);
    TRY(rc);
    if (b->o->json)
        TRY(print_json(b, e));
    else
        print_text(b);
    return session_keep_record(&b->session, e);
}

enum err_code run_bench(const struct options *o, struct err *e)
{
    struct bench b = { .o = o };

    if (o->measure_devices && o->record_experts)
        return err_set(e, ERR_USAGE,
                       "--record-experts: bench --devices runs no model; give one of them");
    if (o->measure_devices)
        return bench_devices(o, e);
    enum err_code rc = bench(&b, e);

    for (size_t i = 0; i < b.n_tests; i++)
        free(b.tests[i].seconds);
    free(b.tests);
    free(b.tokens);
    free(b.step);
    free(b.logits);
    free(b.counts);
    session_close(&b.session);
    return rc;
}
