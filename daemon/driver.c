/* SPDX-License-Identifier: MIT */
/* daemon/driver.c - see driver.h.
 *
 * Reading order: waiting; requests into the scheduler; what came of a step, into the book and the
 * journal; one step; a life of the ranks; the interface.
 */
#include "daemon/driver.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/log.h"
#include "daemon/clock.h"

enum {
    PROBE_MS = 5000,  /* idle ranks are asked so often whether they still compute */
    IDLE_MS = 1000,   /* without ranks: how often deadlines are looked at */
    HANG_MS = 120000, /* a step that takes longer than this, and than HANG_STEPS median ones */
    HANG_STEPS = 20,
    STALL_S = 10,  /* a frame stands still for so long: nobody is there */
    STOP_MS = 600, /* beyond quit_ms: then a thread that waits for a rank is let go */
};

struct driver {
    struct driver_options opt;
    pthread_t thread;
    int news_fd; /* eventfd: something new in the book, new ranks, or the end */
    struct scheduler *scheduler;
    struct link_ready ready;
    int fd;      /* of the link, -1: none; the thread's own, changed under the lock */
    int faulted; /* rank 0 has said why it leaves */
    int64_t step_id;
    int n_sent;     /* steps whose results are to come: at most 2 */
    double round_s; /* when the last result came, or the ranks got work again */
    struct str out;
    struct journal_entry *entry; /* what is recorded next */
    struct request **found;      /* [n_found] of cap_found */
    int n_found, cap_found;

    pthread_mutex_t lock;
    int attached_fd, stopping; /* attached: -1, or a link that the thread has not taken yet */
};

/* ---- Waiting -------------------------------------------------------------- */

static int is_stopping(struct driver *d)
{
    pthread_mutex_lock(&d->lock);
    int stopping = d->stopping;
    pthread_mutex_unlock(&d->lock);
    return stopping;
}

/* Waits for news, or for bytes on the link if there is one.  Returns 1 if the link can be read. */
static int wait_for(struct driver *d, int link_fd, int64_t ms)
{
    struct pollfd p[2] = {
        {.fd = d->news_fd, .events = POLLIN},
        { .fd = link_fd,   .events = POLLIN}
    };
    uint64_t count;

    if (poll(p, link_fd >= 0 ? 2 : 1, ms > INT32_MAX ? INT32_MAX : (int)ms) < 0)
        return 0;
    if (p[0].revents && read(d->news_fd, &count, sizeof count) < 0 && errno != EAGAIN)
        log_warn("driver: %s", strerror(errno));
    return link_fd >= 0 && p[1].revents != 0;
}

/* ---- Records -------------------------------------------------------------- */

static enum err_code need_entry(struct driver *d, struct err *e)
{
    if (d->entry)
        return ERR_OK;
    d->entry = journal_entry_new(clock_unix_ms());
    return d->entry ? ERR_OK : err_set(e, ERR_NOMEM, "no memory for an entry of the journal");
}

static void push_entry(struct driver *d)
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

static enum err_code take_requests(struct driver *d, int all, struct err *e)
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

/* How long to wait: until the next deadline, but at most so long. */
static int64_t until_deadline(int64_t next_ms, int64_t most)
{
    int64_t left = next_ms ? next_ms - clock_monotonic_ms() : most;

    return left < 0 ? 0 : left < most ? left : most;
}

/* Ends those that are cancelled or late, in the entry that is not pushed yet.  *next_ms: when the
 * next deadline is, 0: none. */
static enum err_code end_wanted(struct driver *d, int64_t *next_ms, struct err *e)
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
                                0.001 * (double)(clock_unix_ms() - r->view.accepted_ms));
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

/* The next frame of the ranks, or what is wrong with them: ERR_CANCELLED when the end has come.
 * Whoever cancels, or is late, is served meanwhile: loading and long steps take their time. */
static enum err_code await_frame(struct driver *d, struct link_frame *f, int64_t patience_ms,
                                 struct err *e)
{
    int64_t begin = clock_monotonic_ms(), next_ms;

    for (;;) {
        if (is_stopping(d))
            return ERR_CANCELLED;
        TRY(end_wanted(d, &next_ms, e));
        push_entry(d);
        int64_t left = begin + patience_ms - clock_monotonic_ms();
        if (left <= 0 && slow_step_ms(d) > patience_ms) {
            patience_ms = slow_step_ms(d);
            continue;
        }
        if (left <= 0)
            return err_set(e, ERR_PEER, "ranks: nothing heard for %" PRId64 " s",
                           patience_ms / 1000);
        if (!wait_for(d, d->fd, until_deadline(next_ms, left)))
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

/* What the ranks say of themselves; frees the frame. */
static enum err_code take_ranks(struct driver *d, struct link_frame *f, struct err *e)
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

/* Its texts, for who asks; frees the frame. */
static enum err_code take_plan(struct driver *d, struct link_frame *f, struct err *e)
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

    TRY(await_frame(d, &f, HANG_MS, e));
    if (f.kind == LINK_RANKS) {
        TRY(take_ranks(d, &f, e));
        TRY(await_frame(d, &f, HANG_MS, e));
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

/* One turn: a step if there is something to compute.  *idle: there was not.  What the step before
 * made is recorded once the ranks compute. */
static enum err_code turn(struct driver *d, int *idle, struct err *e)
{
    struct scheduler_output out;
    struct link_result r = { 0 };

    if (d->n_sent == 0)
        TRY(plan_step(d, e));
    show_counts(d);
    push_entry(d);
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

static enum err_code probe(struct driver *d, struct err *e)
{
    struct step s = { .id = ++d->step_id };
    struct link_result r = { 0 };

    TRY(send_step(d, &s, e));
    TRY(await_result(d, &r, e));
    status_note_step(d->opt.status, 0, 0, r.step_us, r.sum_us);
    link_result_free(&r);
    return ERR_OK;
}

/* ---- A life of the ranks -------------------------------------------------- */

static enum err_code check_ready(struct driver *d, struct err *e)
{
    const struct link_ready *r = &d->ready;

    if (strcmp(r->model_hash, d->opt.model_hash) != 0)
        return err_set(e, ERR_PEER,
                       "ranks: they have opened another model than the daemon; the "
                       "file was replaced: start the daemon again");
    if (r->limits.n_vocab != d->opt.hp->n_vocab)
        return err_set(e, ERR_PEER, "ranks: a vocabulary of %d", r->limits.n_vocab);
    return ERR_OK;
}

/* Until the ranks are ready. */
static enum err_code await_ready(struct driver *d, struct err *e)
{
    struct link_frame f = { 0 };

    for (;;) {
        TRY(await_frame(d, &f, INT32_MAX, e));
        if (f.kind == LINK_PLAN)
            TRY(take_plan(d, &f, e));
        else if (f.kind == LINK_RANKS)
            TRY(take_ranks(d, &f, e));
        else
            break;
    }
    enum err_code rc = link_get_ready(&d->ready, &f, e);
    free(f.payload);
    TRY(rc);
    return check_ready(d, e);
}

static enum err_code open_scheduler(struct driver *d, struct err *e)
{
    struct scheduler_options o = { .limits = d->ready.limits,
                                   .hp = d->opt.hp,
                                   .mla = d->ready.mla,
                                   .strict_reuse = d->opt.strict_reuse };

    char maker[128];

    /* Not which CPU kernels: they all give the same bits. */
    (void)snprintf(maker, sizeof maker, "latentd %s, cache %s, -mla %d%s", LATENTD_VERSION,
                   d->ready.cache_type, d->ready.mla, d->ready.exact_math ? ", exact math" : "");
    TRY(scheduler_create(&d->scheduler, &o, e));
    book_note_maker(d->opt.book, maker);
    requests_set_context(d->opt.book, d->ready.limits.n_context);
    TRY(take_requests(d, 1, e));
    status_note_ready(d->opt.status, &d->ready);
    d->opt.on_ready(d->opt.arg);
    log_info("ready: %d rank%s, %" PRId64
             " positions of context, %d requests at once, cache %s, %s",
             d->ready.n_ranks, d->ready.n_ranks == 1 ? "" : "s", d->ready.limits.n_context,
             d->ready.limits.n_sequences, d->ready.cache_type, d->ready.kernel_set);
    return ERR_OK;
}

static enum err_code serve(struct driver *d, struct err *e)
{
    /* Ranks that are between two steps read at once. */
    const struct timeval stall = { .tv_sec = STALL_S };
    int64_t probed_ms = 0, next_ms;
    int idle;

    d->n_sent = 0;
    (void)setsockopt(d->fd, SOL_SOCKET, SO_SNDTIMEO, &stall, sizeof stall);
    (void)setsockopt(d->fd, SOL_SOCKET, SO_RCVTIMEO, &stall, sizeof stall);

    TRY(await_ready(d, e));
    TRY(open_scheduler(d, e));
    while (!is_stopping(d)) {
        if (journal_wait_room(d->opt.journal))
            return ERR_CANCELLED;
        TRY(take_requests(d, 0, e));
        TRY(end_wanted(d, &next_ms, e));
        TRY(turn(d, &idle, e));
        int64_t now = clock_monotonic_ms();
        if (!idle) {
            probed_ms = now;
            continue;
        }
        if (now - probed_ms >= PROBE_MS) {
            TRY(probe(d, e));
            probed_ms = clock_monotonic_ms();
            continue; /* there may have been news meanwhile */
        }
        if (wait_for(d, d->fd, until_deadline(next_ms, PROBE_MS)))
            return err_set(e, ERR_PEER, "ranks: they are gone, or speak unasked");
    }
    return ERR_CANCELLED;
}

/* Lets go of the ranks. */
static void part(struct driver *d, enum err_code rc, const struct err *e)
{
    struct pollfd gone = { .fd = d->fd, .events = POLLRDHUP };
    int quit = rc == ERR_CANCELLED && link_send(d->fd, LINK_QUIT, NULL, 0, NULL) == ERR_OK;

    /* Closing the link ends rank 0 at once; who is about to leave shall do it with its own status.
     */
    if (quit || d->faulted)
        (void)poll(&gone, 1, d->opt.quit_ms);
    d->faulted = 0;
    pthread_mutex_lock(&d->lock);
    close(d->fd);
    d->fd = -1;
    pthread_mutex_unlock(&d->lock);
    scheduler_free(&d->scheduler);
    push_entry(d); /* the book counts on what is in it already */
    book_all_wait(d->opt.book);
    if (rc != ERR_CANCELLED) {
        status_note_restart(d->opt.status, e->msg);
        d->opt.on_lost(d->opt.arg, e->msg);
    }
}

static void *run(void *arg)
{
    struct driver *d = arg;

    while (!is_stopping(d)) {
        struct err e = { 0 };
        int64_t next_ms;
        pthread_mutex_lock(&d->lock);
        d->fd = d->attached_fd;
        d->attached_fd = -1;
        pthread_mutex_unlock(&d->lock);
        if (d->fd >= 0) {
            enum err_code rc = serve(d, &e);
            part(d, rc, &e);
            continue;
        }
        if (end_wanted(d, &next_ms, &e) != ERR_OK)
            log_warn("%s", e.msg);
        push_entry(d);
        (void)wait_for(d, -1, IDLE_MS);
    }
    return NULL;
}

/* ---- The interface -------------------------------------------------------- */

enum err_code driver_start(struct driver **out, const struct driver_options *o, struct err *e)
{
    struct driver *d = calloc(1, sizeof *d);

    if (!d)
        return err_set(e, ERR_NOMEM, "no memory for the driver");
    d->opt = *o;
    d->fd = d->attached_fd = -1;
    pthread_mutex_init(&d->lock, NULL);
    d->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->news_fd < 0 || pthread_create(&d->thread, NULL, run, d)) {
        if (d->news_fd >= 0)
            close(d->news_fd);
        free(d);
        return err_set(e, ERR_IO, "no thread for the driver");
    }
    *out = d;
    return ERR_OK;
}

void driver_wake(struct driver *d)
{
    uint64_t one = 1;

    if (write(d->news_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        log_warn("driver: %s", strerror(errno));
}

void driver_attach(struct driver *d, int fd)
{
    pthread_mutex_lock(&d->lock);
    if (d->attached_fd >= 0)
        close(d->attached_fd);
    d->attached_fd = fd;
    pthread_mutex_unlock(&d->lock);
    driver_wake(d);
}

void driver_stop(struct driver **dp)
{
    struct driver *d = *dp;

    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->stopping = 1;
    pthread_mutex_unlock(&d->lock);
    journal_hurry(d->opt.journal);
    driver_wake(d);
    struct timespec until = clock_in_ms(d->opt.quit_ms + STOP_MS);
    if (pthread_clockjoin_np(d->thread, NULL, CLOCK_MONOTONIC, &until)) {
        pthread_mutex_lock(&d->lock);
        if (d->fd >= 0)
            (void)shutdown(d->fd, SHUT_RDWR);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->thread, NULL);
    }
    if (d->attached_fd >= 0)
        close(d->attached_fd);
    close(d->news_fd);
    pthread_mutex_destroy(&d->lock);
    str_free(&d->out);
    free(d->found);
    free(d);
    *dp = NULL;
}
