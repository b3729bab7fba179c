/* SPDX-License-Identifier: MIT */
/* daemon/journal_db.c - see journal_db.h. */
#include "daemon/journal_db.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rank/wire.h"

enum { STEP_ITEM = 12, BUSY_MS = 5000 };

static const char *const statements[DB_STATEMENTS] = {
#define X(NAME, sql) sql,
#include "daemon/journal_sql.def"
#undef X
};

static const char tables[] =
    "CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS request(number INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE, spec BLOB NOT NULL, accepted_ms INTEGER NOT NULL,"
    " first_token_ms INTEGER NOT NULL DEFAULT 0, ended_ms INTEGER NOT NULL DEFAULT 0,"
    " n_cached INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '',"
    " message TEXT NOT NULL DEFAULT '', tokens BLOB);"
    "CREATE INDEX IF NOT EXISTS request_live ON request(number) WHERE reason = '';"
    "CREATE INDEX IF NOT EXISTS request_ended ON request(ended_ms) WHERE reason != '';"
    "CREATE TABLE IF NOT EXISTS step(seq INTEGER PRIMARY KEY, tokens BLOB NOT NULL);";

/* ---- The connection ------------------------------------------------------- */

static enum err_code db_err(struct journal_db *db, const char *what, struct err *e)
{
    int rc = db->sql ? sqlite3_errcode(db->sql) & 0xff : SQLITE_NOMEM;
    enum err_code code = rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB ? ERR_FORMAT
                         : rc == SQLITE_NOMEM                        ? ERR_NOMEM
                                                                     : ERR_IO;

    return err_set(e, code, "journal: %s: %s", what,
                   db->sql ? sqlite3_errmsg(db->sql) : "no memory");
}

static enum err_code exec(struct journal_db *db, const char *sql, struct err *e)
{
    return sqlite3_exec(db->sql, sql, NULL, NULL, NULL) == SQLITE_OK
               ? ERR_OK
               : db_err(db, "cannot set up", e);
}

/* The answer is one row with "ok". */
static enum err_code quick_check(struct journal_db *db, struct err *e)
{
    sqlite3_stmt *s = NULL;
    enum err_code rc = ERR_OK;

    if (sqlite3_prepare_v2(db->sql, "PRAGMA quick_check(1)", -1, &s, NULL) != SQLITE_OK ||
        sqlite3_step(s) != SQLITE_ROW)
        rc = db_err(db, "cannot be read", e);
    else if (strcmp((const char *)sqlite3_column_text(s, 0), "ok") != 0)
        rc = err_set(e, ERR_FORMAT, "journal: %s", (const char *)sqlite3_column_text(s, 0));
    sqlite3_finalize(s);
    return rc;
}

enum err_code journal_db_open(struct journal_db *db, const char *path, int check, struct err *e)
{
    enum err_code rc;

    *db = (struct journal_db){ 0 };
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(path, &db->sql, flags, NULL) != SQLITE_OK) {
        rc = db_err(db, "cannot be opened", e);
        goto out;
    }
    sqlite3_busy_timeout(db->sql, BUSY_MS);
    /* Little cache, in KiB: only the ends of tables and two small indexes are met again, and three
     * connections with SQLite's usual 2 MiB are most of what the daemon would grow by. */
    if ((rc = exec(db,
                   "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0;"
                   " PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864;"
                   " PRAGMA cache_size=-128;",
                   e)))
        goto out;
    if (check && (rc = quick_check(db, e)) != ERR_OK)
        goto out;
    if (check && (rc = exec(db, tables, e)) != ERR_OK)
        goto out;
    db->sync_full = 1;
    for (int i = 0; i < DB_STATEMENTS; i++)
        if (sqlite3_prepare_v3(db->sql, statements[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &db->statements[i], NULL) != SQLITE_OK) {
            rc = db_err(db, statements[i], e);
            goto out;
        }
    return ERR_OK;
out:
    journal_db_close(db);
    return rc;
}

void journal_db_close(struct journal_db *db)
{
    for (int i = 0; i < DB_STATEMENTS; i++)
        sqlite3_finalize(db->statements[i]);
    sqlite3_close(db->sql);
    *db = (struct journal_db){ 0 };
}

/* Runs a statement that gives no rows. */
static enum err_code run(struct journal_db *db, enum db_statement which, struct err *e)
{
    sqlite3_stmt *s = db->statements[which];
    enum err_code rc = ERR_OK;

    if (sqlite3_step(s) != SQLITE_DONE)
        rc = db_err(db, "cannot be written", e);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return rc;
}

static int64_t ask_number(struct journal_db *db, enum db_statement which)
{
    sqlite3_stmt *s = db->statements[which];
    int64_t v = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;

    sqlite3_reset(s);
    return v;
}

/* ---- Writing -------------------------------------------------------------- */

static enum err_code write_accept(struct journal_db *db, const struct journal_entry *x,
                                  struct err *e)
{
    sqlite3_stmt *s = db->statements[DB_ACCEPT];

    sqlite3_bind_int64(s, 1, x->number);
    sqlite3_bind_text(s, 2, x->id, -1, SQLITE_STATIC);
    sqlite3_bind_blob64(s, 3, x->spec.data, x->spec.len, SQLITE_STATIC);
    sqlite3_bind_int64(s, 4, x->ms);
    return run(db, DB_ACCEPT, e);
}

/* Item: number i64, token i32, little-endian. */
static enum err_code write_tokens(struct journal_db *db, const struct journal_entry *x, int64_t seq,
                                  struct err *e)
{
    struct str blob = { 0 };
    enum err_code rc;

    for (int i = 0; i < x->n_tokens; i++) {
        wire_put_i64(&blob, x->tokens[i].number);
        wire_put_i32(&blob, x->tokens[i].token);
    }
    if (blob.failed)
        return err_set(e, ERR_NOMEM, "journal: no memory for a step of %d tokens", x->n_tokens);
    sqlite3_bind_int64(db->statements[DB_STEP], 1, seq);
    sqlite3_bind_blob64(db->statements[DB_STEP], 2, blob.data, blob.len, SQLITE_STATIC);
    rc = run(db, DB_STEP, e);
    str_free(&blob);
    return rc;
}

static enum err_code write_end(struct journal_db *db, const struct journal_end *end, int64_t ms,
                               struct err *e)
{
    sqlite3_stmt *s = db->statements[DB_END];

    sqlite3_bind_int64(s, 1, end->number);
    sqlite3_bind_text(s, 2, reason_name(end->reason), -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 3, end->message, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 4, end->n_cached);
    sqlite3_bind_int64(s, 5, end->first_token_ms);
    sqlite3_bind_int64(s, 6, ms);
    sqlite3_bind_blob64(s, 7, end->tokens, (uint64_t)end->n_tokens * sizeof *end->tokens,
                        SQLITE_STATIC);
    return run(db, DB_END, e);
}

/* *seq: of the last step. */
static enum err_code write_entry(struct journal_db *db, const struct journal_entry *x, int64_t *seq,
                                 struct err *e)
{
    if (x->spec.len)
        return write_accept(db, x, e);
    if (x->n_tokens)
        TRY(write_tokens(db, x, ++*seq, e));
    for (int i = 0; i < x->n_ends; i++)
        TRY(write_end(db, &x->ends[i], x->ms, e));
    return ERR_OK;
}

/* A file that was removed or replaced takes writes without complaint, and nobody would find them
 * again. */
static enum err_code still_there(struct journal_db *db, struct err *e)
{
    const char *path = sqlite3_db_filename(db->sql, "main");
    int moved = 0;

    (void)sqlite3_file_control(db->sql, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    if (!moved && access(sqlite3_filename_wal(path), F_OK) == 0)
        return ERR_OK;
    return err_set(e, ERR_IO,
                   "journal: %s, or its -wal, was removed or replaced; put it back, or start the "
                   "daemon again",
                   path);
}

/* One row is a transaction by itself, without two more statements. */
static int is_one_row(const struct journal_entry *list)
{
    return !list->next && (list->spec.len > 0 || list->n_ends == 0);
}

int journal_db_write(struct journal_db *db, const struct journal_entry *list, int64_t last_seq,
                     int sync_full, struct err *e)
{
    int alone = is_one_row(list);
    enum err_code rc;

    if (db->sync_full != sync_full &&
        exec(db, sync_full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", e) == ERR_OK)
        db->sync_full = sync_full;
    rc = still_there(db, e);
    if (rc == ERR_OK && !alone)
        rc = run(db, DB_BEGIN, e);
    for (const struct journal_entry *x = list; x && rc == ERR_OK; x = x->next)
        rc = write_entry(db, x, &last_seq, e);
    if (rc == ERR_OK && !alone)
        rc = run(db, DB_COMMIT, e);
    if (rc != ERR_OK && !sqlite3_get_autocommit(db->sql))
        (void)run(db, DB_ROLLBACK, NULL);
    return rc == ERR_OK ? 0 : -1;
}

int journal_db_set_meta(struct journal_db *db, const char *key, const char *value, struct err *e)
{
    sqlite3_stmt *s = db->statements[DB_SET_META];

    sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 2, value, -1, SQLITE_STATIC);
    return still_there(db, e) == ERR_OK && run(db, DB_SET_META, e) == ERR_OK ? 0 : -1;
}

static int forget(struct journal_db *db, enum db_statement which, int64_t v, struct err *e)
{
    if (sqlite3_bind_parameter_count(db->statements[which]) > 0)
        sqlite3_bind_int64(db->statements[which], 1, v);
    return run(db, which, e) == ERR_OK ? 0 : -1;
}

int journal_db_forget_steps(struct journal_db *db, int64_t seq, struct err *e)
{
    return forget(db, DB_FORGET_STEPS, seq, e);
}

int journal_db_forget_older(struct journal_db *db, int64_t ended_ms, struct err *e)
{
    return forget(db, DB_FORGET_OLDER, ended_ms, e);
}

int journal_db_forget_some(struct journal_db *db, struct err *e)
{
    return forget(db, DB_FORGET_SOME, 0, e);
}

/* ---- Reading -------------------------------------------------------------- */

int64_t journal_db_bytes(struct journal_db *db)
{
    return ask_number(db, DB_PAGES) * 4096;
}

int64_t journal_db_next_number(struct journal_db *db)
{
    return ask_number(db, DB_LAST_NUMBER) + 1;
}

int64_t journal_db_last_step(struct journal_db *db)
{
    return ask_number(db, DB_LAST_STEP);
}

static enum reason reason_by_name(const char *name)
{
    for (int i = 0; i <= REASON_FAILED; i++)
        if (strcmp(reason_name((enum reason)i), name) == 0)
            return (enum reason)i;
    return REASON_FAILED;
}

static const char *column_text(sqlite3_stmt *s, int i)
{
    const char *t = (const char *)sqlite3_column_text(s, i);

    return t ? t : "";
}

int journal_db_rows(sqlite3_stmt *s, journal_row_fn *fn, void *arg)
{
    int n = 0, stop = 0;

    while (!stop && sqlite3_step(s) == SQLITE_ROW) {
        struct journal_row row = {
            .number = sqlite3_column_int64(s, 0),
            .id = column_text(s, 1),
            .spec = sqlite3_column_blob(s, 2),
            .n_spec = (size_t)sqlite3_column_bytes(s, 2),
            .accepted_ms = sqlite3_column_int64(s, 3),
            .first_token_ms = sqlite3_column_int64(s, 4),
            .ended_ms = sqlite3_column_int64(s, 5),
            .n_cached = sqlite3_column_int64(s, 6),
            .reason = reason_by_name(column_text(s, 7)),
            .message = column_text(s, 8),
            .tokens = sqlite3_column_blob(s, 9),
            .n_tokens = sqlite3_column_bytes(s, 9) / (int)sizeof(int32_t),
        };
        stop = fn(arg, &row);
        n++;
    }
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return n;
}

enum err_code journal_db_steps(struct journal_db *db, journal_step_fn *fn, void *arg, struct err *e)
{
    sqlite3_stmt *s = db->statements[DB_STEPS];
    int rc, stop = 0;

    while (!stop && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        int64_t seq = sqlite3_column_int64(s, 0);
        const void *blob = sqlite3_column_blob(s, 1);
        struct wire w = wire_over(blob, (size_t)sqlite3_column_bytes(s, 1));
        while (!stop && wire_left(&w) >= STEP_ITEM) {
            int64_t number = wire_get_i64(&w);
            stop = fn(arg, seq, number, wire_get_i32(&w));
        }
    }
    enum err_code code = stop ? err_set(e, ERR_NOMEM, "journal: no memory to read it")
                         : rc == SQLITE_DONE ? ERR_OK
                                             : db_err(db, "cannot be read", e);
    sqlite3_reset(s);
    return code;
}
