/* SPDX-License-Identifier: MIT */
/* daemon/journal.h - what must survive: accepted requests and the tokens they were given.
 *
 * SQLite with a write-ahead log, in a thread of its own.  Entries are pushed in order, and settle
 * in order: the thread takes all that wait, commits them at once, then says so.  Whoever shows only
 * what has settled never shows what a crash could take back.  Steps settle even before their commit
 * where journal_tail.h keeps them meanwhile; commits gather them then, for a tenth of a second.
 *
 *     request   one row each: what was asked for, and at the end all its tokens
 *     step      one row a step: (request, token) of those that still run
 *     meta      what the bits depend on
 *
 * Accepting commits with synchronous=FULL; steps with NORMAL, which survives the death of the
 * process though not of the machine, or FULL (--journal-sync full).  Where a write fails nothing is
 * lost: steps wait and are tried again each second, new requests are refused.
 *
 * A file that is not sound is set aside under another name, with a line, and a new one begun.
 */
#ifndef DAEMON_JOURNAL_H
#define DAEMON_JOURNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "daemon/requests.h"

struct journal_options {
    const char *dir; /* created if need be, mode 0700; the file is journal.db */
    int sync_full;
    int64_t keep_ms, keep_bytes; /* of ended requests; whichever ends first */
};

struct journal_token {
    int64_t number;   /* of the request */
    int64_t position; /* among its tokens, from 0 */
    int32_t token;
};

struct journal_end {
    int64_t number;
    enum reason reason;
    char message[256];
    int64_t n_cached, first_token_ms;
    int32_t *tokens; /* [n_tokens], all of the request */
    int64_t n_tokens;
};

/* One thing to record.  Made by journal_entry_new, the journal's once pushed. */
struct journal_entry {
    struct journal_entry *next;
    int refused; /* set for an accepted request that could not be recorded */
    int64_t ms;  /* Unix time of the event */
    /* A request: */
    int64_t number;
    char id[REQUEST_ID_MAX + 1];
    struct str spec; /* empty: this entry is a step */
    /* A step: */
    struct journal_token *tokens; /* [n_tokens] */
    int n_tokens, cap_tokens;
    struct journal_end *ends; /* [n_ends] */
    int n_ends, cap_ends;
    /* The journal's own: */
    int in_tail; /* its tokens are safe before their commit */
    int shown;   /* it has settled before: its commit brings nothing new */
};

struct journal_entry *journal_entry_new(int64_t ms); /* NULL: no memory */
void journal_entry_free(struct journal_entry *x);

/* Adds to a step.  Returns 0, or -1: no memory.  Takes end->tokens. */
int journal_entry_add_token(struct journal_entry *x, int64_t number, int64_t position,
                            int32_t token);
int journal_entry_add_end(struct journal_entry *x, const struct journal_end *end);

/* A request as it was found. */
struct journal_row {
    int64_t number;
    const char *id;
    const void *spec;
    size_t n_spec;
    int64_t accepted_ms, first_token_ms, ended_ms, n_cached;
    enum reason reason; /* REASON_NONE: it has not ended */
    const char *message;
    const int32_t *tokens; /* [n_tokens] */
    int64_t n_tokens;
};
/* Returns 0 to go on. */
typedef int journal_row_fn(void *arg, const struct journal_row *row);

/* Called without any lock, by the journal's thread or in journal_push: entries in order, for the
 * time of the call; those with `shown` a second time, after their commit.  With the list NULL: only
 * the state has changed. */
typedef void journal_settled_fn(void *arg, struct journal_entry *list);

struct journal;

/* Locks the directory and opens the file.  Errors: ERR_USAGE, another process has the directory;
 * ERR_IO, it can be neither made nor written. */
enum err_code journal_open(struct journal **out, const struct journal_options *o, struct err *e);

/* Reads back the requests that have not ended, oldest first, each with its tokens so far.  Before
 * journal_start.  Errors: ERR_IO; ERR_NOMEM. */
enum err_code journal_read_live(struct journal *j, journal_row_fn *fn, void *arg, struct err *e);

/* The number that the next request may have, as the file knows. */
int64_t journal_next_number(const struct journal *j);

/* A value of the meta table, "" if there is none; at most size - 1 bytes.  Before journal_start. */
void journal_get_meta(struct journal *j, const char *key, char *buf, size_t size);
/* Any time. */
void journal_set_meta(struct journal *j, const char *key, const char *value);

enum err_code journal_start(struct journal *j, journal_settled_fn *fn, void *arg, struct err *e);

/* Records what waits, as far as that works, and closes. */
void journal_close(struct journal **j);

/* Steps come from one thread at a time. */
void journal_push(struct journal *j, struct journal_entry *x);

/* Forgets what has ended.  Before journal_start.  Errors: ERR_IO. */
enum err_code journal_forget_ended(struct journal *j, struct err *e);

/* Whether the last write worked; why: if not, one line. */
int journal_ok(struct journal *j, char *why, size_t size);

/* Waits until fewer than 64 steps are unrecorded and none is older than a second, or until
 * journal_hurry.  Returns 0, or -1 after journal_hurry. */
int journal_wait_room(struct journal *j);
void journal_hurry(struct journal *j);

/* A request that is no longer in memory, by id; the newest ended ones of any client, or of one.
 * Any thread.  Returns the number of rows given to fn. */
int journal_find(struct journal *j, const char *id, journal_row_fn *fn, void *arg);
int journal_list(struct journal *j, int max, journal_row_fn *fn, void *arg);

#endif
