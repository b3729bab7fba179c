/* SPDX-License-Identifier: MIT */
/* daemon/door.c - see door.h.
 *
 * Reading order: opening; callers; the interface.
 */
#include "daemon/door.h"

#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/tcp.h"
#include "daemon/clock.h"
#include "rank/link.h"

enum { HELLO_MS = 5000, HELLO_MAX = 256 };

/* ---- Opening --------------------------------------------------------------- */

static enum err_code make_token(struct door *d, struct err *e)
{
    unsigned char bytes[32];

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return err_sys(e, "no random bytes for the ranks' token");
    for (int i = 0; i < 32; i++)
        (void)snprintf(d->token + 2 * i, 3, "%02x", bytes[i]);
    (void)snprintf(d->token_word, sizeof d->token_word, "LATENTD_LINK_TOKEN=%s", d->token);
    return ERR_OK;
}

/* The name needs to be new, not secret. */
static enum err_code open_near(struct door *d, struct err *e)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    char name[64];
    int n = snprintf(name, sizeof name, "@latentd-%d-%.8s", (int)getpid(), d->token + 56);

    (void)snprintf(d->addresses, sizeof d->addresses, "unix:%s", name);
    memcpy(a.sun_path, name, (size_t)n);
    a.sun_path[0] = 0; /* the abstract space */
    int fd = d->listen_fd[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 ||
        bind(fd, (struct sockaddr *)&a,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)) ||
        listen(fd, DOOR_CALLERS))
        return err_sys(e, "no socket for the ranks");
    return ERR_OK;
}

/* A port that the kernel chooses, of every network; IPv6's socket takes IPv4 too. */
static enum err_code open_far(struct door *d, struct err *e)
{
    struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
    struct sockaddr_in four = { .sin_family = AF_INET };
    socklen_t len = sizeof six;
    char host[256] = "";
    int off = 0, flags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    size_t used = strlen(d->addresses);
    int fd = socket(AF_INET6, flags, 0);

    if (fd >= 0)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&six, sizeof six)) {
        close(fd);
        fd = -1;
    }
    if (fd < 0) {
        fd = socket(AF_INET, flags, 0);
        if (fd >= 0 && bind(fd, (struct sockaddr *)&four, sizeof four)) {
            close(fd);
            fd = -1;
        }
    }
    d->listen_fd[1] = fd;
    /* The port is at the same place in both. */
    if (fd < 0 || listen(fd, DOOR_CALLERS) || getsockname(fd, (struct sockaddr *)&six, &len) ||
        gethostname(host, sizeof host - 1))
        return err_sys(e, "no TCP socket for ranks of other hosts");
    (void)snprintf(d->addresses + used, sizeof d->addresses - used, ",tcp:%s:%d", host,
                   ntohs(six.sin6_port));
    return ERR_OK;
}

/* ---- Callers ---------------------------------------------------------------- */

static void dismiss(struct door_caller *c, const char *why)
{
    log_warn("ranks: %s", why);
    close(c->fd);
    c->fd = -1;
}

/* A seat for a new caller: a free one, or that of who has kept silent the longest. */
static struct door_caller *find_seat(struct door *d)
{
    struct door_caller *best = &d->callers[0];

    for (int i = 0; i < DOOR_CALLERS; i++) {
        if (d->callers[i].fd < 0)
            return &d->callers[i];
        if (d->callers[i].until_ms < best->until_ms)
            best = &d->callers[i];
    }
    dismiss(best, "too many callers at the ranks' socket say nothing");
    return best;
}

static int is_own_user(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

static void let_in(struct door *d, int listener)
{
    int fd;

    if (d->listen_fd[listener] < 0)
        return;
    while ((fd = accept4(d->listen_fd[listener], NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        struct door_caller *c = find_seat(d);
        *c = (struct door_caller){ .fd = fd,
                                   .near = listener == 0,
                                   .until_ms = clock_monotonic_ms() + HELLO_MS };
        if (c->near && !is_own_user(fd))
            dismiss(c, "a process of another user knocked at the ranks' socket");
        else if (!c->near)
            tcp_tune(fd);
    }
}

/* Differences are summed up, so that the time tells nothing. */
static int same_token(const char *a, const char *b)
{
    unsigned different = strlen(a) != 64;

    for (int i = 0; i < 64; i++)
        different |= (unsigned char)a[i] ^ (unsigned char)b[i];
    return !different;
}

/* Whether a whole HELLO has come, none of it taken: -1 if none ever will. */
static int has_hello(struct door_caller *c)
{
    uint8_t frame[HELLO_MAX];
    ssize_t n = recv(c->fd, frame, sizeof frame, MSG_PEEK | MSG_DONTWAIT);
    int whole = n == 0 ? -1 : n < 0 ? 0 : link_is_whole(frame, (size_t)n, sizeof frame);

    c->begun = n > 0;
    return whole == 0 && clock_monotonic_ms() >= c->until_ms ? -1 : whole;
}

static enum err_code check_hello(const struct door *d, int fd, struct link_hello *h, struct err *e)
{
    struct link_frame f;

    TRY(link_recv(fd, &f, e)); /* it is there, and small */
    enum err_code rc = link_get_hello(h, &f, e);
    free(f.payload);
    TRY(rc);
    if (!same_token(h->token, d->token))
        return err_set(e, ERR_PEER, "a process without the token knocked at the ranks' socket");
    if (h->version != LINK_VERSION)
        return err_set(e, ERR_PEER,
                       "latentd-rank speaks version %u of the link, latentd %d: they "
                       "are of two installations",
                       h->version, LINK_VERSION);
    return ERR_OK;
}

/* ---- The interface ---------------------------------------------------------- */

enum err_code door_open(struct door *d, int far, struct err *e)
{
    d->listen_fd[0] = d->listen_fd[1] = -1;
    for (int i = 0; i < DOOR_CALLERS; i++)
        d->callers[i].fd = -1;
    TRY(make_token(d, e));
    TRY(open_near(d, e));
    return far ? open_far(d, e) : ERR_OK;
}

void door_close(struct door *d)
{
    for (int i = 0; i < DOOR_LISTENERS; i++)
        if (d->listen_fd[i] >= 0)
            close(d->listen_fd[i]);
    for (int i = 0; i < DOOR_CALLERS; i++)
        if (d->callers[i].fd >= 0)
            close(d->callers[i].fd);
}

int door_fds(const struct door *d, struct pollfd *fds)
{
    int n = 0;

    for (int i = 0; i < DOOR_LISTENERS; i++)
        if (d->listen_fd[i] >= 0)
            fds[n++] = (struct pollfd){ .fd = d->listen_fd[i], .events = POLLIN };
    for (int i = 0; i < DOOR_CALLERS; i++)
        if (d->callers[i].fd >= 0 && !d->callers[i].begun) /* a part would never let poll wait */
            fds[n++] = (struct pollfd){ .fd = d->callers[i].fd, .events = POLLIN };
    return n;
}

int door_answer(struct door *d, int *fd, pid_t *pid)
{
    for (int i = 0; i < DOOR_LISTENERS; i++)
        let_in(d, i);
    for (int i = 0; i < DOOR_CALLERS; i++) {
        struct door_caller *c = &d->callers[i];
        struct link_hello h = { 0 };
        struct err e = { 0 };
        int there = c->fd >= 0 ? has_hello(c) : 0;
        if (there < 0)
            dismiss(c, "somebody knocked at the ranks' socket and said nothing");
        else if (there && check_hello(d, c->fd, &h, &e) != ERR_OK)
            dismiss(c, e.msg);
        else if (there) {
            *fd = c->fd;
            *pid = c->near ? (pid_t)h.pid : 0;
            c->fd = -1;
            return 1;
        }
    }
    return 0;
}
