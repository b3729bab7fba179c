/* SPDX-License-Identifier: MIT */
/* rank/dial.c - see dial.h. */
#include "rank/dial.h"

#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/tcp.h"

/* A name that begins with '@' is in the abstract space: nothing of it lies in a file system. */
static enum err_code dial_unix(int *out, const char *name, struct err *e)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    size_t n = strlen(name);

    if (n < 2 || n >= sizeof a.sun_path)
        return err_set(e, ERR_USAGE, "unix:%.40s: no name of a socket", name);
    memcpy(a.sun_path, name, n);
    if (name[0] == '@')
        a.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(e, "cannot make a socket");
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (name[0] != '@'));
    if (connect(fd, (struct sockaddr *)&a, len)) {
        err_sys(e, "unix:%s: cannot reach latentd", name);
        close(fd);
        return ERR_IO;
    }
    *out = fd;
    return ERR_OK;
}

static enum err_code dial_tcp(int *out, const char *where, struct err *e)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    const char *colon = strrchr(where, ':');
    char host[256];
    int fd = -1;

    if (!colon || colon == where || (size_t)(colon - where) >= sizeof host)
        return err_set(e, ERR_USAGE, "tcp:%.40s: give HOST:PORT", where);
    (void)snprintf(host, sizeof host, "%.*s", (int)(colon - where), where);
    int rc = getaddrinfo(host, colon + 1, &hints, &list);
    if (rc)
        return err_set(e, ERR_IO, "tcp:%s: %s", where, gai_strerror(rc));
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen)) {
            err_sys(e, "tcp:%s: cannot reach latentd", where);
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0)
        return ERR_IO;
    tcp_tune(fd);
    *out = fd;
    return ERR_OK;
}

static enum err_code dial_one(int *fd, const char *address, struct err *e)
{
    if (strncmp(address, "unix:", 5) == 0)
        return dial_unix(fd, address + 5, e);
    if (strncmp(address, "tcp:", 4) == 0)
        return dial_tcp(fd, address + 4, e);
    return err_set(e, ERR_USAGE, "--connect %.60s: give unix:NAME or tcp:HOST:PORT", address);
}

enum err_code dial(int *fd, const char *address, struct err *e)
{
    enum err_code rc = ERR_USAGE;
    char one[512];

    while (*address) {
        size_t n = strcspn(address, ",");
        if (n >= sizeof one)
            return err_set(e, ERR_USAGE, "--connect: an address of %zu letters", n);
        memcpy(one, address, n);
        one[n] = 0;
        rc = dial_one(fd, one, e);
        if (rc != ERR_IO)
            return rc;
        address += n + (address[n] == ',');
    }
    return rc;
}
