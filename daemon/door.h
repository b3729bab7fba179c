/* SPDX-License-Identifier: MIT */
/* daemon/door.h - the sockets at which rank 0 reports to the coordinator that had it started.
 *
 * One is in the abstract space of this host and listens to this user alone.  Where ranks may be on
 * other hosts there is one of TCP too.  Whoever calls must show the token that only started
 * processes find in their environment (LATENTD_LINK_TOKEN): first of all, and within seconds.
 * Callers that say nothing hold up nobody.
 *
 * For the main thread alone.
 */
#ifndef DAEMON_DOOR_H
#define DAEMON_DOOR_H

#include <poll.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { DOOR_LISTENERS = 2, DOOR_CALLERS = 8, DOOR_FDS = DOOR_LISTENERS + DOOR_CALLERS };

/* Somebody who has not said enough yet. */
struct door_caller {
    int fd;          /* -1: none */
    int near, begun; /* begun: a part of HELLO is there */
    int64_t until_ms;
};

struct door {
    char token[65];                /* hexadecimal */
    char token_word[96];           /* LATENTD_LINK_TOKEN=... */
    char addresses[400];           /* what `latentd-rank --connect` takes */
    int listen_fd[DOOR_LISTENERS]; /* -1: none; the first is of this host */
    struct door_caller callers[DOOR_CALLERS];
};

/* far: rank 0 may be on another host.  Errors: ERR_IO. */
enum err_code door_open(struct door *d, int far, struct err *e);
void door_close(struct door *d);

/* Descriptors to wait for, at most DOOR_FDS; returns how many. */
int door_fds(const struct door *d, struct pollfd *fds);

/* Who has shown the token: *fd is the caller's to close, *pid the process, or 0 if it is on
 * another host.  Returns 0 if there is nobody.  Never waits. */
int door_answer(struct door *d, int *fd, pid_t *pid);

#endif
