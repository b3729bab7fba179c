/* SPDX-License-Identifier: MIT */
/* daemon/driver_parts.h - what driver.c and driver_turn.c share. */
#ifndef DAEMON_DRIVER_PARTS_H
#define DAEMON_DRIVER_PARTS_H

#include <pthread.h>

#include "daemon/driver.h"

struct driver {
    struct driver_options opt;
    pthread_t thread;
    int news_fd; /* eventfd: something new in the book, new ranks, or the end */
    struct scheduler *scheduler;
    struct link_ready ready;
    int fd;      /* of the link, -1: none; the thread's own, changed under the lock */
    int faulted; /* rank 0 has said why it leaves */
    int64_t step_id;
    int n_sent;     /* steps whose results are to come: at most 2 */
    double round_s; /* when the last result came, or the ranks got work again */
    struct str out;
    struct journal_entry *entry; /* what is recorded next */
    struct request **found;      /* [n_found] of cap_found */
    int n_found, cap_found;

    pthread_mutex_t lock;
    int attached_fd, stopping; /* attached: -1, or a link that the thread has not taken yet */
};

/* ---- driver.c --------------------------------------------------------------- */

int driver_is_stopping(struct driver *d);

/* Waits for news, or for bytes on the link if there is one.  Returns 1 if the link can be read. */
int driver_wait(struct driver *d, int link_fd, int64_t ms);

/* ---- driver_turn.c ---------------------------------------------------------- */

/* Hands the journal what is to be recorded, if there is anything. */
void driver_push_entry(struct driver *d);

/* New requests, or all that live, into the scheduler. */
enum err_code driver_take_requests(struct driver *d, int all, struct err *e);

/* Ends those that are cancelled or late, in the entry that is not pushed yet.  *next_ms: when the
 * next deadline is, 0: none. */
enum err_code driver_end_wanted(struct driver *d, int64_t *next_ms, struct err *e);

/* How long to wait: until the next deadline, but at most so long. */
int64_t driver_until(int64_t next_ms, int64_t most);

/* The next frame of the ranks, or what is wrong with them: ERR_CANCELLED when the end has come.
 * Whoever cancels, or is late, is served meanwhile: loading and long steps take their time. */
enum err_code driver_await_frame(struct driver *d, struct link_frame *f, int64_t patience_ms,
                                 struct err *e);

/* What the ranks say of themselves, and the texts of their plan; both free the frame. */
enum err_code driver_take_ranks(struct driver *d, struct link_frame *f, struct err *e);
enum err_code driver_take_plan(struct driver *d, struct link_frame *f, struct err *e);

/* One turn: a step if there is something to compute.  *idle: there was not.  What the step before
 * made is recorded once the ranks compute. */
enum err_code driver_turn(struct driver *d, int *idle, struct err *e);

/* A step of no tokens through every rank. */
enum err_code driver_probe(struct driver *d, struct err *e);

#endif
