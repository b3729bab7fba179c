/* SPDX-License-Identifier: MIT */
/* rank/comm_wire.c - see comm_wire.h. */
#include "rank/comm_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "rank/comm_room.h"

enum { CONNECT_MS = 2000, MEET_MS = 30000, GREETING = 0x6c61746e };

enum wire_kind { WIRE_BEAT, WIRE_FAULT, WIRE_LEAVE };

struct message {
    uint32_t kind;
    int32_t rank;                            /* that is at fault, or whose figures follow */
    int32_t signal;                          /* that told it to end, or 0 */
    int64_t figures[COMM_FIGURES];           /* of a beat  */
    char line[sizeof((struct err *)0)->msg]; /* of a fault */
};

struct greeting {
    uint32_t magic, host; /* of who sends it */
    uint64_t secret;      /* of who listens  */
};

struct comm_wire {
    int host, n_hosts, listen_fd, told;
    int shown; /* the rank whose figures went with the last beat */
    uint64_t secret;
    struct end {
        int fd; /* -1: none, or closed */
        int left;
        double heard_s;
        struct message in, out;
        size_t n_in, out_done, out_left;
    } * ends; /* [n_hosts] */
};

/* ---- Addresses --------------------------------------------------------------------- */

static int usable(const struct ifaddrs *i, int loopback)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)i->ifa_addr;

    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) ||
        ((i->ifa_flags & IFF_LOOPBACK) != 0) != loopback)
        return 0;
    if (i->ifa_addr->sa_family == AF_INET)
        return 1;
    return i->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

static void add_addresses(struct wire_address *a, const struct ifaddrs *list, int loopback)
{
    for (const struct ifaddrs *i = list; i && a->n < WIRE_MAX_ADDRESSES; i = i->ifa_next) {
        const void *from = i->ifa_addr;
        if (!usable(i, loopback))
            continue;
        a->at[a->n].is_v6 = i->ifa_addr->sa_family == AF_INET6;
        if (a->at[a->n].is_v6)
            memcpy(a->at[a->n].bytes, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
        else
            memcpy(a->at[a->n].bytes, &((const struct sockaddr_in *)from)->sin_addr, 4);
        a->n++;
    }
}

static socklen_t to_sockaddr(const struct wire_address *a, int i, struct sockaddr_storage *s)
{
    memset(s, 0, sizeof *s);
    if (a->at[i].is_v6) {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)s;
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(a->port);
        memcpy(&v6->sin6_addr, a->at[i].bytes, 16);
        return sizeof *v6;
    }
    struct sockaddr_in *v4 = (struct sockaddr_in *)s;
    v4->sin_family = AF_INET;
    v4->sin_port = htons(a->port);
    memcpy(&v4->sin_addr, a->at[i].bytes, 4);
    return sizeof *v4;
}

/* One socket for both families where the kernel has IPv6. */
static int open_listener(struct wire_address *here)
{
    struct sockaddr_in6 any6 = { .sin6_family = AF_INET6 };
    struct sockaddr_in any4 = { .sin_family = AF_INET };
    int no = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t n = sizeof any6;

    if (fd >= 0 && (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) != 0 ||
                    bind(fd, (struct sockaddr *)&any6, sizeof any6) != 0)) {
        close(fd);
        fd = -1;
    }
    if (fd < 0) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && bind(fd, (struct sockaddr *)&any4, sizeof any4) != 0) {
            close(fd);
            return -1;
        }
    }
    if (fd < 0 || listen(fd, 64) != 0 || getsockname(fd, (struct sockaddr *)&any6, &n) != 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    here->port = ntohs(any6.sin6_port); /* at the same place in both */
    return fd;
}

enum err_code comm_wire_listen(struct comm_wire **out, int host, int n_hosts,
                               struct wire_address *here, struct err *e)
{
    struct comm_wire *w = calloc(1, sizeof *w);
    struct ifaddrs *list = NULL;

    if (!w)
        return err_set(e, ERR_NOMEM, "no memory to connect hosts");
    *out = w;
    w->host = host;
    w->n_hosts = n_hosts;
    w->listen_fd = -1;
    w->ends = calloc((size_t)n_hosts, sizeof *w->ends);
    if (!w->ends)
        return err_set(e, ERR_NOMEM, "no memory to connect hosts");
    for (int h = 0; h < n_hosts; h++)
        w->ends[h].fd = -1;
    memset(here, 0, sizeof *here);
    if (getrandom(&w->secret, sizeof w->secret, 0) != sizeof w->secret || getifaddrs(&list) != 0)
        return err_sys(e, "the addresses of this host cannot be read");
    here->secret = w->secret;
    add_addresses(here, list, 0);
    add_addresses(here, list, 1);
    freeifaddrs(list);
    w->listen_fd = open_listener(here);
    if (w->listen_fd < 0)
        return err_sys(e, "no socket on which other hosts could say that they are alive");
    return ERR_OK;
}

void comm_wire_free(struct comm_wire **w)
{
    if (!*w)
        return;
    for (int h = 0; (*w)->ends && h < (*w)->n_hosts; h++)
        if ((*w)->ends[h].fd >= 0)
            close((*w)->ends[h].fd);
    if ((*w)->listen_fd >= 0)
        close((*w)->listen_fd);
    free((*w)->ends);
    free(*w);
    *w = NULL;
}

/* ---- Meeting ------------------------------------------------------------------------ */

static int wait_for(int fd, short events, int ms)
{
    struct pollfd p = { .fd = fd, .events = events };

    return poll(&p, 1, ms) == 1;
}

/* A greeting is small enough to go in one piece. */
static int send_greeting(int fd, int host, uint64_t secret)
{
    struct greeting g = { GREETING, (uint32_t)host, secret };

    return send(fd, &g, sizeof g, MSG_NOSIGNAL) == sizeof g;
}

static int receive_greeting(int fd, struct greeting *g)
{
    return wait_for(fd, POLLIN, CONNECT_MS) && recv(fd, g, sizeof *g, MSG_WAITALL) == sizeof *g &&
           g->magic == GREETING;
}

static void settle_socket(struct comm_wire *w, int host, int fd)
{
    int yes = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    w->ends[host].fd = fd;
    w->ends[host].heard_s = clock_seconds();
}

/* The connected socket, or -1. */
static int try_address(const struct comm_wire *w, const struct wire_address *to, int host, int i)
{
    struct sockaddr_storage s;
    struct greeting g;
    socklen_t n = to_sockaddr(to, i, &s);
    int why = 0, fd = socket(s.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t n_why = sizeof why;

    if (fd < 0)
        return -1;
    int ok = connect(fd, (struct sockaddr *)&s, n) == 0 || errno == EINPROGRESS;
    if (ok && wait_for(fd, POLLOUT, CONNECT_MS) &&
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n_why) == 0 && why == 0 &&
        send_greeting(fd, w->host, to->secret) && receive_greeting(fd, &g) &&
        g.secret == to->secret && g.host == (uint32_t)host)
        return fd;
    close(fd);
    return -1;
}

static int try_host(struct comm_wire *w, const struct wire_address *to, int host)
{
    for (int i = 0; i < to->n; i++) {
        int fd = try_address(w, to, host, i);
        if (fd >= 0) {
            settle_socket(w, host, fd);
            return 1;
        }
    }
    return 0;
}

/* Takes one connection of a host that is still missing, if it is one. */
static void accept_host(struct comm_wire *w)
{
    struct greeting g;
    int fd = accept4(w->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    if (receive_greeting(fd, &g) && g.secret == w->secret && g.host > (uint32_t)w->host &&
        g.host < (uint32_t)w->n_hosts && w->ends[g.host].fd < 0 &&
        send_greeting(fd, w->host, w->secret))
        settle_socket(w, (int)g.host, fd);
    else
        close(fd);
}

/* The next host above `from` that is not connected, or n_hosts. */
static int missing(const struct comm_wire *w, int from)
{
    while (from < w->n_hosts && (from == w->host || w->ends[from].fd >= 0))
        from++;
    return from;
}

/* Every host calls those before it and waits for those after it. */
enum err_code comm_wire_connect(struct comm_wire *w, const struct wire_address *of,
                                const char *const *names, struct err *e)
{
    double end = clock_seconds() + MEET_MS * 1e-3;

    while (missing(w, 0) < w->n_hosts && clock_seconds() < end) {
        for (int h = missing(w, 0); h < w->host; h = missing(w, h + 1))
            try_host(w, &of[h], h);
        if (missing(w, w->host) < w->n_hosts && wait_for(w->listen_fd, POLLIN, 100))
            accept_host(w);
    }
    int lacking = missing(w, 0);
    if (lacking < w->n_hosts)
        return err_set(e, ERR_PEER,
                       "no TCP connection between host %s and host %s after %d s; open the "
                       "firewall between them",
                       names[w->host], names[lacking], MEET_MS / 1000);
    close(w->listen_fd);
    w->listen_fd = -1;
    return ERR_OK;
}

/* ---- Sending -------------------------------------------------------------------------- */

/* What the socket does not take now stays for the next time. */
static void flush_end(struct end *t)
{
    while (t->fd >= 0 && t->out_left > 0) {
        ssize_t n = send(t->fd, (const char *)&t->out + t->out_done, t->out_left,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0)
            return;
        t->out_done += (size_t)n;
        t->out_left -= (size_t)n;
    }
}

static void send_all(struct comm_wire *w, const struct message *m)
{
    for (int h = 0; h < w->n_hosts; h++) {
        struct end *t = &w->ends[h];
        flush_end(t);
        if (t->fd < 0 || t->out_left > 0)
            continue;
        t->out = *m;
        t->out_done = 0;
        t->out_left = sizeof *m;
        flush_end(t);
    }
}

/* Of the ranks of this host one with each beat. */
static void show_figures(struct comm *c, struct message *m)
{
    struct comm_wire *w = c->wire;

    do
        w->shown = (w->shown + 1) % c->size;
    while (c->places[w->shown].host != c->host);
    m->rank = w->shown;
    for (int f = 0; f < COMM_FIGURES; f++)
        m->figures[f] = comm_figure(c, w->shown, (enum comm_figure)f);
}

/* The fault of this room once, otherwise a message of `kind`. */
static void send_state(struct comm *c, enum wire_kind kind)
{
    struct comm_wire *w = c->wire;
    struct message m = { .kind = kind };

    show_figures(c, &m);

    if (atomic_load(&c->room->fault) == FAULT_KNOWN) {
        if (w->told)
            return;
        w->told = 1;
        m.kind = WIRE_FAULT;
        m.rank = c->room->fault_rank;
        m.signal = c->room->fault_signal;
        (void)snprintf(m.line, sizeof m.line, "%s", c->room->why);
    }
    send_all(w, &m);
}

void comm_wire_leave(struct comm *c)
{
    send_state(c, WIRE_LEAVE);
}

/* ---- Receiving ------------------------------------------------------------------------ */

static void obey(struct comm *c, int host, struct message *m)
{
    struct end *t = &c->wire->ends[host];

    t->heard_s = clock_seconds();
    m->line[sizeof m->line - 1] = '\0';
    if (m->kind == WIRE_LEAVE)
        t->left = 1;
    if (m->rank < 0 || m->rank >= c->size)
        return;
    if (m->kind == WIRE_FAULT)
        comm_raise_line(c, m->rank, m->signal, m->line);
    else if (c->places[m->rank].host == host)
        for (int f = 0; f < COMM_FIGURES; f++)
            atomic_store(&c->figures[m->rank * FIGURES_ROW + f], m->figures[f]);
}

static void lose(struct comm *c, int host)
{
    struct end *t = &c->wire->ends[host];

    close(t->fd);
    t->fd = -1;
    if (!t->left)
        comm_raise(c, c->leaders[host], "was lost",
                   "its host has closed the connection; see the lines of that host");
}

void comm_wire_polled(const struct comm_wire *w, struct pollfd *polled)
{
    for (int h = 0; h < w->n_hosts; h++)
        polled[h] = (struct pollfd){ .fd = w->ends[h].fd, .events = POLLIN };
}

void comm_wire_read(struct comm *c, const struct pollfd *polled)
{
    struct comm_wire *w = c->wire;

    for (int h = 0; h < w->n_hosts; h++) {
        struct end *t = &w->ends[h];
        if (t->fd < 0 || !(polled[h].revents & (POLLIN | POLLHUP | POLLERR)))
            continue;
        ssize_t n = recv(t->fd, (char *)&t->in + t->n_in, sizeof t->in - t->n_in, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            lose(c, h);
        } else if (n > 0 && (t->n_in += (size_t)n) == sizeof t->in) {
            t->n_in = 0;
            obey(c, h, &t->in);
        }
    }
}

void comm_wire_tick(struct comm *c, double now, double late_s)
{
    struct comm_wire *w = c->wire;

    send_state(c, WIRE_BEAT);
    for (int h = 0; h < w->n_hosts; h++) {
        struct end *t = &w->ends[h];
        char why[120];
        t->heard_s += late_s;
        if (t->fd < 0 || t->left || (now - t->heard_s) * 1000 <= c->opt.deadline_ms)
            continue;
        (void)snprintf(why, sizeof why,
                       "no heartbeat of its host for %.1f s; the host or the link to it is down",
                       now - t->heard_s);
        comm_raise(c, c->leaders[h], "is silent", why);
    }
}
