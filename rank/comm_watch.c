/* SPDX-License-Identifier: MIT */
/* rank/comm_watch.c - the thread of a rank that beats and watches.
 *
 * Five times a second it beats, and looks whether
 *
 *     a rank of this host is silent: no beat for the deadline (stopped, or its process is gone),
 *     this rank hangs: in a step, not waiting for others, and no progress for hang_ms,
 *     everybody waits for everybody: in a step, waiting, no progress for twice that,
 *     this rank wants to leave and the others do not,
 *     a signal has told this process to end,
 *
 * The end of a process of this host is seen at once.  Every rank answers for its own progress, so
 * one that hangs is found wherever it is.  When this thread itself was held up, by a stop or for
 * want of a core, it does not hold that against the others.  The leader of a host also speaks for
 * it to the other hosts (comm_wire.h).
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/draft.h"
#include "base/log.h"
#include "rank/comm_room.h"
#include "rank/comm_wire.h"

enum { GRACE_MS = 2000 };

struct comm_watch {
    struct comm *c;
    pthread_t thread;
    int stop_fd;
    struct peer {
        uint32_t beat;
        double seen_s;
        int pid_fd; /* -1: none */
    } * peers;      /* [n_local] */
    struct pollfd *polled;
    uint32_t progress;
    double progress_s, last_tick_s, fault_s, left_s;
};

/* ---- What a tick looks at --------------------------------------------------------- */

static void watch_peers(struct comm_watch *w, double now)
{
    struct comm *c = w->c;

    for (int r = 0; r < c->size; r++) {
        const struct comm_place *at = &c->places[r];
        struct peer *p = &w->peers[at->local];
        char why[80];
        if (at->host != c->host || r == c->rank || atomic_load(&c->room->seats[at->local].left))
            continue;
        uint32_t beat = atomic_load(&c->room->seats[at->local].beat);
        if (beat != p->beat) {
            p->beat = beat;
            p->seen_s = now;
        } else if ((now - p->seen_s) * 1000 > c->opt.deadline_ms) {
            (void)snprintf(why, sizeof why, "no heartbeat for %.1f s; it is stopped or starved",
                           now - p->seen_s);
            comm_raise(c, r, "is silent", why);
        }
    }
}

static void watch_progress(struct comm_watch *w, double now)
{
    struct comm *c = w->c;
    const struct seat *s = &c->room->seats[c->local];
    uint32_t progress = atomic_load(&s->progress);
    int waiting = atomic_load(&s->waiting) != 0;
    double limit_s = (double)atomic_load(&c->hang_ms) * 1e-3 * (1 + waiting);
    char why[80];

    if (progress != w->progress || !atomic_load(&s->in_step)) {
        w->progress = progress;
        w->progress_s = now;
    } else if (now - w->progress_s > limit_s) {
        (void)snprintf(why, sizeof why, "no progress for %.1f s%s", now - w->progress_s,
                       waiting ? ", it waits for a rank that does not come" : "");
        comm_raise(c, c->rank, "hangs", why);
    }
}

static void watch_leaving(struct comm_watch *w, double now)
{
    struct comm *c = w->c;

    if (!atomic_load(&c->room->seats[c->local].left))
        return;
    if (w->left_s == 0)
        w->left_s = now;
    else if ((now - w->left_s) * 1000 > c->opt.deadline_ms)
        comm_raise(c, c->rank, "cannot leave", "another rank does not end");
}

/* A rank whose process is about to end for another reason has a moment for it. */
static void watch_end(struct comm_watch *w, double now)
{
    if (!comm_failed(w->c))
        return;
    if (w->fault_s == 0)
        w->fault_s = now;
    if (!w->c->ops->processes || (now - w->fault_s) * 1000 <= GRACE_MS)
        return;
    draft_drop_all();
    _exit(comm_exit_status(w->c));
}

static void tick(struct comm_watch *w)
{
    struct comm *c = w->c;
    double now = clock_seconds(), late = now - w->last_tick_s - COMM_TICK_MS * 1e-3;

    atomic_fetch_add(&c->room->seats[c->local].beat, 1);
    if (late * 4000 < c->opt.deadline_ms)
        late = 0; /* as on a busy machine: no reason to wait longer for the others */
    if (late > 0) {
        for (int i = 0; i < c->n_local; i++)
            w->peers[i].seen_s += late;
        w->progress_s += late;
    }
    w->last_tick_s = now;
    if (c->ops->processes)
        watch_peers(w, now);
    if (c->wire)
        comm_wire_tick(c, now, late);
    watch_progress(w, now);
    watch_leaving(w, now);
    if (c->told && *c->told)
        comm_raise_signal(c, *c->told);
    watch_end(w, now);
}

/* ---- The ends of processes ---------------------------------------------------------- */

static void watch_processes(struct comm_watch *w)
{
    struct comm *c = w->c;

    for (int r = 0; r < c->size; r++) {
        const struct comm_place *at = &c->places[r];
        if (at->host != c->host || !(w->polled[1 + at->local].revents & POLLIN))
            continue;
        close(w->peers[at->local].pid_fd);
        w->polled[1 + at->local].fd = w->peers[at->local].pid_fd = -1;
        if (!atomic_load(&c->room->seats[at->local].left))
            comm_raise(c, r, "was lost",
                       "its process has ended; the kernel's log and the lines "
                       "before this one may say why");
    }
}

static void *watch_thread(void *arg)
{
    struct comm_watch *w = arg;
    struct comm *c = w->c;

    w->polled[0] = (struct pollfd){ .fd = w->stop_fd, .events = POLLIN };
    for (int i = 0; i < c->n_local; i++)
        w->polled[1 + i] = (struct pollfd){ .fd = w->peers[i].pid_fd, .events = POLLIN };
    while (!(w->polled[0].revents & POLLIN)) {
        struct pollfd *hosts = w->polled + 1 + c->n_local;
        nfds_t n = (nfds_t)c->n_local + 1;
        if (c->wire) {
            comm_wire_polled(c->wire, hosts);
            n += (nfds_t)c->n_hosts;
        }
        tick(w);
        if (poll(w->polled, n, COMM_TICK_MS) <= 0)
            continue;
        watch_processes(w);
        if (c->wire)
            comm_wire_read(c, hosts);
    }
    return NULL;
}

/* ---- Life ---------------------------------------------------------------------------- */

static void watch_free(struct comm_watch *w)
{
    for (int i = 0; w->peers && i < w->c->n_local; i++)
        if (w->peers[i].pid_fd >= 0)
            close(w->peers[i].pid_fd);
    if (w->stop_fd >= 0)
        close(w->stop_fd);
    free(w->peers);
    free(w->polled);
    free(w);
}

/* A kernel or container that refuses leaves it to the beats. */
static void open_processes(struct comm_watch *w, double now)
{
    struct comm *c = w->c;

    for (int i = 0; i < c->n_local; i++) {
        int pid = atomic_load(&c->room->seats[i].pid);
        w->peers[i] = (struct peer){ .seen_s = now, .pid_fd = -1 };
        if (c->ops->processes && i != c->local && pid > 0)
            w->peers[i].pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    }
}

enum err_code comm_watch_start(struct comm *c, struct err *e)
{
    struct comm_watch *w = calloc(1, sizeof *w);
    sigset_t all, old;

    if (!w)
        return err_set(e, ERR_NOMEM, "no memory to watch ranks");
    w->c = c;
    w->stop_fd = eventfd(0, EFD_CLOEXEC);
    w->peers = calloc((size_t)c->n_local, sizeof *w->peers);
    w->polled = calloc((size_t)c->n_local + 1 + (size_t)c->n_hosts, sizeof *w->polled);
    w->last_tick_s = w->progress_s = clock_seconds();
    if (w->stop_fd < 0 || !w->peers || !w->polled) {
        watch_free(w);
        return err_set(e, ERR_NOMEM, "no memory or descriptors to watch ranks");
    }
    open_processes(w, w->last_tick_s);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&w->thread, NULL, watch_thread, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        watch_free(w);
        errno = failed;
        return err_sys(e, "no thread to watch ranks");
    }
    c->watch = w;
    return ERR_OK;
}

void comm_watch_stop(struct comm *c)
{
    struct comm_watch *w = c->watch;
    uint64_t one = 1;

    if (!w)
        return;
    if (write(w->stop_fd, &one, sizeof one) == sizeof one)
        pthread_join(w->thread, NULL);
    if (c->wire)
        comm_wire_leave(c);
    watch_free(w);
    c->watch = NULL;
}
