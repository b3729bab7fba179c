/* SPDX-License-Identifier: MIT */
/* daemon/journal_tail.h - tokens that may be shown although no commit has them yet.
 *
 * A small file that is mapped into memory: what is put there survives the death of the process as
 * soon as it is written, without a system call.  It is a ring of records, each (request, position,
 * token) with a check; the journal's commits follow within a tenth of a second, and their records
 * are overwritten then.  After a crash a record counts if its check is right and its position is
 * the next one of its request: older ones are in the journal, and half a record is none.  Each run
 * begins it anew under a number that the journal notes too: beside another journal, or an older
 * copy of the same, it is ignored.
 *
 * One thread at a time.
 */
#ifndef DAEMON_JOURNAL_TAIL_H
#define DAEMON_JOURNAL_TAIL_H

#include <stdint.h>

#include "base/err.h"
#include "daemon/journal.h"

struct journal_tail {
    int fd;
    struct tail_file *file; /* mapped; NULL: there is no tail */
    int next, used;
};

/* Opens the file, or makes it with all its space.  Errors: ERR_IO; there is no tail then. */
enum err_code journal_tail_open(struct journal_tail *t, const char *path, struct err *e);
void journal_tail_close(struct journal_tail *t);

/* Of the run that has last begun; 0: none has. */
uint64_t journal_tail_run(const struct journal_tail *t);

/* Empties it, under another number. */
void journal_tail_begin(struct journal_tail *t, uint64_t run);

/* Puts tokens in.  Returns 1, or 0: there is no room, or no tail, and nothing is put in. */
int journal_tail_put(struct journal_tail *t, const struct journal_token *tokens, int n);

/* The n oldest that were put in are in the journal: others may have their room. */
void journal_tail_release(struct journal_tail *t, int n);

/* Whether the file still has its name: nobody would find tokens in another one again. */
int journal_tail_is_there(const struct journal_tail *t);

/* All that was put in once and is whole, by request and position.  *found: [*n], the caller's.
 * Errors: ERR_NOMEM. */
enum err_code journal_tail_read(const struct journal_tail *t, struct journal_token **found, int *n,
                                struct err *e);

#endif
