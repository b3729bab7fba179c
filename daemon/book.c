/* SPDX-License-Identifier: MIT */
/* daemon/book.c - the book as the driver and the journal see it; see book.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/book_parts.h"
#include "daemon/clock.h"

void book_news(struct requests *b)
{
    if (b->on_news)
        b->on_news(b->on_news_arg);
}

/* ---- The driver takes ----------------------------------------------------- */

static int is_live(const struct request *r)
{
    return r->view.state != REQUEST_RECORDING && r->ending == REASON_NONE;
}

int book_take(struct requests *b, int all, book_fn *fn, void *arg)
{
    int stop = 0;

    pthread_mutex_lock(&b->lock);
    for (struct request *r = b->live.head.next; r != &b->live.head && !stop; r = r->next) {
        if (!is_live(r) || (r->taken && !all))
            continue;
        r->taken = 1;
        stop = fn(arg, r);
    }
    pthread_mutex_unlock(&b->lock);
    return stop;
}

int64_t book_take_ends(struct requests *b, int64_t now_ms, book_fn *fn, void *arg)
{
    int64_t next = 0;
    int stop = 0;

    pthread_mutex_lock(&b->lock);
    for (struct request *r = b->live.head.next, *after; r != &b->live.head && !stop; r = after) {
        after = r->next;
        if (!is_live(r))
            continue;
        if (r->cancel_wanted || (r->deadline_ms && now_ms >= r->deadline_ms))
            stop = fn(arg, r);
        else if (r->deadline_ms && (!next || r->deadline_ms < next))
            next = r->deadline_ms;
    }
    pthread_mutex_unlock(&b->lock);
    return next;
}

void book_set_running(struct requests *b, struct request *r, int running, int64_t n_cached)
{
    pthread_mutex_lock(&b->lock);
    r->view.state = running ? REQUEST_RUNNING : REQUEST_WAITING;
    if (running && r->n_tokens == 0) {
        r->n_cached = n_cached;
        r->view.n_cached = n_cached;
    }
    pthread_mutex_unlock(&b->lock);
}

struct request *book_find_live(struct requests *b, int64_t number)
{
    pthread_mutex_lock(&b->lock);
    struct request *r = book_find(b, number);
    if (r && r->view.state == REQUEST_ENDED)
        r = NULL;
    pthread_mutex_unlock(&b->lock);
    return r;
}

void book_all_wait(struct requests *b)
{
    pthread_mutex_lock(&b->lock);
    for (struct request *r = b->live.head.next; r != &b->live.head; r = r->next)
        if (r->view.state == REQUEST_RUNNING)
            r->view.state = REQUEST_WAITING;
    pthread_mutex_unlock(&b->lock);
}

void book_note_maker(struct requests *b, const char *maker)
{
    int n = 0;

    pthread_mutex_lock(&b->lock);
    int other = strcmp(b->maker, maker) != 0;
    for (const struct request *r = b->live.head.next; r != &b->live.head; r = r->next)
        n += r->n_tokens > 0;
    if (other && n > 0)
        log_warn(
            "%d requests began with '%s' and go on with '%s': what follows may differ from what "
            "would have followed",
            n, b->maker, maker);
    if (other)
        journal_set_meta(b->opt.journal, "maker", maker);
    (void)snprintf(b->maker, sizeof b->maker, "%s", maker);
    pthread_mutex_unlock(&b->lock);
}

/* ---- The driver tells ----------------------------------------------------- */

static int ends_text(const struct requests *b, const struct request *r, int32_t token)
{
    if (r->spec.ignore_eos)
        return 0;
    for (int i = 0; i < r->spec.n_end_ids; i++)
        if (r->spec.end_ids[i] == token)
            return 1;
    return tokenizer_is_end(b->opt.tokenizer, token);
}

enum err_code book_add_token(struct requests *b, struct request *r, int32_t token, int full,
                             struct journal_entry *x, enum reason *ends, struct err *e)
{
    enum err_code rc = ERR_OK;
    int stopped = 0;

    *ends = REASON_NONE;
    pthread_mutex_lock(&b->lock);
    if (r->ending == REASON_NONE) {
        rc = request_push(r, b, token, &stopped, e);
        if (rc == ERR_OK && journal_entry_add_token(x, r->number, r->n_tokens - 1, token))
            rc = err_set(e, ERR_NOMEM, "no memory for the tokens of a step");
        if (!r->first_token_ms)
            r->first_token_ms = x->ms;
        *ends = stopped || ends_text(b, r, token) ? REASON_STOP
                : full                            ? REASON_LENGTH
                                                  : REASON_NONE;
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

/* With the lock held. */
static enum err_code add_end(struct request *r, enum reason reason, const char *message,
                             struct journal_entry *x, struct err *e)
{
    struct journal_end end = { .number = r->number,
                               .reason = reason,
                               .n_cached = r->n_cached,
                               .first_token_ms = r->first_token_ms,
                               .n_tokens = r->n_tokens };

    if (r->ending != REASON_NONE)
        return ERR_OK;
    end.tokens = malloc(((size_t)r->n_tokens + 1) * sizeof *end.tokens);
    if (!end.tokens)
        return err_set(e, ERR_NOMEM, "no memory for the end of a request");
    if (r->n_tokens)
        memcpy(end.tokens, r->tokens, (size_t)r->n_tokens * sizeof *end.tokens);
    (void)snprintf(end.message, sizeof end.message, "%s", message ? message : "");
    if (journal_entry_add_end(x, &end)) {
        free(end.tokens);
        return err_set(e, ERR_NOMEM, "no memory for the end of a request");
    }
    r->ending = reason;
    return ERR_OK;
}

enum err_code book_add_end(struct requests *b, struct request *r, enum reason reason,
                           const char *message, struct journal_entry *x, struct err *e)
{
    pthread_mutex_lock(&b->lock);
    enum err_code rc = add_end(r, reason, message, x, e);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

/* ---- The journal says ----------------------------------------------------- */

static void accept_settled(struct requests *b, const struct journal_entry *x)
{
    struct request *r = book_find(b, x->number);

    if (!r)
        return;
    if (x->refused) {
        b->counts.refused++;
        book_drop(b, r, 1);
        return;
    }
    b->counts.accepted++;
    r->view.state = REQUEST_WAITING;
    log_info("request %s: accepted, %" PRId64 " prompt tokens, client '%s'", r->view.id,
             r->view.n_prompt, r->view.client);
    book_wake(&r->waiters, WAKE_ALL);
    book_news(b);
}

static void end_settled(struct requests *b, const struct journal_end *end, int64_t ms)
{
    struct request *r = book_find(b, end->number);

    if (!r)
        return;
    request_finish_text(r);
    r->view.state = REQUEST_ENDED;
    r->view.reason = end->reason;
    r->view.ended_ms = ms;
    r->view.n_produced = r->n_tokens;
    r->view.n_cached = end->n_cached;
    r->view.first_token_ms = end->first_token_ms;
    (void)snprintf(r->view.message, sizeof r->view.message, "%s", end->message);
    b->counts.by_reason[end->reason]++;
    log_info("request %s: %s%s%s, %" PRId64 " tokens after %" PRId64 " ms", r->view.id,
             reason_name(end->reason), *end->message ? ": " : "", end->message, r->view.n_produced,
             ms - r->view.accepted_ms);
    list_remove(&b->live, r);
    list_add(&b->ended, r);
    book_wake(&r->waiters, WAKE_ALL);
}

static void step_settled(struct requests *b, const struct journal_entry *x)
{
    for (int i = 0; i < x->n_tokens && !x->shown; i++) {
        struct request *r = book_find(b, x->tokens[i].number);
        if (!r)
            continue;
        r->view.n_produced++;
        if (!r->view.first_token_ms)
            r->view.first_token_ms = x->ms;
        book_wake(&r->waiters, r->view.n_produced);
    }
    for (int i = 0; i < x->n_ends; i++)
        end_settled(b, &x->ends[i], x->ms);
}

void book_settled(void *book, struct journal_entry *list)
{
    struct requests *b = book;

    pthread_mutex_lock(&b->lock);
    b->journal_ok = journal_ok(b->opt.journal, NULL, 0); /* two threads come here */
    for (struct journal_entry *x = list; x; x = x->next) {
        if (x->spec.len)
            accept_settled(b, x);
        else
            step_settled(b, x);
    }
    book_forget_cold(b);
    if (!list)
        book_news(b);
    pthread_mutex_unlock(&b->lock);
}

/* ---- Beginning ------------------------------------------------------------ */

struct take_up {
    struct requests *b;
    struct journal_entry *ends; /* of those that cannot go on */
    const char *why;
    struct err *e;
};

/* The calendar says how long the daemon was away.  Where it has been set back since, no request
 * gets more time than it asked for. */
static void set_times(struct request *r, int64_t accepted_ms)
{
    int64_t away = clock_unix_ms() - accepted_ms, ms = r->spec.deadline_ms;

    r->view.accepted_ms = accepted_ms;
    r->accepted_at_ms = clock_monotonic_ms() - (away > 0 ? away : 0);
    r->deadline_ms = ms == 0 ? 0 : r->accepted_at_ms + ms > 0 ? r->accepted_at_ms + ms : 1;
}

/* The ranks would end at what no model of this vocabulary can have been asked for. */
static enum err_code check_row(const struct requests *b, const struct request *r,
                               const struct journal_row *row, struct err *e)
{
    TRY(request_spec_check(&r->spec, b->opt.n_vocab, e));
    for (int64_t i = 0; i < row->n_tokens; i++)
        if (row->tokens[i] < 0 || row->tokens[i] >= b->opt.n_vocab)
            return err_set(e, ERR_FORMAT, "its token %" PRId64 " is %d; the model has %d", i,
                           row->tokens[i], b->opt.n_vocab);
    return ERR_OK;
}

/* One row is damaged: the others are not to blame, and its id may be used again.  Returns 0, or 1:
 * no memory. */
static int leave_out(struct take_up *t, const struct journal_row *row)
{
    struct journal_end end = { .number = row->number, .reason = REASON_FAILED };

    log_warn("request %s: %s; it is left out", row->id, t->e->msg);
    (void)snprintf(end.message, sizeof end.message, "%.200s", t->e->msg);
    return journal_entry_add_end(t->ends, &end) != 0;
}

/* One live request of the journal. */
static int take_up_row(void *arg, const struct journal_row *row)
{
    struct take_up *t = arg;
    struct requests *b = t->b;
    struct request *r = NULL;
    enum err_code rc = request_create(&r, b, row->id, row->spec, row->n_spec, t->e);
    int stopped;

    if (rc == ERR_OK && !t->why)
        rc = check_row(b, r, row, t->e);
    if (rc != ERR_OK) {
        request_free(r);
        return rc == ERR_NOMEM || leave_out(t, row);
    }
    r->number = row->number;
    r->foreign = t->why != NULL;
    for (int64_t i = 0; i < row->n_tokens && rc == ERR_OK; i++)
        rc = request_push(r, b, row->tokens[i], &stopped, t->e);
    r->view.state = REQUEST_WAITING;
    set_times(r, row->accepted_ms);
    r->view.n_produced = r->n_tokens;
    if (rc != ERR_OK || book_keep(b, r, 1)) {
        request_free(r);
        return 1;
    }
    log_info("request %s: taken up with %" PRId64 " of its tokens", r->view.id, r->n_tokens);
    return t->why && add_end(r, REASON_FAILED, t->why, t->ends, t->e) != ERR_OK;
}

static enum err_code take_up(struct requests *b, struct journal_entry *ends, struct err *e)
{
    struct take_up t = { .b = b, .ends = ends, .e = e };
    char hash[80];

    journal_get_meta(b->opt.journal, "model_hash", hash, sizeof hash);
    if (*hash && strcmp(hash, b->opt.model_hash) != 0) {
        t.why = book_other_model;
        TRY(journal_forget_ended(b->opt.journal, e));
    }
    journal_get_meta(b->opt.journal, "maker", b->maker, sizeof b->maker);
    TRY(journal_read_live(b->opt.journal, take_up_row, &t, e));
    b->next_number = journal_next_number(b->opt.journal);
    journal_set_meta(b->opt.journal, "model_hash", b->opt.model_hash);
    return ERR_OK;
}

enum err_code requests_create(struct requests **out, const struct requests_options *o,
                              struct err *e)
{
    struct requests *b = calloc(1, sizeof *b);
    struct journal_entry *ends = journal_entry_new(clock_unix_ms());
    enum err_code rc;

    if (!b || !ends) {
        free(b);
        journal_entry_free(ends);
        return err_set(e, ERR_NOMEM, "no memory for the book of requests");
    }
    b->opt = *o;
    b->n_context = o->n_context;
    b->journal_ok = 1;
    b->live.head.next = b->live.head.before = &b->live.head;
    b->ended.head.next = b->ended.head.before = &b->ended.head;
    pthread_mutex_init(&b->lock, NULL);
    rc = take_up(b, ends, e);
    if (rc != ERR_OK) {
        journal_entry_free(ends);
        requests_free(&b);
        return rc;
    }
    if (ends->n_ends)
        journal_push(o->journal, ends);
    else
        journal_entry_free(ends);
    rc = journal_start(o->journal, book_settled, b, e);
    if (rc != ERR_OK)
        requests_free(&b);
    *out = b;
    return rc;
}

void requests_free(struct requests **b)
{
    if (!*b)
        return;
    while ((*b)->live.n)
        book_drop(*b, (*b)->live.head.next, 1);
    while ((*b)->ended.n)
        book_drop(*b, (*b)->ended.head.next, 0);
    pthread_mutex_destroy(&(*b)->lock);
    free(*b);
    *b = NULL;
}

void requests_on_news(struct requests *b, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&b->lock);
    b->on_news = fn;
    b->on_news_arg = arg;
    pthread_mutex_unlock(&b->lock);
}

void requests_set_context(struct requests *b, int64_t n_context)
{
    pthread_mutex_lock(&b->lock);
    if (n_context < b->n_context)
        b->n_context = n_context;
    pthread_mutex_unlock(&b->lock);
}

void requests_count(struct requests *b, struct requests_counts *out)
{
    pthread_mutex_lock(&b->lock);
    *out = b->counts;
    out->waiting = out->running = 0;
    out->draining = b->draining;
    for (const struct request *r = b->live.head.next; r != &b->live.head; r = r->next)
        *(r->view.state == REQUEST_RUNNING ? &out->running : &out->waiting) += 1;
    pthread_mutex_unlock(&b->lock);
}
