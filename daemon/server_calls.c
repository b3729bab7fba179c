/* SPDX-License-Identifier: MIT */
/* daemon/server_calls.c - open questions: answered at once, later, or by a long thread.
 *
 * Reading order: the lists; ready and woken; a call's way; long calls; the interface.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/server_parts.h"

/* ---- The lists ---------------------------------------------------------- */

static void leave_parked(struct call *c)
{
    if (!c->parked)
        return;
    *c->at_parked = c->next_parked;
    if (c->next_parked)
        c->next_parked->at_parked = c->at_parked;
    c->parked = 0;
}

static void enter_parked(struct call *c)
{
    struct server *s = c->server;
    double until = c->asked_s + (double)c->c.wait_ms * 1e-3;

    c->next_parked = s->parked;
    c->at_parked = &s->parked;
    if (s->parked)
        s->parked->at_parked = &c->next_parked;
    s->parked = c;
    c->parked = 1;
    if (c->c.wait_ms >= 0 && (s->next_s == 0 || until < s->next_s))
        s->next_s = until;
}

static void leave_conn(struct call *c)
{
    struct conn *conn = c->conn;

    if (!conn)
        return;
    *c->at_of_conn = c->next_of_conn;
    if (c->next_of_conn)
        c->next_of_conn->at_of_conn = c->at_of_conn;
    c->conn = NULL;
    conn->n_calls--;
    c->server->counts.open_questions--;
    if (conn->paused && !conn->resuming && !conn->closed) {
        conn->resuming = 1;
        conn->next_resume = conn->server->resume;
        conn->server->resume = conn;
    }
}

static void enter_conn(struct call *c, struct conn *conn)
{
    c->conn = conn;
    c->next_of_conn = conn->calls;
    c->at_of_conn = &conn->calls;
    if (conn->calls)
        conn->calls->at_of_conn = &c->next_of_conn;
    conn->calls = c;
    conn->n_calls++;
    c->server->counts.open_questions++;
    c->server->counts.questions++;
}

/* ---- Ready and woken ---------------------------------------------------- */

/* Under the lock.  Returns 1 if the loop must be told. */
static int enter_ready(struct call *c)
{
    struct server *s = c->server;
    int first = !s->ready;

    if (c->at_ready)
        return 0;
    c->next_ready = NULL;
    c->at_ready = s->ready_last;
    *s->ready_last = c;
    s->ready_last = &c->next_ready;
    return first;
}

/* Under the lock. */
static void leave_ready(struct call *c)
{
    if (!c->at_ready)
        return;
    *c->at_ready = c->next_ready;
    if (c->next_ready)
        c->next_ready->at_ready = c->at_ready;
    else
        c->server->ready_last = c->at_ready;
    c->at_ready = NULL;
}

/* Called by the book, under its lock. */
static void wake(struct requests_waiter *w)
{
    struct call *c = (struct call *)w;

    pthread_mutex_lock(&c->server->lock);
    int tell = enter_ready(c);
    pthread_mutex_unlock(&c->server->lock);
    if (tell)
        server_signal(c->server);
}

/* ---- A call's way ------------------------------------------------------- */

static void call_free(struct call *c)
{
    requests_forget(c->server->service.book, &c->waiter);
    pthread_mutex_lock(&c->server->lock);
    leave_ready(c);
    pthread_mutex_unlock(&c->server->lock);
    leave_parked(c);
    leave_conn(c);
    server_call_fini(&c->c);
    free(c->bytes);
    free(c);
}

static void finish(struct call *c)
{
    struct conn *conn = c->conn;

    leave_conn(c);
    if (*c->c.complaint)
        server_complain(c->server, c->c.complaint);
    if (conn && !conn->closed && c->c.answer) {
        conn->trusted |= c->c.trusted;
        conn_send(conn, c);
    }
    call_free(c);
}

/* Tries to answer, or parks. */
static void try_call(struct call *c, double now_s)
{
    int late = c->c.wait_ms >= 0 && now_s - c->asked_s >= (double)c->c.wait_ms * 1e-3;

    leave_parked(c);
    requests_forget(c->server->service.book, &c->waiter);
    if (server_call_try(&c->c, late ? NULL : &c->waiter)) {
        finish(c);
        return;
    }
    c->conn->trusted |= c->c.trusted; /* the wait may be longer than it has for that */
    enter_parked(c);
}

/* ---- Long calls --------------------------------------------------------- */

static struct call *next_long(struct server *s)
{
    struct call *c;

    pthread_mutex_lock(&s->lock);
    while (!s->long_first && !s->stopping)
        pthread_cond_wait(&s->long_work, &s->lock);
    c = s->stopping ? NULL : s->long_first;
    if (c) {
        s->long_first = c->next_long;
        if (!s->long_first)
            s->long_last = &s->long_first;
        s->long_bytes -= c->n_bytes;
    }
    pthread_mutex_unlock(&s->lock);
    return c;
}

void *call_run_long(void *arg)
{
    struct server *s = arg;
    struct call *c;

    while ((c = next_long(s))) {
        server_call_read(&c->c, &s->service, c->bytes, c->n_bytes, c->want_token);
        server_call_try(&c->c, &c->waiter);
        pthread_mutex_lock(&s->lock);
        c->is_done = 1;
        int tell = enter_ready(c);
        pthread_mutex_unlock(&s->lock);
        if (tell)
            server_signal(s);
    }
    return NULL;
}

/* 0: too many wait. */
static int hand_over(struct call *c, const struct sp_frame *f)
{
    struct server *s = c->server;

    c->bytes = malloc(f->n_body ? f->n_body : 1);
    if (!c->bytes)
        return 0;
    memcpy(c->bytes, f->body, f->n_body);
    c->n_bytes = f->n_body;
    c->next_long = NULL;
    pthread_mutex_lock(&s->lock);
    c->is_long = s->long_bytes + c->n_bytes <= LONG_BYTES;
    c->conn->n_long += c->is_long;
    if (c->is_long) {
        *s->long_last = c;
        s->long_last = &c->next_long;
        s->long_bytes += c->n_bytes;
        pthread_cond_signal(&s->long_work);
    }
    pthread_mutex_unlock(&s->lock);
    return c->is_long;
}

/* What streams need is answered by the loop itself, so that nothing long stands before it. */
static int is_short(const struct sp_frame *f)
{
    uint64_t method = 0;

    if (f->n_body > SHORT_BYTES || scan_find_varint(f->body, f->n_body, 2, &method) != 1)
        return f->n_body <= SHORT_BYTES;
    return method == LATENTD__METHOD__METHOD_NEXT || method == LATENTD__METHOD__METHOD_CANCEL ||
           method == LATENTD__METHOD__METHOD_SUBMIT || method == LATENTD__METHOD__METHOD_HEALTH;
}

/* ---- The interface ------------------------------------------------------ */

int call_open(struct conn *conn, const struct sp_frame *f, double now_s)
{
    int now = is_short(f);

    if (!now && conn->n_long)
        return 1;
    struct call *c = calloc(1, sizeof *c);
    if (!c)
        return -1;
    c->waiter.wake = wake;
    c->server = conn->server;
    c->asked_s = now_s;
    c->want_token = conn->tcp;
    c->n_id = f->n_id;
    memcpy(c->id, f->id, f->n_id);
    enter_conn(c, conn);
    if (now) {
        server_call_read(&c->c, &c->server->service, f->body, f->n_body, c->want_token);
        try_call(c, now_s);
    } else if (!hand_over(c, f)) {
        server_call_refuse(&c->c, LATENTD__ERROR_CODE__ERROR_QUEUE_FULL, NULL, 1000,
                           "too many long questions at once; try again");
        finish(c);
    }
    return 0;
}

static void take_up(struct call *c, double now_s)
{
    if (!c->conn)
        call_free(c);
    else if (c->c.answer)
        finish(c);
    else
        try_call(c, now_s);
}

void call_take_ready(struct server *s, double now_s)
{
    for (;;) {
        pthread_mutex_lock(&s->lock);
        struct call *c = s->ready;
        int busy = 0;
        if (c) {
            leave_ready(c);
            busy = c->is_long && !c->is_done; /* it comes again when the long thread is done */
            if (c->is_long && !busy) {
                c->is_long = 0;
                if (c->conn)
                    c->conn->n_long--;
            }
        }
        pthread_mutex_unlock(&s->lock);
        if (!c)
            return;
        if (!busy)
            take_up(c, now_s);
    }
}

/* Soonest first within 20 ms: many that wait equally long are not gone through one by one. */
void call_expire(struct server *s, double now_s)
{
    struct call *next;
    double soonest = 0;

    if (s->next_s == 0 || now_s < s->next_s)
        return;
    for (struct call *c = s->parked; c; c = next) {
        double until = c->asked_s + (double)c->c.wait_ms * 1e-3;
        next = c->next_parked;
        if (c->c.wait_ms < 0)
            continue;
        if (until <= now_s)
            try_call(c, now_s);
        else if (soonest == 0 || until < soonest)
            soonest = until;
    }
    s->next_s = soonest == 0 || soonest > now_s + 0.02 ? soonest : now_s + 0.02;
}

void call_drop_all(struct conn *conn)
{
    struct call *next;

    for (struct call *c = conn->calls; c; c = next) {
        next = c->next_of_conn;
        if (c->is_long)
            leave_conn(c); /* freed when the long thread is done with it */
        else
            call_free(c);
    }
}

void call_free_rest(struct server *s)
{
    struct call *c, *next;

    do { /* the journal may wake some still: those are in a connection */
        pthread_mutex_lock(&s->lock);
        c = s->ready;
        if (c)
            leave_ready(c);
        pthread_mutex_unlock(&s->lock);
        if (c)
            call_free(c);
    } while (c);
    for (c = s->long_first; c; c = next) {
        next = c->next_long;
        call_free(c);
    }
    s->long_first = NULL;
}
