/* SPDX-License-Identifier: MIT */
/* daemon/driver_turn.c - a turn of the driver: from requests to a step, from its result to the
 * book and the journal.
 *
 * Reading order: records; requests into the scheduler; what came of a step; one step.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "daemon/clock.h"
#include "daemon/driver_parts.h"

enum {
    HANG_MS = 120000, /* a step that takes longer than this, and than HANG_STEPS median ones */
    HANG_STEPS = 20,
};

/* ---- Records -------------------------------------------------------------- */

static enum err_code need_entry(struct driver *d, struct err *e)
{
    if (d->entry)
        return ERR_OK;
    d->entry = journal_entry_new(clock_unix_ms());
    return d->entry ? ERR_OK : err_set(e, ERR_NOMEM, "no memory for an entry of the journal");
}

void driver_push_entry(struct driver *d)
{
    if (!d->entry)
        return;
    if (d->entry->n_tokens || d->entry->n_ends)
        journal_push(d->opt.journal, d->entry);
    else
        journal_entry_free(d->entry);
    d->entry = NULL;
}

static enum err_code end_request(struct driver *d, struct request *r, enum reason reason,
                                 const char *message, struct err *e)
{
    TRY(need_entry(d, e));
    return book_add_end(d->opt.book, r, reason, message, d->entry, e);
}

/* ---- Requests into the scheduler ------------------------------------------ */

struct taking {
    struct driver *d;
    enum err_code rc;
    struct err *e;
};

/* Under the book's lock. */
static int add_request(void *arg, struct request *r)
{
    struct taking *t = arg;
    int64_t n = r->spec.n_prompt + r->n_tokens;
    int32_t *tokens = malloc((size_t)n * sizeof *tokens);

    if (!tokens) {
        t->rc = err_set(t->e, ERR_NOMEM, "no memory for a request of %" PRId64 " tokens", n);
        return 1;
    }
    memcpy(tokens, r->spec.prompt, (size_t)r->spec.n_prompt * sizeof *tokens);
    if (r->n_tokens)
        memcpy(tokens + r->spec.n_prompt, r->tokens, (size_t)r->n_tokens * sizeof *tokens);
    struct scheduler_request x = { .number = r->number,
                                   .client = r->view.client,
                                   .priority = r->spec.priority,
                                   .tokens = tokens,
                                   .n_tokens = n,
                                   .n_prompt = r->spec.n_prompt,
                                   .max_tokens = r->spec.max_tokens };
    t->rc = scheduler_add(t->d->scheduler, &x, t->e);
    free(tokens);
    return t->rc != ERR_OK;
}

enum err_code driver_take_requests(struct driver *d, int all, struct err *e)
{
    struct taking t = { .d = d, .e = e };

    (void)book_take(d->opt.book, all, add_request, &t);
    return t.rc;
}

/* Under the book's lock: only notes it. */
static int note_found(void *arg, struct request *r)
{
    struct driver *d = arg;

    if (array_grow(&d->found, &d->cap_found, d->n_found, sizeof *d->found))
        return 1; /* the rest comes next time */
    d->found[d->n_found++] = r;
    return 0;
}

int64_t driver_until(int64_t next_ms, int64_t most)
{
    int64_t left = next_ms ? next_ms - clock_monotonic_ms() : most;

    return left < 0 ? 0 : left < most ? left : most;
}

enum err_code driver_end_wanted(struct driver *d, int64_t *next_ms, struct err *e)
{
    d->n_found = 0;
    *next_ms = book_take_ends(d->opt.book, clock_monotonic_ms(), note_found, d);
    for (int i = 0; i < d->n_found; i++) {
        struct request *r = d->found[i];
        if (d->scheduler)
            scheduler_remove(d->scheduler, r->number);
        TRY(end_request(d, r, r->cancel_wanted ? REASON_CANCELLED : REASON_DEADLINE, NULL, e));
    }
    return ERR_OK;
}

/* ---- What came of it ------------------------------------------------------ */

static void time_token(struct driver *d, struct request *r)
{
    double now = clock_seconds();

    if (r->last_token_s > 0)
        status_note_next_token(d->opt.status, now - r->last_token_s);
    else if (r->n_tokens == 1)
        status_note_first_token(d->opt.status,
                                0.001 * (double)(clock_monotonic_ms() - r->accepted_at_ms));
    r->last_token_s = now;
}

static enum err_code take_ends(struct driver *d, const struct scheduler_output *out, struct err *e)
{
    for (int i = 0; i < out->n_ends; i++) {
        const struct scheduler_end *end = &out->ends[i];
        struct request *r = book_find_live(d->opt.book, end->number);
        char where[128] = "";
        if (!r)
            continue;
        if (end->reason == REASON_FAILED)
            (void)snprintf(where, sizeof where,
                           "its prompt has %" PRId64 " tokens, and the context holds %" PRId64
                           " since the restart",
                           r->spec.n_prompt, d->ready.limits.n_context);
        else if (end->reason == REASON_NUMERIC_ERROR && end->bad_layer > d->opt.hp->n_layers + 1)
            (void)snprintf(where, sizeof where,
                           "no token could be chosen after position %" PRId64
                           ": bias and penalties forbid them all, or make one infinite",
                           end->bad_pos);
        else if (end->reason == REASON_NUMERIC_ERROR && end->bad_layer > d->opt.hp->n_layers)
            (void)snprintf(where, sizeof where, "the output at position %" PRId64, end->bad_pos);
        else if (end->reason == REASON_NUMERIC_ERROR)
            (void)snprintf(where, sizeof where,
                           "a sum in layer %d is not a number or out of range at position %" PRId64,
                           end->bad_layer - 1, end->bad_pos);
        TRY(end_request(d, r, end->reason, where, e));
    }
    return ERR_OK;
}

static enum err_code take_tokens(struct driver *d, const struct scheduler_output *out,
                                 struct err *e)
{
    for (int i = 0; i < out->n_tokens; i++) {
        const struct scheduler_token *t = &out->tokens[i];
        struct request *r = book_find_live(d->opt.book, t->number);
        enum reason ends;
        if (!r)
            continue;
        TRY(need_entry(d, e));
        TRY(book_add_token(d->opt.book, r, t->token, t->full, d->entry, &ends, e));
        time_token(d, r);
        if (ends == REASON_NONE)
            continue;
        scheduler_remove(d->scheduler, t->number);
        TRY(end_request(d, r, ends, NULL, e));
    }
    return ERR_OK;
}

/* ---- One step ------------------------------------------------------------- */

static enum err_code send_begins(struct driver *d, const struct scheduler_output *out,
                                 struct err *e)
{
    for (int i = 0; i < out->n_begins; i++) {
        const struct scheduler_begin *b = &out->begins[i];
        struct request *r = book_find_live(d->opt.book, b->number);
        if (!r)
            return err_set(e, ERR_FORMAT, "request %" PRId64 " is scheduled and unknown",
                           b->number);
        struct link_begin begin = { .seq = b->seq,
                                    .sampling = r->spec.sampling,
                                    .history = (int32_t *)b->tokens,
                                    .n_history = b->n_tokens };
        str_clear(&d->out);
        TRY(link_put_begin(&d->out, &begin, e));
        TRY(link_send(d->fd, LINK_BEGIN, d->out.data, d->out.len, e));
        book_set_running(d->opt.book, r, 1, b->n_cached);
    }
    return ERR_OK;
}

/* Those that gave their place up wait again, for clients too. */
static void show_paused(struct driver *d, const struct scheduler_output *out)
{
    for (int i = 0; i < out->n_paused; i++) {
        struct request *r = book_find_live(d->opt.book, out->paused[i]);
        if (r)
            book_set_running(d->opt.book, r, 0, 0);
    }
}

/* Where steps take longer than HANG_MS allows for: how long one is waited for. */
static int64_t slow_step_ms(const struct driver *d)
{
    return (int64_t)(0.001 * HANG_STEPS * status_median_step_us(d->opt.status));
}

enum err_code driver_await_frame(struct driver *d, struct link_frame *f, int64_t patience_ms,
                                 struct err *e)
{
    int64_t begin = clock_monotonic_ms(), next_ms;

    for (;;) {
        if (driver_is_stopping(d))
            return ERR_CANCELLED;
        TRY(driver_end_wanted(d, &next_ms, e));
        driver_push_entry(d);
        int64_t left = begin + patience_ms - clock_monotonic_ms();
        if (left <= 0 && slow_step_ms(d) > patience_ms) {
            patience_ms = slow_step_ms(d);
            continue;
        }
        if (left <= 0)
            return err_set(e, ERR_PEER, "ranks: nothing heard for %" PRId64 " s",
                           patience_ms / 1000);
        if (!driver_wait(d, d->fd, driver_until(next_ms, left)))
            continue;
        TRY(link_recv(d->fd, f, e));
        if (f->kind != LINK_FAULT)
            return ERR_OK;
        d->faulted = 1;
        err_set(e, ERR_PEER, "%.*s", (int)(f->n < 300 ? f->n : 300), (const char *)f->payload);
        free(f->payload);
        return ERR_PEER;
    }
}

enum err_code driver_take_ranks(struct driver *d, struct link_frame *f, struct err *e)
{
    struct link_ranks r;
    enum err_code rc = link_get_ranks(&r, f, e);

    free(f->payload);
    f->payload = NULL;
    TRY(rc);
    rc = status_note_ranks(d->opt.status, &r, e);
    link_ranks_free(&r);
    return rc;
}

enum err_code driver_take_plan(struct driver *d, struct link_frame *f, struct err *e)
{
    struct link_plan p;
    enum err_code rc = link_get_plan(&p, f, e);

    free(f->payload);
    f->payload = NULL;
    TRY(rc);
    status_set_plan(d->opt.status, &p);
    return ERR_OK;
}

static enum err_code send_step(struct driver *d, const struct step *step, struct err *e)
{
    if (d->n_sent == 0)
        d->round_s = clock_seconds();
    d->n_sent++;
    str_clear(&d->out);
    TRY(step_encode(step, &d->out, e));
    return link_send(d->fd, LINK_STEP, d->out.data, d->out.len, e);
}

/* The result of the first step that was sent and not answered. */
static enum err_code await_result(struct driver *d, struct link_result *r, struct err *e)
{
    struct link_frame f = { 0 };

    TRY(driver_await_frame(d, &f, HANG_MS, e));
    if (f.kind == LINK_RANKS) {
        TRY(driver_take_ranks(d, &f, e));
        TRY(driver_await_frame(d, &f, HANG_MS, e));
    }
    enum err_code rc = link_get_result(r, &f, &d->ready.limits, e);
    free(f.payload);
    d->n_sent--;
    return rc;
}

/* A round is from one result to the next, or from where the ranks had nothing to do. */
static void note_step(struct driver *d, const struct link_result *r)
{
    double now = clock_seconds();

    status_note_step(d->opt.status, 1, 1e6 * (now - d->round_s), r->step_us, r->sum_us);
    d->round_s = now;
}

static void show_counts(struct driver *d)
{
    struct scheduler_counts c;

    scheduler_count(d->scheduler, &c);
    status_note_counts(d->opt.status, &c);
}

/* Decides on a step, with everything that may change between two. */
static enum err_code plan_step(struct driver *d, struct err *e)
{
    struct scheduler_output out;

    TRY(scheduler_plan(d->scheduler, ++d->step_id, &out, e));
    TRY(take_ends(d, &out, e));
    TRY(send_begins(d, &out, e));
    show_paused(d, &out);
    return out.step ? send_step(d, out.step, e) : ERR_OK;
}

/* Where there is nothing to decide, the ranks have their next step before they need it. */
static enum err_code plan_ahead(struct driver *d, struct err *e)
{
    struct scheduler_output out;

    TRY(scheduler_ahead(d->scheduler, d->step_id + 1, &out, e));
    if (!out.step)
        return ERR_OK;
    d->step_id++;
    return send_step(d, out.step, e);
}

enum err_code driver_turn(struct driver *d, int *idle, struct err *e)
{
    struct scheduler_output out;
    struct link_result r = { 0 };

    if (d->n_sent == 0)
        TRY(plan_step(d, e));
    show_counts(d);
    driver_push_entry(d);
    TRY(plan_ahead(d, e));
    *idle = d->n_sent == 0;
    if (*idle)
        return ERR_OK;
    TRY(await_result(d, &r, e));
    note_step(d, &r);
    enum err_code rc = scheduler_result(d->scheduler, &r, &out, e);
    link_result_free(&r);
    if (rc == ERR_OK)
        rc = take_tokens(d, &out, e);
    return rc == ERR_OK ? take_ends(d, &out, e) : rc;
}

enum err_code driver_probe(struct driver *d, struct err *e)
{
    struct step s = { .id = ++d->step_id };
    struct link_result r = { 0 };

    TRY(send_step(d, &s, e));
    TRY(await_result(d, &r, e));
    status_note_step(d->opt.status, 0, 0, r.step_us, r.sum_us);
    link_result_free(&r);
    return ERR_OK;
}
