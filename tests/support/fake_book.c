/* SPDX-License-Identifier: MIT */
/* tests/support/fake_book.c - see fake_book.h. */
#include "tests/support/fake_book.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/status.h"

enum { MAX_REQUESTS = 256, DEFAULT_TOKENS = 20 };

struct fake_request {
    char id[REQUEST_ID_MAX + 1], client[REQUEST_CLIENT_MAX + 1];
    int64_t n_prompt, max_tokens, accepted_ms, produced, cancelled_at;
    int accepted;
};

struct requests {
    pthread_mutex_t lock;
    pthread_t ticker;
    const char *file;
    int rate_ms, hold, draining, n, n_waiters, stopping, last_end_ids, refused;
    enum answer refuse;
    struct fake_request r[MAX_REQUESTS];
    struct requests_waiter *waiters;
    char last_stop[REQUEST_STOP_MAX + 1];
    int64_t last_prompt;
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- Waiters ------------------------------------------------------------- */

static void add_waiter(struct requests *b, struct requests_waiter *w)
{
    w->next = b->waiters;
    w->at = &b->waiters;
    if (b->waiters)
        b->waiters->at = &w->next;
    b->waiters = w;
    b->n_waiters++;
}

static void drop_waiter(struct requests *b, struct requests_waiter *w)
{
    if (!w->at)
        return;
    *w->at = w->next;
    if (w->next)
        w->next->at = w->at;
    w->at = NULL;
    b->n_waiters--;
}

static void wake_all(struct requests *b)
{
    struct requests_waiter *w;

    while ((w = b->waiters)) {
        drop_waiter(b, w);
        w->wake(w);
    }
}

void requests_forget(struct requests *b, struct requests_waiter *w)
{
    pthread_mutex_lock(&b->lock);
    drop_waiter(b, w);
    pthread_mutex_unlock(&b->lock);
}

/* ---- The stand-in -------------------------------------------------------- */

static struct fake_request *find(struct requests *b, const char *id)
{
    for (int i = 0; i < b->n; i++)
        if (strcmp(b->r[i].id, id) == 0)
            return &b->r[i];
    return NULL;
}

static struct fake_request *add(struct requests *b, const char *id, int64_t max_tokens)
{
    struct fake_request *r = &b->r[b->n++];

    if (b->n == MAX_REQUESTS)
        abort();
    snprintf(r->id, sizeof r->id, "%s", id);
    r->max_tokens = max_tokens;
    r->accepted_ms = now_ms();
    r->cancelled_at = -1;
    return r;
}

static void *tick(void *arg)
{
    struct requests *b = arg;
    int stopping;

    do {
        usleep((useconds_t)b->rate_ms * 1000);
        pthread_mutex_lock(&b->lock);
        wake_all(b);
        stopping = b->stopping;
        pthread_mutex_unlock(&b->lock);
    } while (!stopping);
    return NULL;
}

struct requests *fake_book_open(const char *file, int rate_ms)
{
    struct requests *b = calloc(1, sizeof *b);
    FILE *f = file ? fopen(file, "r") : NULL;
    char id[REQUEST_ID_MAX + 1];
    long long max_tokens, accepted_ms;

    if (!b)
        abort();
    pthread_mutex_init(&b->lock, NULL);
    b->file = file;
    b->rate_ms = rate_ms;
    while (f && fscanf(f, "%128s %lld %lld", id, &max_tokens, &accepted_ms) == 3)
        add(b, id, max_tokens)->accepted_ms = accepted_ms;
    if (f)
        fclose(f);
    if (rate_ms && pthread_create(&b->ticker, NULL, tick, b))
        abort();
    return b;
}

void fake_book_close(struct requests *b)
{
    pthread_mutex_lock(&b->lock);
    b->stopping = 1;
    pthread_mutex_unlock(&b->lock);
    if (b->rate_ms)
        pthread_join(b->ticker, NULL);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

void fake_book_produce(struct requests *b, const char *id, int n)
{
    pthread_mutex_lock(&b->lock);
    struct fake_request *r = find(b, id);
    if (r)
        r->produced += n;
    wake_all(b);
    pthread_mutex_unlock(&b->lock);
}

void fake_book_hold(struct requests *b, int hold)
{
    pthread_mutex_lock(&b->lock);
    b->hold = hold;
    wake_all(b);
    pthread_mutex_unlock(&b->lock);
}

void fake_book_refuse(struct requests *b, enum answer answer)
{
    pthread_mutex_lock(&b->lock);
    b->refuse = answer;
    pthread_mutex_unlock(&b->lock);
}

int fake_book_waiters(struct requests *b)
{
    pthread_mutex_lock(&b->lock);
    int n = b->n_waiters;
    pthread_mutex_unlock(&b->lock);
    return n;
}

int fake_book_accepted(struct requests *b, const char *id)
{
    pthread_mutex_lock(&b->lock);
    struct fake_request *r = find(b, id);
    int n = r ? r->accepted : 0;
    pthread_mutex_unlock(&b->lock);
    return n;
}

const char *fake_book_last_stop(struct requests *b)
{
    return b->last_stop;
}

int fake_book_refused(struct requests *b)
{
    return b->refused;
}

int64_t fake_book_last_prompt(struct requests *b)
{
    return b->last_prompt;
}

int fake_book_last_end_ids(struct requests *b)
{
    return b->last_end_ids;
}

/* ---- daemon/requests.h --------------------------------------------------- */

const char *answer_name(enum answer a)
{
    static const char *const names[] = {
#define X(NAME, name, text) name,
#include "daemon/answers.def"
#undef X
    };
    return names[a];
}

static int64_t visible(const struct requests *b, const struct fake_request *r)
{
    int64_t n = b->rate_ms ? (now_ms() - r->accepted_ms) / b->rate_ms : r->produced;

    if (r->cancelled_at >= 0 && n > r->cancelled_at)
        n = r->cancelled_at;
    return n < r->max_tokens ? n : r->max_tokens;
}

static int has_ended(const struct requests *b, const struct fake_request *r)
{
    int64_t n = visible(b, r);

    return n == r->max_tokens || n == r->cancelled_at;
}

static void fill_view(const struct requests *b, const struct fake_request *r,
                      struct request_view *v)
{
    *v = (struct request_view){ .n_prompt = r->n_prompt, .n_produced = visible(b, r) };
    memcpy(v->id, r->id, sizeof v->id);
    memcpy(v->client, r->client, sizeof v->client);
    v->state = has_ended(b, r) ? REQUEST_ENDED : REQUEST_RUNNING;
    v->seed = 7;
    v->accepted_ms = r->accepted_ms;
    if (v->state == REQUEST_ENDED) {
        v->reason = visible(b, r) == r->cancelled_at ? REASON_CANCELLED : REASON_LENGTH;
        v->ended_ms = r->accepted_ms;
    }
}

static void accept_request(struct requests *b, const struct request_spec *spec)
{
    int64_t max_tokens = spec->max_tokens < 0 ? DEFAULT_TOKENS : spec->max_tokens;
    struct fake_request *r = add(b, spec->id, max_tokens);
    FILE *f = b->file ? fopen(b->file, "a") : NULL;

    snprintf(r->client, sizeof r->client, "%s", spec->client);
    r->n_prompt = spec->n_prompt;
    r->accepted = 1;
    b->last_prompt = spec->n_prompt;
    b->last_end_ids = spec->n_end_ids;
    if (spec->n_stops)
        snprintf(b->last_stop, sizeof b->last_stop, "%.*s", (int)spec->stops[0].len,
                 spec->stops[0].data);
    if (f) {
        fprintf(f, "%s %lld %lld\n", r->id, (long long)max_tokens, (long long)r->accepted_ms);
        fclose(f);
    }
}

enum answer requests_submit(struct requests *b, const struct request_spec *spec,
                            struct requests_waiter *w, struct request_view *view, struct err *e)
{
    enum answer answer = ANSWER_OK;

    pthread_mutex_lock(&b->lock);
    struct fake_request *r = find(b, spec->id);
    if (b->refuse != ANSWER_OK || b->draining) {
        answer = b->refuse != ANSWER_OK ? b->refuse : ANSWER_DRAINING;
        err_set(e, ERR_USAGE, "fake: %s", answer_name(answer));
    } else if (b->hold && w) {
        answer = ANSWER_WAIT;
        add_waiter(b, w);
    } else if (!r) {
        accept_request(b, spec);
        r = find(b, spec->id);
    }
    if (answer == ANSWER_OK && view)
        fill_view(b, r, view);
    pthread_mutex_unlock(&b->lock);
    return answer;
}

void requests_note_refused(struct requests *b)
{
    b->refused++;
}

static enum answer unknown(const char *id, struct err *e)
{
    err_set(e, ERR_USAGE, "id %s: no request is called so", id);
    return ANSWER_UNKNOWN;
}

static void fill_events(const struct requests *b, const struct fake_request *r, int64_t cursor,
                        struct request_events *out)
{
    int64_t n = visible(b, r);

    *out = (struct request_events){ .cursor = cursor };
    out->tokens = calloc(REQUEST_EVENT_TOKENS, sizeof *out->tokens);
    if (!out->tokens)
        abort();
    while (out->cursor < n && out->n_tokens < REQUEST_EVENT_TOKENS) {
        out->tokens[out->n_tokens++] = (int32_t)++out->cursor;
        str_printf(&out->text, "w%lld ", (long long)out->cursor);
    }
    /* Not has_ended: the clock may have moved on since n was read. */
    if (out->cursor == n && (n == r->max_tokens || n == r->cancelled_at)) {
        out->cursor++;
        out->ended = 1;
    }
    fill_view(b, r, &out->view);
}

enum answer requests_next(struct requests *b, const char *id, int64_t cursor,
                          struct requests_waiter *w, struct request_events *out, struct err *e)
{
    enum answer answer = ANSWER_OK;

    pthread_mutex_lock(&b->lock);
    struct fake_request *r = find(b, id);
    if (!r) {
        answer = unknown(id, e);
    } else if (w && cursor >= visible(b, r) && !has_ended(b, r)) {
        answer = ANSWER_WAIT;
        add_waiter(b, w);
    } else if (cursor > visible(b, r)) {
        *out = (struct request_events){ .cursor = cursor, .ended = has_ended(b, r) };
        fill_view(b, r, &out->view);
    } else {
        fill_events(b, r, cursor, out);
    }
    pthread_mutex_unlock(&b->lock);
    return answer;
}

void request_events_free(struct request_events *r)
{
    free(r->tokens);
    str_free(&r->text);
    *r = (struct request_events){ 0 };
}

enum answer requests_cancel(struct requests *b, const char *id, struct requests_waiter *w,
                            struct err *e)
{
    (void)w;
    pthread_mutex_lock(&b->lock);
    struct fake_request *r = find(b, id);
    if (r && !has_ended(b, r))
        r->cancelled_at = visible(b, r);
    wake_all(b);
    pthread_mutex_unlock(&b->lock);
    return r ? ANSWER_OK : unknown(id, e);
}

int requests_list(struct requests *b, const char *client, int live, int max,
                  struct request_view **out)
{
    int n = 0;

    pthread_mutex_lock(&b->lock);
    *out = calloc((size_t)b->n + 1, sizeof **out);
    for (int i = b->n - 1; i >= 0 && n < max && *out; i--)
        if ((!client || strcmp(client, b->r[i].client) == 0) && !(live && has_ended(b, &b->r[i])))
            fill_view(b, &b->r[i], &(*out)[n++]);
    pthread_mutex_unlock(&b->lock);
    return *out ? n : -1;
}

int requests_drain(struct requests *b, int on)
{
    int live = 0;

    pthread_mutex_lock(&b->lock);
    b->draining = on;
    for (int i = 0; i < b->n; i++)
        live += !has_ended(b, &b->r[i]);
    pthread_mutex_unlock(&b->lock);
    return live;
}

/* ---- daemon/status.h ----------------------------------------------------- */

void status_read(struct status *s, struct status_view *out)
{
    (void)s;
    *out = (struct status_view){ .phase = PHASE_SERVING,
                                 .healthy = 1,
                                 .last_step_s = 0.25,
                                 .model_path = "/models/fake.gguf",
                                 .model_name = "fake \xc3", /* cut in a character */
                                 .reuse = "any",
                                 .n_ranks = 2,
                                 .n_context = 4096,
                                 .journal_ok = 1,
                                 .produced_tokens = 5 };
}

int status_ranks(struct status *s, struct status_rank **out)
{
    (void)s;
    *out = calloc(2, sizeof **out);
    if (!*out)
        return -1;
    for (int i = 0; i < 2; i++) {
        struct link_rank *r = &(*out)[i].is;
        snprintf(r->host, sizeof r->host, "host%d", i);
        snprintf(r->device, sizeof r->device, "RANK%d", i);
        r->n_threads = 4;
        r->figures[COMM_LOADED] = r->figures[COMM_TO_LOAD] = 1000 + i;
    }
    return 2;
}

/* As JSON it is long. */
void status_plan(struct status *s, enum link_plan_text which, struct str *out)
{
    (void)s;
    if (which == LINK_PLAN_JSON)
        str_printf(out, "{%899998s}", "");
    else
        str_puts(out, "a plan\n");
}

void status_metrics(struct status *s, struct str *out)
{
    (void)s;
    str_puts(out, "# TYPE latentd_fake counter\nlatentd_fake 1\n");
}
