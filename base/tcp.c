/* SPDX-License-Identifier: MIT */
/* base/tcp.c - see tcp.h; the options are those of tcp(7). */
#include "base/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/socket.h>

void tcp_tune(int fd)
{
    const struct {
        int level, name, value;
    } wanted[] = {
        {IPPROTO_TCP,  TCP_NODELAY,      1    },
        { SOL_SOCKET,  SO_KEEPALIVE,     1    },
        { IPPROTO_TCP, TCP_KEEPIDLE,     10   }, /* seconds of silence */
        { IPPROTO_TCP, TCP_KEEPINTVL,    5    },
        { IPPROTO_TCP, TCP_KEEPCNT,      4    },
        { IPPROTO_TCP, TCP_USER_TIMEOUT, 30000}, /* milliseconds without an ACK of what was sent */
    };

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        (void)setsockopt(fd, wanted[i].level, wanted[i].name, &wanted[i].value,
                         sizeof wanted[i].value);
}
