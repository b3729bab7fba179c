/* SPDX-License-Identifier: MIT */
/* daemon/server_listen.c - see server_listen.h.
 *
 * What stands at a path is looked at first: only a socket that nobody answers is taken away.  Two
 * daemons that do this at once are kept apart by the lock on the state directory, which is taken
 * before.
 */
#include "daemon/server_listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

enum { SOCKET_MODE = 0660, RETRY_STEP_MS = 50, BACKLOG = 1024 };

/* ---- ipc:// -------------------------------------------------------------- */

enum place { PLACE_FREE, PLACE_STALE, PLACE_LIVE };

/* Does anybody answer at the socket?  Not waiting: a daemon that is stopped is alive. */
static enum err_code probe(const char *path, enum place *place, struct err *e)
{
    struct sockaddr_un sun = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return err_sys(e, "%s", path);
    memcpy(sun.sun_path, path, strlen(path) + 1);
    int rc = connect(fd, (struct sockaddr *)&sun, sizeof sun);
    int why = errno;
    close(fd);
    if (rc == 0 || why == EAGAIN || why == EINPROGRESS)
        *place = PLACE_LIVE;
    else if (why == ECONNREFUSED)
        *place = PLACE_STALE;
    else if (why == ENOENT)
        *place = PLACE_FREE;
    else {
        errno = why;
        return err_sys(e, "%s: cannot tell whether it is in use", path);
    }
    return ERR_OK;
}

static enum err_code look_at(const char *path, enum place *place, struct err *e)
{
    struct stat st;

    if (lstat(path, &st)) {
        *place = PLACE_FREE;
        return errno == ENOENT ? ERR_OK : err_sys(e, "%s", path);
    }
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_USAGE,
                       "%s: is no socket and stays as it is; choose another --listen, or remove it",
                       path);
    return probe(path, place, e);
}

static enum err_code check_path(const char *path, struct err *e)
{
    struct sockaddr_un sun;

    if (!*path)
        return err_set(e, ERR_USAGE, "ipc://: the path is missing; give ipc:///run/latentd/NAME");
    if (strlen(path) >= sizeof sun.sun_path)
        return err_set(e, ERR_USAGE, "ipc://%.40s...: the path of a socket has at most %zu bytes",
                       path, sizeof sun.sun_path - 1);
    return ERR_OK;
}

/* ---- tcp:// -------------------------------------------------------------- */

static enum err_code check_tcp(const char *address, int may_tcp, struct err *e)
{
    const char *host = address + strlen("tcp://"), *colon = strrchr(host, ':');

    if (!may_tcp)
        return err_set(e, ERR_USAGE,
                       "%s: everybody who reaches it could use it; give a token with --token-file",
                       address);
    if (!colon || colon == host || !colon[1])
        return err_set(e, ERR_USAGE,
                       "%s: name an address of this host and a port, as in tcp://127.0.0.1:7700; "
                       "not all interfaces are taken unasked",
                       address);
    if (!strncmp(host, "0.0.0.0:", 8) || !strncmp(host, "[::]:", 5) || !strncmp(host, "*:", 2))
        log_warn("%s: listens on every interface of this host; anyone with the token may connect, "
                 "and the token travels unencrypted",
                 address);
    return ERR_OK;
}

static enum err_code bind_tcp(struct listener *l, const char *address, int *in_use, struct err *e)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_PASSIVE };
    const char *host = address + strlen("tcp://"), *colon = strrchr(host, ':');
    char name[256];
    struct addrinfo *found = NULL;
    int one = 1;

    if (*host == '[' && colon > host + 1 && colon[-1] == ']')
        snprintf(name, sizeof name, "%.*s", (int)(colon - host - 2), host + 1);
    else
        snprintf(name, sizeof name, "%.*s", (int)(colon - host), host);
    int rc = getaddrinfo(strcmp(name, "*") == 0 ? NULL : name, colon + 1, &hints, &found);
    if (rc)
        return err_set(e, ERR_USAGE, "%s: no address of this host: %s", address, gai_strerror(rc));
    l->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd >= 0)
        setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    rc = l->fd < 0 || bind(l->fd, found->ai_addr, found->ai_addrlen) || listen(l->fd, BACKLOG);
    int why = errno;
    freeaddrinfo(found);
    errno = why;
    *in_use = rc && why == EADDRINUSE;
    return rc ? err_sys(e, "%s: cannot listen there", address) : ERR_OK;
}

static void tell_bound(const struct listener *l, const char *address, char *bound, size_t size)
{
    struct sockaddr_in6 at = { 0 }; /* sin_port of IPv4 lies at the same place */
    socklen_t len = sizeof at;
    const char *colon = strrchr(address, ':');

    snprintf(bound, size, "%s", address);
    if (!l->tcp || getsockname(l->fd, (struct sockaddr *)&at, &len))
        return;
    snprintf(bound, size, "%.*s:%d", (int)(colon - address), address, ntohs(at.sin6_port));
}

/* ---- Both ---------------------------------------------------------------- */

/* The mode is set before the path exists, so that it is never wider, and again behind umask. */
static enum err_code bind_path(struct listener *l, const char *path, struct err *e)
{
    struct sockaddr_un sun = { .sun_family = AF_UNIX };
    struct stat st;

    memcpy(sun.sun_path, path, strlen(path) + 1);
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0 || fchmod(l->fd, SOCKET_MODE) || bind(l->fd, (struct sockaddr *)&sun, sizeof sun))
        return err_sys(e, "%s: cannot listen there; is its directory there, and writable", path);
    if (chmod(path, SOCKET_MODE) || listen(l->fd, BACKLOG) || stat(path, &st)) {
        enum err_code rc = err_sys(e, "%s: cannot listen there", path);
        unlink(path);
        return rc;
    }
    memcpy(l->path, path, strlen(path) + 1);
    l->device = st.st_dev;
    l->inode = st.st_ino;
    return ERR_OK;
}

static enum err_code take_path(struct listener *l, const char *path, int *in_use, struct err *e)
{
    enum place place = PLACE_FREE;

    TRY(look_at(path, &place, e));
    if (place == PLACE_LIVE) {
        *in_use = 1;
        return err_set(e, ERR_IO,
                       "%s: a live process listens there; stop it, or choose another --listen",
                       path);
    }
    if (place == PLACE_STALE) {
        log_info("%s: left by a process that is gone; taken over", path);
        if (unlink(path) && errno != ENOENT)
            return err_sys(e, "%s: cannot be taken over", path);
    }
    return bind_path(l, path, e);
}

enum err_code listen_open(struct listener *l, const char *address, int may_tcp, char *bound,
                          size_t size, struct err *e)
{
    const struct timespec step = { .tv_nsec = RETRY_STEP_MS * 1000000L };
    int tcp = !strncmp(address, "tcp://", 6), in_use;
    enum err_code rc;

    if (!strncmp(address, "ipc://", 6))
        TRY(check_path(address + 6, e));
    else if (tcp)
        TRY(check_tcp(address, may_tcp, e));
    else
        return err_set(e, ERR_USAGE,
                       "%.80s: no address to listen at; give ipc://PATH or tcp://HOST:PORT",
                       address);
    for (int waited_ms = 0;; waited_ms += RETRY_STEP_MS) {
        *l = (struct listener){ .fd = -1, .tcp = tcp };
        in_use = 0;
        rc = tcp ? bind_tcp(l, address, &in_use, e) : take_path(l, address + 6, &in_use, e);
        if (rc == ERR_OK)
            break;
        if (l->fd >= 0)
            close(l->fd);
        if (!in_use || waited_ms >= SERVER_BIND_MS)
            return rc;
        nanosleep(&step, NULL);
    }
    if (bound)
        tell_bound(l, address, bound, size);
    return ERR_OK;
}

void listen_close(struct listener *l)
{
    struct stat st;

    if (*l->path && lstat(l->path, &st) == 0 && st.st_dev == l->device && st.st_ino == l->inode)
        unlink(l->path);
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}
