/* SPDX-License-Identifier: MIT */
/* daemon/journal_db.h - the SQL of the journal; one thread at a time. */
#ifndef DAEMON_JOURNAL_DB_H
#define DAEMON_JOURNAL_DB_H

#include <sqlite3.h>

#include "daemon/journal.h"

enum db_statement {
#define X(NAME, sql) DB_##NAME,
#include "daemon/journal_sql.def"
#undef X
    DB_STATEMENTS
};

/* A connection with its statements. */
struct journal_db {
    sqlite3 *sql;
    sqlite3_stmt *statements[DB_STATEMENTS];
    int sync_full; /* what the connection is set to */
};

/* Opens DIR/journal.db and makes the tables.  With `check` it is read through first.
 * Errors: ERR_FORMAT, it is not sound; ERR_IO. */
enum err_code journal_db_open(struct journal_db *db, const char *path, int check, struct err *e);
void journal_db_close(struct journal_db *db);

/* A transaction of all entries of a list that is not empty; its steps get the numbers after
 * last_seq.  Returns 0, or -1 with the reason in e; then nothing was written. */
int journal_db_write(struct journal_db *db, const struct journal_entry *list, int64_t last_seq,
                     int sync_full, struct err *e);

/* Notes a value under a key, in a transaction of its own. */
int journal_db_set_meta(struct journal_db *db, const char *key, const char *value, struct err *e);

/* Forgets steps before seq; ended requests older than ended_ms; one batch of the oldest ones. */
int journal_db_forget_steps(struct journal_db *db, int64_t seq, struct err *e);
int journal_db_forget_older(struct journal_db *db, int64_t ended_ms, struct err *e);
int journal_db_forget_some(struct journal_db *db, struct err *e);

/* Bytes that rows take. */
int64_t journal_db_bytes(struct journal_db *db);

int64_t journal_db_next_number(struct journal_db *db);
int64_t journal_db_last_step(struct journal_db *db);

/* Runs a prepared statement that gives request rows, and calls fn for each. */
int journal_db_rows(sqlite3_stmt *s, journal_row_fn *fn, void *arg);

/* All steps in order: fn(arg, seq, number, token). */
typedef int journal_step_fn(void *arg, int64_t seq, int64_t number, int32_t token);
enum err_code journal_db_steps(struct journal_db *db, journal_step_fn *fn, void *arg,
                               struct err *e);

#endif
