/* SPDX-License-Identifier: MIT */
/* daemon/requests.c - the book as clients see it; see requests.h. */
#include "daemon/requests.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/book_parts.h"
#include "daemon/clock.h"

const char *answer_name(enum answer a)
{
    static const char *const names[] = {
#define X(NAME, name, text) name,
#include "daemon/answers.def"
#undef X
    };
    return names[a];
}

const char *reason_name(enum reason r)
{
    static const char *const names[] = {
#define X(NAME, name, text) name,
#include "daemon/reasons.def"
#undef X
    };
    return names[r];
}

/* ---- Waiting -------------------------------------------------------------- */

static void wait_on(struct requests_waiter **list, struct requests_waiter *w)
{
    if (w->at)
        return; /* it waits already */
    w->next = *list;
    w->at = list;
    if (*list)
        (*list)->at = &w->next;
    *list = w;
}

void requests_forget(struct requests *b, struct requests_waiter *w)
{
    pthread_mutex_lock(&b->lock);
    if (w->at) {
        *w->at = w->next;
        if (w->next)
            w->next->at = w->at;
    }
    w->next = NULL;
    w->at = NULL;
    pthread_mutex_unlock(&b->lock);
}

/* ---- Views ---------------------------------------------------------------- */

/* Requests that wait and go before r, by priority and age; fairness may change that. */
static int64_t queue_place(const struct requests *b, const struct request *r)
{
    int64_t place = 1;

    if (r->view.state != REQUEST_WAITING)
        return 0;
    for (const struct request *x = b->live.head.next; x != &b->live.head; x = x->next)
        if (x->view.state == REQUEST_WAITING &&
            (x->view.priority > r->view.priority ||
             (x->view.priority == r->view.priority && x->number < r->number)))
            place++;
    return place;
}

static void see(const struct requests *b, const struct request *r, struct request_view *v)
{
    *v = r->view;
    v->queue_place = queue_place(b, r);
}

/* ---- Submit --------------------------------------------------------------- */

static enum answer refuse(struct requests *b, enum answer a)
{
    b->counts.refused++;
    return a;
}

/* Whether there is room for another one; says what is missing. */
static enum answer check_room(struct requests *b, const struct request_spec *spec, struct err *e)
{
    int waiting = 0, own = 0;

    if (b->draining) {
        err_set(e, ERR_FULL, "the daemon is draining: it takes nothing new");
        return ANSWER_DRAINING;
    }
    if (!b->journal_ok) {
        char why[256];
        (void)journal_ok(b->opt.journal, why, sizeof why);
        err_set(e, ERR_FULL, "%s; try again later", why);
        return ANSWER_JOURNAL_FULL;
    }
    if (spec->n_prompt >= b->n_context) {
        err_set(e, ERR_FULL,
                "prompt: %" PRId64 " tokens, and the context holds %" PRId64
                " with what is produced; give fewer",
                spec->n_prompt, b->n_context);
        return ANSWER_TOO_LONG;
    }
    for (const struct request *r = b->live.head.next; r != &b->live.head; r = r->next)
        if (r->view.state != REQUEST_RUNNING) {
            waiting++;
            own += strcmp(r->view.client, spec->client) == 0;
        }
    /* However many clients send all they can, a place is left for one that comes. */
    if (waiting < b->opt.max_waiting && own < QUEUE_SHARE * (b->opt.max_waiting - waiting))
        return ANSWER_OK;
    err_set(e, ERR_FULL, "%d requests wait already, %d of them of this client; try again later",
            waiting, own);
    return ANSWER_QUEUE_FULL;
}

/* Puts a new request into the book and on its way to the journal. */
static enum answer enter(struct requests *b, const struct request_spec *spec, struct request **out,
                         struct err *e)
{
    struct str blob = { 0 };
    struct request *r = NULL;
    uint64_t seed = 0;

    if (!spec->has_seed && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = (uint64_t)clock_unix_ms();
    seed >>= 1; /* one that command lines can give again */
    request_spec_put(&blob, spec, seed);
    struct journal_entry *x = journal_entry_new(clock_unix_ms());
    if (blob.failed || !x || request_create(&r, b, spec->id, blob.data, blob.len, e) != ERR_OK ||
        (r->number = b->next_number, book_keep(b, r, 1))) {
        str_free(&blob);
        journal_entry_free(x);
        request_free(r);
        err_set(e, ERR_NOMEM, "no memory for another request");
        return ANSWER_NO_MEMORY;
    }
    b->next_number++;
    r->view.state = REQUEST_RECORDING;
    r->view.accepted_ms = x->ms;
    r->accepted_at_ms = clock_monotonic_ms();
    r->deadline_ms = spec->deadline_ms ? r->accepted_at_ms + spec->deadline_ms : 0;
    x->number = r->number;
    (void)snprintf(x->id, sizeof x->id, "%s", spec->id);
    x->spec = blob;
    journal_push(b->opt.journal, x);
    *out = r;
    return ANSWER_OK;
}

/* Whether an earlier request of this id asked for the same. */
static int same_contents(const struct request *r, const struct request_spec *spec)
{
    struct str blob = { 0 };

    request_spec_put(&blob, spec, r->spec.sampling.seed);
    int same =
        !blob.failed && blob.len == r->blob.len && memcmp(blob.data, r->blob.data, blob.len) == 0;
    str_free(&blob);
    return same;
}

static enum answer submit(struct requests *b, const struct request_spec *spec,
                          struct requests_waiter *w, struct request_view *view, struct err *e)
{
    struct request *r = book_find_id(b, spec->id);

    if (r && !same_contents(r, spec)) {
        err_set(e, ERR_USAGE, "id %s: a request with other contents has it; choose another",
                spec->id);
        return refuse(b, ANSWER_CONFLICT);
    }
    if (!r) {
        enum answer a = check_room(b, spec, e);
        if (a == ANSWER_OK)
            a = enter(b, spec, &r, e);
        if (a != ANSWER_OK)
            return refuse(b, a);
    }
    if (r->view.state == REQUEST_RECORDING) {
        wait_on(&r->waiters, w);
        return ANSWER_WAIT;
    }
    if (view)
        see(b, r, view);
    return ANSWER_OK;
}

void requests_note_refused(struct requests *b)
{
    pthread_mutex_lock(&b->lock);
    b->counts.refused++;
    pthread_mutex_unlock(&b->lock);
}

enum answer requests_submit(struct requests *b, const struct request_spec *spec,
                            struct requests_waiter *w, struct request_view *view, struct err *e)
{
    if (request_spec_check(spec, b->opt.n_vocab, e) != ERR_OK) {
        requests_note_refused(b);
        return ANSWER_INVALID;
    }
    pthread_mutex_lock(&b->lock);
    enum answer a = submit(b, spec, w, view, e);
    pthread_mutex_unlock(&b->lock);
    return a;
}

/* ---- Next ----------------------------------------------------------------- */

static enum answer unknown(const char *id, struct err *e)
{
    err_set(e, ERR_USAGE, "%.128s: no request has this id; it may have been forgotten", id);
    return ANSWER_UNKNOWN;
}

/* Length of the text before token i of the visible ones; after the end event: all of it. */
static size_t text_before(const struct request *r, int64_t i)
{
    return i == 0 ? 0 : i > r->n_tokens ? r->text.len : r->text_ends[i - 1];
}

/* Copies the events from `cursor` on that may be shown, at most one reply full. */
static enum answer copy_events(const struct requests *b, const struct request *r, int64_t cursor,
                               struct request_events *out, struct err *e)
{
    int ended = r->view.state == REQUEST_ENDED;
    int64_t visible = r->view.n_produced, n = 0;
    size_t from = text_before(r, cursor);

    *out = (struct request_events){ .cursor = cursor };
    see(b, r, &out->view);
    while (cursor + n < visible && n < REQUEST_EVENT_TOKENS &&
           (n == 0 || r->text_ends[cursor + n] - from <= REQUEST_EVENT_BYTES))
        n++;
    out->tokens = malloc(((size_t)n + 1) * sizeof *out->tokens);
    if (!out->tokens) {
        err_set(e, ERR_NOMEM, "no memory for %" PRId64 " events", n);
        return ANSWER_NO_MEMORY;
    }
    if (n)
        memcpy(out->tokens, r->tokens + cursor, (size_t)n * sizeof *out->tokens);
    out->n_tokens = (int)n;
    size_t to = text_before(r, cursor + n);
    /* What the end adds is short: a cut character, or the beginning of a stop string. */
    out->ended = ended && cursor + n == visible;
    if (out->ended)
        to = r->text.len;
    out->cursor = cursor + n + out->ended;
    str_append(&out->text, r->text.data ? r->text.data + from : "", to - from);
    if (out->text.failed) {
        request_events_free(out);
        err_set(e, ERR_NOMEM, "no memory for the text of %" PRId64 " events", n);
        return ANSWER_NO_MEMORY;
    }
    return ANSWER_OK;
}

static enum answer next(struct requests *b, const char *id, int64_t cursor,
                        struct requests_waiter *w, struct request_events *out, struct err *e)
{
    struct request *r = book_find_id(b, id);

    if (!r || (r->view.state == REQUEST_RECORDING && !w))
        return unknown(id, e);
    int ended = r->view.state == REQUEST_ENDED;
    int64_t events = r->view.n_produced + ended;
    if (cursor < events)
        return copy_events(b, r, cursor, out, e);
    if (w && !ended) {
        w->cursor = cursor;
        wait_on(&r->waiters, w);
        return ANSWER_WAIT;
    }
    *out = (struct request_events){ .cursor = cursor, .ended = ended };
    see(b, r, &out->view);
    return ANSWER_OK;
}

enum answer requests_next(struct requests *b, const char *id, int64_t cursor,
                          struct requests_waiter *w, struct request_events *out, struct err *e)
{
    *out = (struct request_events){ 0 };
    if (cursor < 0) {
        err_set(e, ERR_USAGE, "cursor: %" PRId64 "; give 0, or what the last reply said", cursor);
        return ANSWER_INVALID;
    }
    pthread_mutex_lock(&b->lock);
    enum answer a = next(b, id, cursor, w, out, e);
    pthread_mutex_unlock(&b->lock);
    return a;
}

void request_events_free(struct request_events *r)
{
    free(r->tokens);
    str_free(&r->text);
    *r = (struct request_events){ 0 };
}

/* ---- The rest ------------------------------------------------------------- */

static enum answer cancel(struct requests *b, const char *id, struct requests_waiter *w,
                          struct err *e)
{
    struct request *r = book_find_id(b, id);

    if (!r)
        return unknown(id, e);
    if (r->view.state == REQUEST_ENDED)
        return ANSWER_OK;
    r->cancel_wanted = 1;
    book_news(b);
    if (w) {
        w->cursor = INT64_MAX; /* nothing but the end */
        wait_on(&r->waiters, w);
        return ANSWER_WAIT;
    }
    err_set(e, ERR_FULL, "%.128s: is to end, but the journal has not recorded it yet; ask again",
            id);
    return ANSWER_JOURNAL_FULL;
}

enum answer requests_cancel(struct requests *b, const char *id, struct requests_waiter *w,
                            struct err *e)
{
    pthread_mutex_lock(&b->lock);
    enum answer a = cancel(b, id, w, e);
    pthread_mutex_unlock(&b->lock);
    return a;
}

struct listing {
    struct request_view *v; /* [n] of max */
    int n, max, n_live;
    const char *client;
};

/* It lived when the live ones were noted and has ended since. */
static int is_listed(const struct listing *l, const char *id)
{
    for (int i = 0; i < l->n_live; i++)
        if (strcmp(l->v[i].id, id) == 0)
            return 1;
    return 0;
}

static int list_row(void *arg, const struct journal_row *row)
{
    struct listing *l = arg;
    struct request_spec spec;
    char *memory = NULL;

    if (request_spec_get(&spec, &memory, row->spec, row->n_spec, NULL) != ERR_OK)
        return 0;
    if ((!l->client || strcmp(l->client, spec.client) == 0) && !is_listed(l, row->id)) {
        struct request_view *v = &l->v[l->n++];
        *v = (struct request_view){ .state = REQUEST_ENDED,
                                    .reason = row->reason,
                                    .priority = spec.priority,
                                    .seed = spec.sampling.seed,
                                    .n_prompt = spec.n_prompt,
                                    .n_cached = row->n_cached,
                                    .n_produced = row->n_tokens,
                                    .accepted_ms = row->accepted_ms,
                                    .first_token_ms = row->first_token_ms,
                                    .ended_ms = row->ended_ms };
        (void)snprintf(v->id, sizeof v->id, "%s", row->id);
        (void)snprintf(v->client, sizeof v->client, "%s", spec.client);
        (void)snprintf(v->message, sizeof v->message, "%s", row->message);
    }
    free(memory);
    return l->n == l->max;
}

int requests_list(struct requests *b, const char *client, int live, int max,
                  struct request_view **out)
{
    struct listing l = { .v = calloc((size_t)max + 1, sizeof *l.v), .max = max, .client = client };

    if (!l.v)
        return -1;
    pthread_mutex_lock(&b->lock);
    for (const struct request *r = b->live.head.before; r != &b->live.head && l.n < max;
         r = r->before)
        if (r->view.state != REQUEST_RECORDING && (!client || strcmp(client, r->view.client) == 0))
            see(b, r, &l.v[l.n++]);
    l.n_live = l.n;
    pthread_mutex_unlock(&b->lock);
    if (!live && l.n < max)
        (void)journal_list(b->opt.journal, client ? 10000 : max - l.n, list_row, &l);
    *out = l.v;
    return l.n;
}

int requests_drain(struct requests *b, int on)
{
    pthread_mutex_lock(&b->lock);
    b->draining = on;
    int n = b->live.n;
    pthread_mutex_unlock(&b->lock);
    return n;
}
