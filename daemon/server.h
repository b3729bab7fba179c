/* SPDX-License-Identifier: MIT */
/* daemon/server.h - where clients knock: the listening side of the protocol.
 *
 * The wire is the SP request/reply protocol of nanomsg and NNG (proto/sp.h).  Neither library
 * listens: nanomsg 1.1.5 aborts on a frame type it does not know, and an ipc:// listener of NNG
 * 1.5.2 is deaf for ever after the first connection that closes before its greeting.  So one
 * thread and epoll do, for thousands of questions that wait; two more compute what takes long,
 * such as tokenizing.  The book of requests (requests.h) wakes the questions that wait for it.
 *
 * A client that misbehaves costs what the bounds below allow and nobody else's service: frames
 * are bounded before they are read, a connection with SERVER_CONN_CALLS open questions is not
 * read, one that does not take its answers, or ends its question, is closed after SERVER_SEND_MS.
 */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include "base/err.h"
#include "daemon/requests.h"
#include "daemon/status.h"

struct gguf;
struct tokenizer;

enum {
    SERVER_CONN_CALLS = 64,  /* questions open on one connection */
    SERVER_CALLS = 16384,    /* in all; where there are more, a connection has one */
    SERVER_TCP_CONNS = 1024, /* connections over tcp://; more are closed */
    SERVER_SEND_MS = 20000,  /* an answer of which no byte is taken so long, or a question begun */
    SERVER_BIND_MS = 2000,   /* a path in use is tried again so long */
};

/* What the server counts, for Metrics. */
struct server_counts {
    _Atomic int64_t connections, open_questions;
    _Atomic int64_t questions, complaints; /* since the start */
};

/* What questions are answered from.  All borrowed, and immutable while the server runs. */
struct service {
    struct requests *book;
    struct status *status;
    const struct tokenizer *tokenizer;
    const struct gguf *gguf;            /* whose chat template counts */
    const char *chat_format;            /* instead of the file's own; NULL: none */
    const char *token;                  /* what clients over tcp:// must know; NULL: no tcp:// */
    const struct server_counts *counts; /* set by server_start */
};

struct server;

/* A server that listens nowhere yet.  s: copied, what it points to is borrowed until server_stop.
 * Errors: ERR_NOMEM; ERR_IO, no threads. */
enum err_code server_start(struct server **out, const struct service *s, struct err *e);

/* Listens at ipc://PATH (mode 0660) or tcp://HOST:PORT.  A socket that a dead process left is taken
 * over; where one is in use it is tried again for SERVER_BIND_MS.  Port 0: any; see bound.
 * bound: at least 128 bytes, the address with its port; may be NULL.
 * Errors: ERR_USAGE, no such address, a path that is no socket, tcp:// without a token or a host;
 * ERR_IO, in use by a live process, or refused by the system. */
enum err_code server_listen(struct server *s, const char *address, char *bound, size_t size,
                            struct err *e);

/* Closes everything; clients that wait will ask again elsewhere.  Blocks until no thread is in the
 * book any more on the server's behalf. */
void server_stop(struct server **s);

#endif
