/* SPDX-License-Identifier: MIT */
/* daemon/server_parts.h - what the three files of the server share.
 *
 * One thread, the loop (server.c), owns connections (server_conn.c) and calls (server_calls.c): a
 * call is one open question.  Other threads only do two things to a call, under the server's
 * lock: wake it (whoever holds the book's lock), and compute a long one (the long threads).  Both
 * end in the list `ready`, from which the loop takes calls up again.
 *
 * Locks: the book's before the server's.  The loop calls the book without any.
 */
#ifndef DAEMON_SERVER_PARTS_H
#define DAEMON_SERVER_PARTS_H

#include <pthread.h>
#include <sys/epoll.h>

#include "daemon/server_call.h"
#include "daemon/server_listen.h"
#include "proto/sp.h"

enum {
    LISTENERS = 8,
    LONG_THREADS = 2,
    SHORT_BYTES = 1024,          /* of a question that the loop answers itself */
    LONG_BYTES = 64 << 20,       /* of all questions that wait for a long thread */
    OUT_PAUSE_BYTES = 256 << 10, /* answers not taken yet: no question is read meanwhile */
    OUT_ALL_BYTES = 256 << 20,
    IN_ALONE_BYTES = 64 << 10, /* of a half-read question: free of the bound on all together */
    IN_ALL_BYTES = 256 << 20,
    READ_BYTES = 64 << 10,
    SPARE_FILES = 256, /* descriptors that connections leave to the rest of the daemon */
};

/* Whom an event of epoll is for: the first member of each. */
enum source { SOURCE_LISTENER, SOURCE_CONN, SOURCE_WAKE };

struct server_listener {
    enum source source;
    struct listener l;
};

struct call {
    struct requests_waiter waiter; /* first: wake gets this address */
    struct server *server;
    struct conn *conn; /* NULL: gone, nobody wants the answer */
    struct server_call c;
    uint8_t id[SP_ID_MAX];
    size_t n_id;
    double asked_s;
    int parked;
    struct call *next_parked, **at_parked;
    struct call *next_of_conn, **at_of_conn;

    uint8_t *bytes; /* [n_bytes], of a long one until it is read */
    size_t n_bytes;
    int want_token, is_long;

    /* Guarded by the server's lock. */
    struct call *next_ready, **at_ready; /* in `ready` if at_ready */
    struct call *next_long;
    int is_done; /* of a long one: the long thread has let go of it */
};

/* An answer that is not taken yet. */
struct out {
    struct out *next;
    size_t n, done;
    uint8_t bytes[];
};

struct conn {
    enum source source;
    struct server *server;
    int fd, tcp, greeted, trusted, closed;
    uint32_t events; /* that epoll watches */
    uint8_t *in;     /* [n_in], a question that is not there as a whole yet; room for cap_in */
    size_t n_in, cap_in;
    struct out *out_first, **out_last;
    size_t out_bytes;
    double opened_s, read_s, moved_s; /* when bytes last came, and an answer last went on */
    int n_calls, n_long;              /* n_long: of these, with the long threads */
    struct call *calls;
    struct conn *next, **at;  /* of all connections, or of those that are closed */
    struct conn *next_resume; /* in `resume` if resuming */
    int paused, resuming;     /* paused: questions may be there that are not read yet */
};

struct server {
    struct service service;
    struct server_counts counts;
    int epoll, wake_fd;
    enum source wake_source;
    pthread_t loop, long_threads[LONG_THREADS];
    int n_threads; /* that run: the long ones, then the loop */

    /* The loop's. */
    struct conn *conns, *closed, *resume;
    struct call *parked;
    int n_conns, n_tcp_conns, max_conns, accepting;
    size_t in_bytes, out_bytes; /* of all connections */
    uint8_t buffer[READ_BYTES]; /* what is being read */
    double next_s;              /* when the next parked call has waited long enough; 0: none */
    double swept_s, complained_s;

    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t long_work;
    int stopping;
    struct server_listener listeners[LISTENERS];
    int n_listeners;
    struct call *ready, **ready_last;
    struct call *long_first, **long_last;
    size_t long_bytes;
};

/* ---- server.c ----------------------------------------------------------- */

/* A line about clients, at most every ten seconds: they must not fill the log. */
void server_complain(struct server *s, const char *what);

/* Makes the loop look at `ready`. */
void server_signal(struct server *s);

/* ---- server_conn.c ------------------------------------------------------ */

/* Takes fd.  NULL: it is closed. */
struct conn *conn_open(struct server *s, int fd, int tcp, double now_s);
void conn_event(struct conn *c, uint32_t events, double now_s);

/* Takes the connection out of everything.  It, and its calls, go with conn_free_closed: whoever
 * goes through a list of either may go on. */
void conn_close(struct conn *c);
void conn_free_closed(struct server *s);

/* Queues an answer and writes what can be written. */
void conn_send(struct conn *c, const struct call *call);

/* Reads on where a connection was paused. */
void conn_resume_all(struct server *s, double now_s);

/* Closes those that are too slow. */
void conn_sweep(struct server *s, double now_s);

/* ---- server_calls.c ----------------------------------------------------- */

/* A question has come.  -1: no memory.  1: not now, one that takes long is open: a connection has
 * no more than one, so that who asks much at once does not stand before everybody else. */
int call_open(struct conn *conn, const struct sp_frame *f, double now_s);

/* Takes up all calls that were woken or computed. */
void call_take_ready(struct server *s, double now_s);

/* Answers those that have waited long enough, and sets next_s. */
void call_expire(struct server *s, double now_s);

/* The connection is gone: nobody waits for the answers any more. */
void call_drop_all(struct conn *conn);

/* What a long thread runs; arg: the server. */
void *call_run_long(void *arg);

/* Those that are in no connection, once no thread runs. */
void call_free_rest(struct server *s);

#endif
