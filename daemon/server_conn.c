/* SPDX-License-Identifier: MIT */
/* daemon/server_conn.c - connections: bytes in, frames out, and what one may cost.
 *
 * A connection holds memory only for a question that is there in part, and for answers that are
 * not taken.  Where too many questions are open or too much is not taken, nothing more is read
 * from it.  Broken frames end it.
 *
 * Reading order: events; writing; reading; the interface.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/server_parts.h"

enum { GREET_S = 10, READS = 4 };

/* ---- Events ------------------------------------------------------------- */

static int may_read(const struct conn *c)
{
    int most = c->server->counts.open_questions < SERVER_CALLS ? SERVER_CONN_CALLS : 1;

    return c->n_calls < most && c->out_bytes <= OUT_PAUSE_BYTES;
}

/* Watches for what can go on. */
static void watch(struct conn *c)
{
    uint32_t events = EPOLLRDHUP | (c->paused ? 0 : EPOLLIN) | (c->out_first ? EPOLLOUT : 0);
    struct epoll_event ev = { .events = events, .data.ptr = c };

    if (c->closed || events == c->events)
        return;
    c->events = events;
    if (epoll_ctl(c->server->epoll, EPOLL_CTL_MOD, c->fd, &ev))
        conn_close(c);
}

static void ask_to_resume(struct conn *c)
{
    struct server *s = c->server;

    if (!c->paused || c->resuming || c->closed)
        return;
    c->resuming = 1;
    c->next_resume = s->resume;
    s->resume = c;
}

/* ---- Writing ------------------------------------------------------------ */

static void flush(struct conn *c, double now_s)
{
    while (c->out_first) {
        struct out *o = c->out_first;
        ssize_t n = send(c->fd, o->bytes + o->done, o->n - o->done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            conn_close(c);
            return;
        }
        if (n < 0)
            break;
        c->moved_s = now_s;
        o->done += (size_t)n;
        c->out_bytes -= (size_t)n;
        c->server->out_bytes -= (size_t)n;
        if (o->done < o->n)
            break;
        c->out_first = o->next;
        if (!c->out_first)
            c->out_last = &c->out_first;
        free(o);
    }
    if (may_read(c))
        ask_to_resume(c);
    watch(c);
}

void conn_send(struct conn *c, const struct call *call)
{
    uint8_t head[SP_HEAD_MAX];
    size_t n_head = sp_write_head(head, c->tcp, call->n_id, call->c.n_answer);
    size_t n = n_head + call->n_id + call->c.n_answer;
    struct out *o = malloc(sizeof *o + n);

    if (!o) { /* the client will ask again, over another connection */
        conn_close(c);
        return;
    }
    *o = (struct out){ .n = n };
    memcpy(o->bytes, head, n_head);
    memcpy(o->bytes + n_head, call->id, call->n_id);
    memcpy(o->bytes + n_head + call->n_id, call->c.answer, call->c.n_answer);
    if (!c->out_first)
        c->moved_s = clock_seconds();
    *c->out_last = o;
    c->out_last = &o->next;
    c->out_bytes += n;
    c->server->out_bytes += n;
    if (c->out_first == o)
        flush(c, c->moved_s);
    if (c->out_first && c->server->out_bytes > OUT_ALL_BYTES && !c->closed) {
        server_complain(c->server, "too many answers are not taken; a connection is closed");
        conn_close(c);
    }
}

/* ---- Reading ------------------------------------------------------------ */

/* Room for n more bytes, in proportion to what has come, not to what was announced. */
static int make_room(struct conn *c, size_t n)
{
    struct server *s = c->server;
    size_t want = c->n_in + n, cap = c->cap_in;

    if (want <= cap)
        return 0;
    while (cap < want)
        cap = cap ? 2 * cap : 512;
    if (cap > IN_ALONE_BYTES && s->in_bytes + cap - c->cap_in > IN_ALL_BYTES)
        return -1;
    uint8_t *in = realloc(c->in, cap);
    if (!in)
        return -1;
    c->in = in;
    s->in_bytes += cap - c->cap_in;
    c->cap_in = cap;
    return 0;
}

static void drop_room(struct conn *c)
{
    c->server->in_bytes -= c->cap_in;
    free(c->in);
    c->in = NULL;
    c->n_in = c->cap_in = 0;
}

/* Questions as long as they are whole and may be asked.  -1: the connection is broken. */
static int take_frames(struct conn *c, double now_s)
{
    struct sp_frame f;
    size_t at = 0;
    int64_t n = 0;
    int rc = 0;

    if (!c->greeted && c->n_in >= SP_GREETING) {
        if (memcmp(c->in, sp_asker, SP_GREETING) != 0)
            return -1;
        c->greeted = 1;
        at = SP_GREETING;
    }
    while (c->greeted && !c->closed && may_read(c) && c->n_in > at &&
           (n = sp_read(&f, c->tcp, c->in + at, c->n_in - at, PROTO_QUESTION_MAX)) > 0) {
        rc = call_open(c, &f, now_s);
        if (rc < 0)
            return -1;
        if (rc > 0)
            break;
        at += (size_t)n;
    }
    if (n < 0) {
        server_complain(c->server, "a connection sends a frame that is broken or too long, "
                                   "and is closed");
        return -1;
    }
    c->paused = rc > 0 || !may_read(c);
    c->n_in -= at;
    if (!c->n_in)
        drop_room(c);
    else if (at)
        memmove(c->in, c->in + at, c->n_in);
    return 0;
}

static int read_some(struct conn *c, double now_s)
{
    for (int i = 0; i < READS && !c->closed && !c->paused; i++) {
        ssize_t n = recv(c->fd, c->server->buffer, READ_BYTES, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0 || make_room(c, (size_t)n))
            return -1;
        c->read_s = now_s;
        memcpy(c->in + c->n_in, c->server->buffer, (size_t)n);
        c->n_in += (size_t)n;
        if (take_frames(c, now_s))
            return -1;
        if (n < READ_BYTES)
            return 0;
    }
    return 0;
}

/* ---- The interface ------------------------------------------------------ */

struct conn *conn_open(struct server *s, int fd, int tcp, double now_s)
{
    struct conn *c = calloc(1, sizeof *c);
    struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP, .data.ptr = c };

    if (!c || send(fd, sp_answerer, SP_GREETING, MSG_NOSIGNAL | MSG_DONTWAIT) != SP_GREETING ||
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &ev)) {
        close(fd);
        free(c);
        return NULL;
    }
    *c = (struct conn){ .source = SOURCE_CONN,
                        .server = s,
                        .fd = fd,
                        .tcp = tcp,
                        .trusted = !tcp,
                        .events = ev.events,
                        .opened_s = now_s,
                        .next = s->conns,
                        .at = &s->conns };
    c->out_last = &c->out_first;
    if (s->conns)
        s->conns->at = &c->next;
    s->conns = c;
    s->counts.connections = ++s->n_conns;
    s->n_tcp_conns += tcp;
    return c;
}

void conn_event(struct conn *c, uint32_t events, double now_s)
{
    if (c->closed)
        return;
    if (events & EPOLLOUT)
        flush(c, now_s);
    if (!c->closed && events & EPOLLIN && read_some(c, now_s))
        conn_close(c);
    if (!c->closed && events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        conn_close(c);
    if (!c->closed)
        watch(c);
}

void conn_close(struct conn *c)
{
    struct server *s = c->server;

    if (c->closed)
        return;
    c->closed = 1;
    /* Not left to close: a child between fork and exec has the descriptor too. */
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    close(c->fd);
    *c->at = c->next;
    if (c->next)
        c->next->at = c->at;
    s->counts.connections = --s->n_conns;
    s->n_tcp_conns -= c->tcp;
    c->next = s->closed;
    s->closed = c;
}

/* Not before: an event of this round, or the caller, may still name it. */
void conn_free_closed(struct server *s)
{
    struct conn **at = &s->closed, *c;

    while ((c = *at)) {
        call_drop_all(c);
        if (c->resuming) { /* freed in the next round, when it has left that list */
            at = &c->next;
            continue;
        }
        *at = c->next;
        s->out_bytes -= c->out_bytes;
        while (c->out_first) {
            struct out *o = c->out_first;
            c->out_first = o->next;
            free(o);
        }
        drop_room(c);
        free(c);
    }
}

void conn_resume_all(struct server *s, double now_s)
{
    struct conn *c;

    while ((c = s->resume)) {
        s->resume = c->next_resume;
        c->resuming = 0;
        if (c->closed || !may_read(c))
            continue;
        c->paused = 0;
        c->read_s = now_s; /* the wait was not the client's */
        if (take_frames(c, now_s))
            conn_close(c);
        else
            watch(c);
    }
}

void conn_sweep(struct server *s, double now_s)
{
    struct conn *next;

    for (struct conn *c = s->conns; c; c = next) {
        next = c->next;
        if ((!c->greeted || !c->trusted) && now_s - c->opened_s > GREET_S) {
            conn_close(c);
        } else if (c->out_first && now_s - c->moved_s > SERVER_SEND_MS * 1e-3) {
            server_complain(s, "a connection does not take its answers and is closed");
            conn_close(c);
        } else if (c->n_in && !c->paused && now_s - c->read_s > SERVER_SEND_MS * 1e-3) {
            server_complain(s, "a question has stopped in its middle; its connection is closed");
            conn_close(c);
        }
    }
}
