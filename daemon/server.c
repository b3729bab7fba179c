/* SPDX-License-Identifier: MIT */
/* daemon/server.c - see server.h: the loop, and who starts and ends it.
 *
 * Reading order: accepting; the loop; the interface.
 */
#include "daemon/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/priority.h"
#include "base/tcp.h"
#include "daemon/server_parts.h"

enum { EVENTS = 128, SWEEP_S = 1, MAX_FILES = 16384 };

void server_complain(struct server *s, const char *what)
{
    double now_s = clock_seconds();

    s->counts.complaints++;
    if (s->complained_s != 0 && now_s - s->complained_s < 10)
        return;
    s->complained_s = now_s;
    log_warn("clients: %s", what);
}

void server_signal(struct server *s)
{
    uint64_t one = 1;

    while (write(s->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* ---- Accepting ---------------------------------------------------------- */

/* With no room for a connection the listeners are let alone until the next sweep: clients wait in
 * the kernel's queue, which is better than being thrown out and coming again. */
static void set_accepting(struct server *s, int on)
{
    if (s->accepting == on)
        return;
    if (!on)
        server_complain(s, "no more connections: descriptors are used up; see LimitNOFILE");
    s->accepting = on;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n_listeners; i++) {
        struct epoll_event ev = { .events = on ? EPOLLIN : 0, .data.ptr = &s->listeners[i] };
        epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listeners[i].l.fd, &ev);
    }
    pthread_mutex_unlock(&s->lock);
}

static void accept_all(struct server *s, struct server_listener *l, double now_s)
{
    while (s->n_conns < s->max_conns) {
        int fd = accept4(l->l.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && errno != EAGAIN)
            set_accepting(s, 0);
        if (fd < 0)
            return;
        if (l->l.tcp && s->n_tcp_conns >= SERVER_TCP_CONNS) {
            server_complain(s, "too many connections over tcp://; the newest is closed");
            close(fd);
            continue;
        }
        if (l->l.tcp)
            tcp_tune(fd); /* a client that is cut off gives its place back */
        conn_open(s, fd, l->l.tcp, now_s);
    }
    set_accepting(s, 0);
}

/* ---- The loop ----------------------------------------------------------- */

static int is_stopping(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    int stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    return stopping;
}

static int timeout_ms(const struct server *s, double now_s)
{
    double until = s->next_s;

    if ((s->n_conns || !s->accepting) && (until == 0 || until > s->swept_s + SWEEP_S))
        until = s->swept_s + SWEEP_S;
    if (until == 0)
        return -1;
    return until <= now_s ? 0 : (int)((until - now_s) * 1e3) + 1;
}

static void handle(struct server *s, const struct epoll_event *ev, double now_s)
{
    uint64_t count;

    switch (*(enum source *)ev->data.ptr) {
    case SOURCE_LISTENER:
        accept_all(s, ev->data.ptr, now_s);
        break;
    case SOURCE_CONN:
        conn_event(ev->data.ptr, ev->events, now_s);
        break;
    case SOURCE_WAKE:
        while (read(s->wake_fd, &count, sizeof count) < 0 && errno == EINTR)
            ;
        break;
    }
}

static void *run_loop(void *arg)
{
    struct server *s = arg;
    struct epoll_event events[EVENTS];
    double now_s = clock_seconds();

    priority_at_once();
    while (!is_stopping(s)) {
        int n = epoll_wait(s->epoll, events, EVENTS, timeout_ms(s, now_s));
        now_s = clock_seconds();
        for (int i = 0; i < n; i++)
            handle(s, &events[i], now_s);
        call_take_ready(s, now_s);
        call_expire(s, now_s);
        if (now_s - s->swept_s >= SWEEP_S) {
            s->swept_s = now_s;
            conn_sweep(s, now_s);
            if (s->n_conns < s->max_conns)
                set_accepting(s, 1);
        }
        conn_resume_all(s, now_s);
        conn_free_closed(s);
    }
    return NULL;
}

/* ---- The interface ------------------------------------------------------ */

static enum err_code open_loop(struct server *s, struct err *e)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &s->wake_source };
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files))
        return err_sys(e, "server");
    if (files.rlim_cur < MAX_FILES) { /* nothing here uses select, for which shells set 1024 */
        files.rlim_cur = files.rlim_max < MAX_FILES ? files.rlim_max : MAX_FILES;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    int n = files.rlim_cur < 1 << 20 ? (int)files.rlim_cur : 1 << 20;
    s->max_conns = n > 2 * SPARE_FILES ? n - SPARE_FILES : n / 2;
    s->accepting = 1;
    s->wake_source = SOURCE_WAKE;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->epoll < 0 || s->wake_fd < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->wake_fd, &ev))
        return err_sys(e, "server");
    return ERR_OK;
}

static enum err_code start_threads(struct server *s, struct err *e)
{
    while (s->n_threads < LONG_THREADS) {
        if (pthread_create(&s->long_threads[s->n_threads], NULL, call_run_long, s))
            return err_set(e, ERR_IO, "server: no thread");
        s->n_threads++;
    }
    if (pthread_create(&s->loop, NULL, run_loop, s))
        return err_set(e, ERR_IO, "server: no thread");
    s->n_threads++;
    return ERR_OK;
}

enum err_code server_start(struct server **out, const struct service *service, struct err *e)
{
    struct server *s = calloc(1, sizeof *s);

    if (!s)
        return err_set(e, ERR_NOMEM, "server: no memory");
    s->service = *service;
    s->service.counts = &s->counts;
    s->epoll = s->wake_fd = -1;
    s->ready_last = &s->ready;
    s->long_last = &s->long_first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->long_work, NULL);
    enum err_code rc = open_loop(s, e);
    if (rc == ERR_OK)
        rc = start_threads(s, e);
    if (rc != ERR_OK)
        server_stop(&s);
    else
        *out = s;
    return rc;
}

enum err_code server_listen(struct server *s, const char *address, char *bound, size_t size,
                            struct err *e)
{
    const char *token = s->service.token;
    struct server_listener *l = &s->listeners[s->n_listeners];
    struct epoll_event ev = { .events = EPOLLIN, .data.ptr = l };

    if (s->n_listeners == LISTENERS)
        return err_set(e, ERR_USAGE, "%s: one address too many; at most %d", address, LISTENERS);
    l->source = SOURCE_LISTENER;
    TRY(listen_open(&l->l, address, token && *token, bound, size, e));
    pthread_mutex_lock(&s->lock);
    s->n_listeners++;
    pthread_mutex_unlock(&s->lock);
    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, l->l.fd, &ev))
        return err_sys(e, "%s", address);
    return ERR_OK;
}

void server_stop(struct server **server)
{
    struct server *s = *server;

    *server = NULL;
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = 1;
    pthread_cond_broadcast(&s->long_work);
    pthread_mutex_unlock(&s->lock);
    if (s->n_threads > LONG_THREADS) {
        server_signal(s);
        pthread_join(s->loop, NULL);
    }
    for (int i = 0; i < s->n_threads && i < LONG_THREADS; i++)
        pthread_join(s->long_threads[i], NULL);
    for (int i = 0; i < s->n_listeners; i++)
        listen_close(&s->listeners[i].l);
    s->resume = NULL;
    while (s->conns)
        conn_close(s->conns);
    call_free_rest(s);
    for (struct conn *c = s->closed; c; c = c->next)
        c->resuming = 0;
    conn_free_closed(s);
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    if (s->epoll >= 0)
        close(s->epoll);
    pthread_cond_destroy(&s->long_work);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
