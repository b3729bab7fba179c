/* SPDX-License-Identifier: MIT */
/* daemon/driver.h - the thread that drives the ranks.
 *
 * It takes requests out of the book, lets the scheduler decide, sends steps over the link, and
 * writes what came of them to the journal.  Without ranks it waits, and still ends what is
 * cancelled or late.  When ranks come back it goes on with all that has not ended, from the tokens
 * that are known.
 */
#ifndef DAEMON_DRIVER_H
#define DAEMON_DRIVER_H

#include "daemon/book.h"
#include "daemon/status_board.h"
#include "model/hparams.h"

struct driver_options {
    struct requests *book;
    struct journal *journal;
    struct status *status;
    const struct hparams *hp;
    const char *model_hash;
    int strict_reuse;
    int quit_ms; /* that ranks have to leave in at the end; those in a step finish it first */
    /* Called by the driver's thread: the ranks are of no use any more; why: one line. */
    void (*on_lost)(void *arg, const char *why);
    void (*on_ready)(void *arg); /* they are loaded and serve */
    void *arg;
};

struct driver;

/* Borrows what o names.  Errors: ERR_NOMEM; ERR_IO. */
enum err_code driver_start(struct driver **out, const struct driver_options *o, struct err *e);

/* There is something new in the book.  Any thread, with any lock. */
void driver_wake(struct driver *d);

/* Ranks have come: fd is the link, its HELLO has been read.  Takes the descriptor. */
void driver_attach(struct driver *d, int fd);

/* Lets go of the ranks (with QUIT, if they can hear it) and ends the thread. */
void driver_stop(struct driver **d);

#endif
