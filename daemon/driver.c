/* SPDX-License-Identifier: MIT */
/* daemon/driver.c - see driver.h.
 *
 * Reading order: waiting; a life of the ranks; the interface.  What a turn does is in
 * driver_turn.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/priority.h"
#include "daemon/clock.h"
#include "daemon/driver_parts.h"

enum {
    PROBE_MS = 5000, /* idle ranks are asked so often whether they still compute */
    IDLE_MS = 1000,  /* without ranks: how often it is looked whether there are new ones */
    STALL_S = 10,    /* a frame stands still for so long: nobody is there */
    STOP_MS = 600,   /* beyond quit_ms: then a thread that waits for a rank is let go */
};

/* ---- Waiting -------------------------------------------------------------- */

int driver_is_stopping(struct driver *d)
{
    pthread_mutex_lock(&d->lock);
    int stopping = d->stopping;
    pthread_mutex_unlock(&d->lock);
    return stopping;
}

int driver_wait(struct driver *d, int link_fd, int64_t ms)
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
        TRY(driver_await_frame(d, &f, INT32_MAX, e));
        if (f.kind == LINK_PLAN)
            TRY(driver_take_plan(d, &f, e));
        else if (f.kind == LINK_RANKS)
            TRY(driver_take_ranks(d, &f, e));
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
    TRY(driver_take_requests(d, 1, e));
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
    while (!driver_is_stopping(d)) {
        if (journal_wait_room(d->opt.journal))
            return ERR_CANCELLED;
        TRY(driver_take_requests(d, 0, e));
        TRY(driver_end_wanted(d, &next_ms, e));
        TRY(driver_turn(d, &idle, e));
        int64_t now = clock_monotonic_ms();
        if (!idle) {
            probed_ms = now;
            continue;
        }
        if (now - probed_ms >= PROBE_MS) {
            TRY(driver_probe(d, e));
            probed_ms = clock_monotonic_ms();
            continue; /* there may have been news meanwhile */
        }
        if (driver_wait(d, d->fd, driver_until(next_ms, PROBE_MS)))
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
    int replaced = d->attached_fd >= 0; /* then these ranks are buried: the next must not pay */
    pthread_mutex_unlock(&d->lock);
    scheduler_free(&d->scheduler);
    driver_push_entry(d); /* the book counts on what is in it already */
    book_all_wait(d->opt.book);
    if (rc != ERR_CANCELLED) {
        status_note_restart(d->opt.status, e->msg);
        if (!replaced)
            d->opt.on_lost(d->opt.arg, e->msg);
    }
}

static void *run(void *arg)
{
    struct driver *d = arg;

    priority_at_once();
    while (!driver_is_stopping(d)) {
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
        if (driver_end_wanted(d, &next_ms, &e) != ERR_OK)
            log_warn("%s", e.msg);
        driver_push_entry(d);
        (void)driver_wait(d, -1, driver_until(next_ms, IDLE_MS));
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
