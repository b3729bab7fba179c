/* SPDX-License-Identifier: MIT */
/* proto/client_wire.c - see client_wire.h.
 *
 * Reading order: the endpoint; a connection, step by step; the question and its answer.
 */
#include "proto/client_wire.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/tcp.h"
#include "proto/client_parts.h"
#include "proto/sp.h"

enum {
    RETRY_MS = 100,    /* from one attempt to connect to the next */
    ATTEMPT_MS = 5000, /* then an attempt has failed */
    FIRST_ROOM = 4096,
};

enum state { APART, CONNECTING, GREETING, TOGETHER };

struct client_wire {
    int tcp;
    char *path, *host, *port; /* of ipc; of tcp */
    struct addrinfo *hosts, *next_host;

    enum state state;
    int fd;
    const char *why; /* the last attempt failed */
    int64_t tried_ms;
    size_t n_heard; /* of the greeting */

    uint8_t *out; /* [n_out] of cap_out: the question's frame, sent so far */
    size_t n_out, cap_out, sent;
    uint32_t id;
    int64_t asked_ms;

    uint8_t *in; /* [n_in] of cap_in; `used` of it is an answer that was given out */
    size_t n_in, cap_in, used;
};

/* ---- The endpoint --------------------------------------------------------- */

/* HOST:PORT or [HOST]:PORT.  Returns 0, or -1 where it is none. */
static int split_address(struct client_wire *w, const char *address)
{
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : 0;

    if (n == 0 || !colon[1])
        return -1;
    if (address[0] == '[' && address[n - 1] == ']') {
        address++;
        n -= 2;
    }
    w->host = strndup(address, n);
    w->port = strdup(colon + 1);
    return 0;
}

enum latent_code client_wire_open(struct client_wire **out, const char *endpoint,
                                  struct latent_error *e)
{
    struct client_wire *w = calloc(1, sizeof *w);
    size_t room = sizeof((struct sockaddr_un *)0)->sun_path;
    int bad;

    if (!w)
        return client_fail(e, LATENT_NO_MEMORY, "connection: no memory");
    w->fd = -1;
    w->why = "not tried yet";
    w->tried_ms = client_now_ms() - RETRY_MS;
    w->tcp = strncmp(endpoint, "tcp://", 6) == 0;
    if (w->tcp) {
        bad = split_address(w, endpoint + 6);
    } else {
        bad = strncmp(endpoint, "ipc://", 6) != 0 || !endpoint[6] || strlen(endpoint + 6) >= room;
        w->path = bad ? NULL : strdup(endpoint + 6);
    }
    if (!bad && (w->tcp ? w->host && w->port : w->path != NULL)) {
        *out = w;
        return LATENT_OK;
    }
    client_wire_close(&w);
    return bad ? client_fail(e, LATENT_USAGE,
                             "%.80s: no endpoint; give ipc://PATH (of at most %zu bytes) or "
                             "tcp://HOST:PORT",
                             endpoint, room - 1)
               : client_fail(e, LATENT_NO_MEMORY, "connection: no memory");
}

void client_wire_close(struct client_wire **wp)
{
    struct client_wire *w = *wp;

    *wp = NULL;
    if (!w)
        return;
    client_wire_drop(w);
    if (w->hosts)
        freeaddrinfo(w->hosts);
    free(w->path);
    free(w->host);
    free(w->port);
    free(w->out);
    free(w->in);
    free(w);
}

/* ---- A connection --------------------------------------------------------- */

static void apart(struct client_wire *w, const char *why)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
    w->state = APART;
    w->why = why;
    w->sent = w->n_in = w->used = w->n_heard = 0;
}

static void apart_errno(struct client_wire *w, int error)
{
    apart(w, error == ENOENT ? "there is no such socket; start latentd, or give its --listen"
             : error == ECONNREFUSED ? "nobody listens there any more; start latentd"
             : error == EACCES       ? "permission denied; become a member of the socket's group"
                                     : strerrordesc_np(error));
}

/* Names are looked up again once all their addresses have been tried. */
static int next_host(struct client_wire *w)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };

    if (w->next_host)
        w->next_host = w->next_host->ai_next;
    if (w->next_host)
        return 0;
    if (w->hosts)
        freeaddrinfo(w->hosts);
    w->hosts = NULL;
    int rc = getaddrinfo(w->host, w->port, &hints, &w->hosts);
    w->next_host = w->hosts;
    if (rc)
        apart(w, gai_strerror(rc));
    return rc ? -1 : 0;
}

static void begin(struct client_wire *w)
{
    struct sockaddr_un sun = { .sun_family = AF_UNIX };
    const struct sockaddr *to = (const struct sockaddr *)&sun;
    socklen_t n = sizeof sun;

    w->tried_ms = client_now_ms();
    if (w->tcp) {
        if (next_host(w))
            return;
        to = w->next_host->ai_addr;
        n = w->next_host->ai_addrlen;
    } else {
        memcpy(sun.sun_path, w->path, strlen(w->path) + 1);
    }
    w->fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (w->fd >= 0 && w->tcp)
        tcp_tune(w->fd);
    if (w->fd < 0 || (connect(w->fd, to, n) && errno != EINPROGRESS))
        apart_errno(w, errno);
    else
        w->state = CONNECTING;
}

/* Sent whole: the socket is empty. */
static void greet(struct client_wire *w)
{
    int error = 0;
    socklen_t n = sizeof error;

    (void)getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &n);
    if (error == 0 && send(w->fd, sp_asker, SP_GREETING, MSG_NOSIGNAL) != SP_GREETING)
        error = errno;
    if (error)
        apart_errno(w, error);
    else
        w->state = GREETING;
}

static void hear_greeting(struct client_wire *w)
{
    uint8_t theirs[SP_GREETING];
    ssize_t n = recv(w->fd, theirs, SP_GREETING - w->n_heard, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || memcmp(theirs, sp_answerer + w->n_heard, (size_t)n) != 0) {
        apart(w, "whoever listens there does not greet like latentd");
        return;
    }
    w->n_heard += (size_t)n;
    if (w->n_heard == SP_GREETING)
        w->state = TOGETHER;
}

/* Waits for the socket, or without one until it is time to try again.  Returns whether there is
 * something to do; *interrupted: a signal came. */
static int wait_for(const struct client_wire *w, short events, int64_t ms, int *interrupted)
{
    struct pollfd p = { .fd = w->fd, .events = events };
    int n = poll(&p, w->fd >= 0, ms > 0 ? (int)ms : 0);

    *interrupted = n < 0 && errno == EINTR;
    return n > 0;
}

/* One step towards a connection, within `ms`.  Returns whether a signal came. */
static int approach(struct client_wire *w, int64_t ms)
{
    int64_t pause = w->tried_ms + RETRY_MS - client_now_ms();
    int interrupted = 0;

    if (w->state == APART && pause > 0)
        (void)wait_for(w, 0, pause < ms ? pause : ms, &interrupted);
    else if (w->state == APART)
        begin(w);
    else if (wait_for(w, w->state == CONNECTING ? POLLOUT : POLLIN, ms, &interrupted))
        (w->state == CONNECTING ? greet : hear_greeting)(w);
    else if (!interrupted && client_now_ms() - w->tried_ms > ATTEMPT_MS)
        apart_errno(w, ETIMEDOUT);
    return interrupted;
}

int client_wire_connect(struct client_wire *w, int ms)
{
    int64_t until = client_now_ms() + ms, left;

    while (w->state != TOGETHER && (left = until - client_now_ms()) > 0)
        if (approach(w, left))
            break;
    return w->state == TOGETHER;
}

int client_wire_connected(const struct client_wire *w)
{
    return w->state == TOGETHER;
}

const char *client_wire_why(const struct client_wire *w)
{
    return w->why;
}

void client_wire_drop(struct client_wire *w)
{
    apart(w, "not tried again yet");
    w->n_out = 0;
}

/* ---- The question and its answer ------------------------------------------ */

int client_wire_ask(struct client_wire *w, const uint8_t *bytes, size_t n)
{
    uint8_t head[SP_HEAD_MAX], id[4];
    size_t n_head = sp_write_head(head, w->tcp, sizeof id, n), need = n_head + sizeof id + n;

    if (need > w->cap_out) {
        uint8_t *grown = realloc(w->out, need);
        if (!grown)
            return -1;
        w->out = grown;
        w->cap_out = need;
    }
    w->id = (w->id + 1) | 0x80000000u;
    for (int i = 0; i < 4; i++)
        id[i] = (uint8_t)(w->id >> (24 - 8 * i));
    memcpy(w->out, head, n_head);
    memcpy(w->out + n_head, id, sizeof id);
    memcpy(w->out + n_head + sizeof id, bytes, n);
    w->n_out = need;
    w->sent = 0;
    return 0;
}

static void send_more(struct client_wire *w)
{
    while (w->sent < w->n_out) {
        ssize_t n = send(w->fd, w->out + w->sent, w->n_out - w->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            apart_errno(w, errno);
        if (n < 0)
            return;
        w->sent += (size_t)n;
        w->asked_ms = client_now_ms();
    }
}

/* Reads what is there.  -1: there is more than any answer has, or no memory for it. */
static int receive_more(struct client_wire *w)
{
    if (w->n_in == w->cap_in) {
        size_t cap = w->cap_in ? 2 * w->cap_in : FIRST_ROOM;
        uint8_t *grown = cap <= 2 * CLIENT_ANSWER_MAX ? realloc(w->in, cap) : NULL;
        if (!grown)
            return -1;
        w->in = grown;
        w->cap_in = cap;
    }
    ssize_t n = recv(w->fd, w->in + w->n_in, w->cap_in - w->n_in, 0);
    if (n == 0)
        apart(w, "the daemon is gone");
    else if (n > 0)
        w->n_in += (size_t)n;
    else if (errno != EAGAIN && errno != EINTR)
        apart_errno(w, errno);
    return 0;
}

/* As client_wire_await, of what has been read. */
static int find_answer(struct client_wire *w, struct sp_frame *f)
{
    int64_t n;

    for (;; w->used = (size_t)n) {
        memmove(w->in, w->in + w->used, w->n_in - w->used);
        w->n_in -= w->used;
        w->used = 0;
        n = sp_read(f, w->tcp, w->in, w->n_in, CLIENT_ANSWER_MAX);
        if (n <= 0)
            return (int)n;
        if (f->n_id != 4)
            continue;
        uint32_t id =
            (uint32_t)f->id[0] << 24 | (uint32_t)f->id[1] << 16 | f->id[2] << 8 | f->id[3];
        if (id == w->id)
            break;
    }
    w->used = (size_t)n;
    return 1;
}

int client_wire_await(struct client_wire *w, int ms, unsigned resend_ms, const uint8_t **answer,
                      size_t *n)
{
    int64_t until = client_now_ms() + ms, left;
    int interrupted = 0;

    while (!interrupted && (left = until - client_now_ms()) > 0) {
        struct sp_frame f;
        if (w->state != TOGETHER) {
            interrupted = approach(w, left);
            continue;
        }
        if (w->sent == w->n_out && client_now_ms() - w->asked_ms > resend_ms)
            w->sent = 0;
        send_more(w);
        if (w->state != TOGETHER)
            continue;
        if (!wait_for(w, w->sent < w->n_out ? POLLIN | POLLOUT : POLLIN, left, &interrupted))
            continue;
        int found = receive_more(w) ? -1 : find_answer(w, &f);
        if (found == 1) {
            *answer = f.body;
            *n = f.n_body;
        }
        if (found)
            return found;
    }
    return 0;
}
