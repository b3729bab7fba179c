/* SPDX-License-Identifier: MIT */
/* tests/support/sp.c - see sp.h. */
#include "tests/support/sp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int connect_to(const char *address)
{
    struct sockaddr_un sun = { .sun_family = AF_UNIX };
    struct sockaddr_in sin = { .sin_family = AF_INET };
    int tcp = !strncmp(address, "tcp://127.0.0.1:", 16);
    int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

    if (fd < 0)
        return -1;
    if (tcp) {
        sin.sin_port = htons((uint16_t)atoi(address + 16));
        sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        rc = connect(fd, (struct sockaddr *)&sin, sizeof sin);
    } else {
        snprintf(sun.sun_path, sizeof sun.sun_path, "%s", address + strlen("ipc://"));
        rc = connect(fd, (struct sockaddr *)&sun, sizeof sun);
    }
    if (rc) {
        close(fd);
        return -1;
    }
    return fd;
}

int sp_connect_bare(const char *address)
{
    int fd = -1;

    for (int i = 0; i < SP_PATIENCE_MS / 10 && fd < 0; i++) { /* the backlog may be full */
        fd = connect_to(address);
        if (fd < 0)
            usleep(10000);
    }
    return fd;
}

static int read_all(int fd, void *to, size_t n)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    for (size_t done = 0; done < n;) {
        if (poll(&p, 1, SP_PATIENCE_MS) != 1)
            return -1;
        ssize_t got = read(fd, (char *)to + done, n - done);
        if (got <= 0)
            return -1;
        done += (size_t)got;
    }
    return 0;
}

int sp_connect(const char *address)
{
    int fd = sp_connect_bare(address);
    char hello[8];

    if (fd >= 0 && (send(fd, "\0SP\0\0\x30\0\0", 8, MSG_NOSIGNAL) != 8 || read_all(fd, hello, 8) ||
                    memcmp(hello, "\0SP\0\0\x31", 6) != 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int sp_send(int fd, int tcp, uint32_t id, const void *bytes, size_t n)
{
    uint8_t head[13] = { 1 };
    uint64_t len = n + 4;
    uint32_t wire_id = htonl(id | 0x80000000u);

    for (int i = 0; i < 8; i++)
        head[1 + i] = (uint8_t)(len >> (56 - 8 * i));
    memcpy(head + 9, &wire_id, 4);
    if (send(fd, head + tcp, 13 - (size_t)tcp, MSG_NOSIGNAL | MSG_MORE) < 0)
        return -1;
    return send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
}

uint8_t *sp_recv(int fd, int tcp, uint32_t *id, size_t *n)
{
    uint8_t head[13] = { 0 }, *bytes = NULL;
    uint64_t len = 0;

    if (read_all(fd, head + tcp, 13 - (size_t)tcp))
        return NULL;
    for (int i = 0; i < 8; i++)
        len = len << 8 | head[1 + i];
    if ((!tcp && head[0] != 1) || len < 4 || len > 4 + PROTO_ANSWER_MAX)
        return NULL;
    *n = (size_t)len - 4;
    memcpy(id, head + 9, 4);
    *id = ntohl(*id) & 0x7fffffffu;
    bytes = malloc(*n + 1);
    if (bytes && read_all(fd, bytes, *n)) {
        free(bytes);
        bytes = NULL;
    }
    return bytes;
}

int sp_ask(int fd, int tcp, uint32_t id, const Latentd__Envelope *m)
{
    uint8_t *bytes;
    size_t n;

    if (envelope_encode(&bytes, &n, m, PROTO_QUESTION_MAX, NULL) != ERR_OK)
        return -1;
    int rc = sp_send(fd, tcp, id, bytes, n);
    free(bytes);
    return rc;
}

Latentd__Envelope *sp_answer(int fd, int tcp, uint32_t *id)
{
    Latentd__Envelope *m = NULL;
    struct err e = { 0 };
    size_t n;
    uint8_t *bytes = sp_recv(fd, tcp, id, &n);

    if (bytes && envelope_decode(&m, bytes, n, PROTO_ANSWER_MAX, NULL, &e) != ERR_OK)
        fprintf(stderr, "sp_answer: %s\n", e.msg);
    free(bytes);
    return m;
}
