/* SPDX-License-Identifier: MIT */
/* daemon/server_listen.h - may this address be taken, and taking it. */
#ifndef DAEMON_SERVER_LISTEN_H
#define DAEMON_SERVER_LISTEN_H

#include <sys/types.h>

#include "daemon/server.h"

/* A socket that listens.  Of ipc://, path is its path, taken away again by listen_close unless
 * somebody else's file is there by then. */
struct listener {
    int fd, tcp;
    char path[108];
    dev_t device;
    ino_t inode;
};

/* may_tcp: tcp:// has a token.  See server_listen.  Not blocking, closed on exec. */
enum err_code listen_open(struct listener *l, const char *address, int may_tcp, char *bound,
                          size_t size, struct err *e);
void listen_close(struct listener *l);

#endif
