/* SPDX-License-Identifier: MIT */
/* daemon/journal.c - the threads of the journal and its queue; see journal.h.
 *
 * Reading order: notes; the writer; checkpoints; the interface.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/priority.h"
#include "daemon/clock.h"
#include "daemon/journal_parts.h"

enum {
    MAX_UNRECORDED = 64,
    MAX_AGE_MS = 1000,
    RETRY_MS = 1000,
    TIDY_MS = 30000,
    CHECKPOINT_MS = 1000,
    GATHER_MS = 100, /* steps that are shown already wait so long for others, or until they are */
    GATHER_STEPS = 32,
};
#define RESTART_BYTES (64LL << 20)

/* ---- Notes ---------------------------------------------------------------- */

/* Puts them back in front. */
static void keep_metas(struct journal *j, struct meta *metas)
{
    struct meta **end = &metas;

    pthread_mutex_lock(&j->lock);
    while (*end)
        end = &(*end)->next;
    *end = j->metas;
    j->metas = metas;
    pthread_mutex_unlock(&j->lock);
}

static void write_metas(struct journal *j, struct meta *metas)
{
    while (metas) {
        struct meta *next = metas->next;
        struct err e = { 0 };
        if (journal_db_set_meta(&j->writer, metas->key, metas->value, &e))
            log_warn("%s: %s is not noted", e.msg, metas->key);
        free(metas);
        metas = next;
    }
}

/* ---- The writer ----------------------------------------------------------- */

static void note_state(struct journal *j, int ok, const char *why)
{
    pthread_mutex_lock(&j->lock);
    int changed = ok != j->ok;
    j->ok = ok;
    (void)snprintf(j->why, sizeof j->why, "%s", why);
    pthread_mutex_unlock(&j->lock);
    if (!changed)
        return;
    if (ok)
        log_info("journal: can be written again");
    else
        log_error("%s; nothing new is shown until it can be written", why);
    j->settled(j->settled_arg, NULL);
}

/* Hands entries back as settled, from list to the end of the list. */
static void settle(struct journal *j, struct journal_entry *list)
{
    int steps = 0, hidden = 0, in_tail = 0;

    if (!list)
        return;
    for (struct journal_entry *x = list; x; x = x->next) {
        steps += x->spec.len == 0;
        hidden += x->spec.len == 0 && !x->in_tail;
        in_tail += x->in_tail ? x->n_tokens : 0;
    }
    j->settled(j->settled_arg, list);
    while (list) {
        struct journal_entry *next = list->next;
        journal_entry_free(list);
        list = next;
    }
    pthread_mutex_lock(&j->lock);
    j->n_unrecorded -= steps;
    j->n_hidden -= hidden;
    journal_tail_release(&j->tail, in_tail);
    /* What came meanwhile is younger than this commit. */
    j->oldest_ms = j->n_unrecorded ? clock_monotonic_ms() : 0;
    pthread_cond_broadcast(&j->room);
    pthread_mutex_unlock(&j->lock);
}

/* Takes the entries of one kind out of a list, in order: requests, or steps. */
static struct journal_entry *split(struct journal_entry **list, int requests)
{
    struct journal_entry *out = NULL, **end = &out;

    for (struct journal_entry **at = list; *at;) {
        struct journal_entry *x = *at;
        if ((x->spec.len > 0) != requests) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        x->next = NULL;
        *end = x;
        end = &x->next;
    }
    return out;
}

/* Writes a list whole and settles it.  Returns 0, or -1. */
static int write_list(struct journal *j, struct journal_entry *list, int sync_full)
{
    struct err e = { 0 };

    if (!list)
        return 0;
    if (journal_db_write(&j->writer, list, j->last_seq, sync_full, &e)) {
        note_state(j, 0, e.msg);
        return -1;
    }
    journal_note_written(j, list);
    note_state(j, 1, "");
    settle(j, list);
    return 0;
}

/* Puts entries back in front of the queue and waits a second (not when the end has come). */
static void retry_later(struct journal *j, struct journal_entry *list)
{
    struct timespec until = clock_in_ms(RETRY_MS);

    pthread_mutex_lock(&j->lock);
    struct journal_entry **end = &list;
    while (*end)
        end = &(*end)->next;
    *end = j->queue;
    if (!j->queue)
        j->queue_end = end;
    j->queue = list;
    j->n_urgent++;
    while (!j->stopping && pthread_cond_timedwait(&j->work, &j->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&j->lock);
}

/* Steps first: somebody watches them come.  New requests wait for the disk itself. */
static int write_all(struct journal *j, struct journal_entry *list)
{
    struct journal_entry *requests = split(&list, 1);

    if (write_list(j, list, j->opt.sync_full)) {
        for (struct journal_entry *x = requests; x; x = x->next)
            x->refused = 1;
        settle(j, requests);
        retry_later(j, list);
        return -1;
    }
    if (write_list(j, requests, 1)) {
        for (struct journal_entry *x = requests; x; x = x->next)
            x->refused = 1;
        settle(j, requests);
        return -1;
    }
    return 0;
}

/* After a failure without anything to write: see whether it would work again.  Something must be
 * written: a transaction without a change never meets the full disk. */
static void probe(struct journal *j)
{
    struct err e = { 0 };
    char now[24];

    (void)snprintf(now, sizeof now, "%" PRId64, clock_unix_ms());
    if (journal_db_set_meta(&j->writer, "tried_ms", now, &e))
        note_state(j, 0, e.msg);
    else
        note_state(j, 1, "");
}

/* With the lock held: waits until there is something to do, or nothing for a while. */
static void await_work(struct journal *j)
{
    struct timespec idle = clock_in_ms(!j->ok ? RETRY_MS : j->tidied_ms ? TIDY_MS : 0);
    int rc = 0;

    while (!j->n_urgent && !j->metas && !j->stopping && j->n_unrecorded < GATHER_STEPS && rc == 0) {
        int64_t left = j->queue ? j->oldest_ms + GATHER_MS - clock_monotonic_ms() : 0;
        struct timespec until = j->queue ? clock_in_ms(left > 0 ? left : 0) : idle;
        rc = pthread_cond_timedwait(&j->work, &j->lock, &until);
    }
}

/* With the lock held.  A tail without a name would lose what is put in. */
static void check_tail(struct journal *j)
{
    if (!j->tail.file || journal_tail_is_there(&j->tail))
        return;
    journal_tail_close(&j->tail);
    log_warn("journal: %s-tail was removed: every token waits for a commit until the daemon starts "
             "again",
             j->path);
}

/* Once a run, as soon as nothing of the run before is in the tail alone. */
static void begin_tail(struct journal *j)
{
    struct err e = { 0 };
    char text[24];
    uint64_t run;

    pthread_mutex_lock(&j->lock);
    int due = !j->tail_begun && j->tail.file && !j->opt.sync_full && j->n_hidden == 0;
    pthread_mutex_unlock(&j->lock);
    if (!due || getrandom(&run, sizeof run, 0) != sizeof run)
        return;
    (void)snprintf(text, sizeof text, "%" PRIx64, run);
    if (journal_db_set_meta(&j->writer, JOURNAL_TAIL_RUN, text, &e))
        return; /* the next write says why */
    pthread_mutex_lock(&j->lock);
    journal_tail_begin(&j->tail, run);
    j->tail_begun = 1;
    pthread_mutex_unlock(&j->lock);
}

static void *run_writer(void *arg)
{
    struct journal *j = arg;
    int stopping = 0;

    priority_at_once();
    while (!stopping) {
        pthread_mutex_lock(&j->lock);
        await_work(j);
        check_tail(j);
        j->n_urgent = 0;
        struct journal_entry *list = j->queue;
        struct meta *metas = j->metas;
        j->queue = NULL;
        j->queue_end = &j->queue;
        j->metas = NULL;
        stopping = j->stopping;
        pthread_mutex_unlock(&j->lock);
        int failed = list && write_all(j, list);
        if (!list && !j->ok)
            probe(j);
        if (failed) /* they may say what has happened to the list */
            keep_metas(j, metas);
        else
            write_metas(j, metas);
        begin_tail(j);
        if (stopping && failed)
            break;
        if ((!j->tidied_ms || clock_monotonic_ms() - j->tidied_ms > TIDY_MS) && j->ok) {
            journal_tidy(j);
            j->tidied_ms = clock_monotonic_ms();
        }
        pthread_mutex_lock(&j->lock);
        stopping = j->stopping && !j->queue;
        pthread_mutex_unlock(&j->lock);
    }
    return NULL;
}

/* ---- Checkpoints ---------------------------------------------------------- */

/* Moves the log into the file, beside the writer; when it has grown long, waits for a moment in
 * which it can begin from the front. */
static void *run_checkpoints(void *arg)
{
    struct journal *j = arg;
    struct journal_db db;
    struct err e = { 0 };
    char wal[JOURNAL_PATH + 16];
    struct stat st;

    if (journal_db_open(&db, j->path, 0, &e) != ERR_OK) {
        log_warn("%s: no checkpoints, the log of the journal grows", e.msg);
        return NULL;
    }
    (void)snprintf(wal, sizeof wal, "%s-wal", j->path);
    for (;;) {
        struct timespec until = clock_in_ms(CHECKPOINT_MS);
        pthread_mutex_lock(&j->lock);
        while (!j->stopping && pthread_cond_timedwait(&j->checkpoint, &j->lock, &until) == 0)
            ;
        int stopping = j->stopping;
        pthread_mutex_unlock(&j->lock);
        if (stopping)
            break;
        int64_t size = stat(wal, &st) == 0 ? (int64_t)st.st_size : 0;
        if (size > 0)
            sqlite3_wal_checkpoint_v2(db.sql, NULL,
                                      size > RESTART_BYTES ? SQLITE_CHECKPOINT_RESTART
                                                           : SQLITE_CHECKPOINT_PASSIVE,
                                      NULL, NULL);
    }
    journal_db_close(&db);
    return NULL;
}

/* ---- The interface -------------------------------------------------------- */

void journal_get_meta(struct journal *j, const char *key, char *buf, size_t size)
{
    sqlite3_stmt *s = j->writer.statements[DB_GET_META];

    sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC);
    (void)snprintf(buf, size, "%s",
                   sqlite3_step(s) == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : "");
    sqlite3_reset(s);
}

void journal_set_meta(struct journal *j, const char *key, const char *value)
{
    struct meta *m = calloc(1, sizeof *m);

    if (!m) {
        log_warn("journal: no memory to note %s", key);
        return;
    }
    (void)snprintf(m->key, sizeof m->key, "%s", key);
    (void)snprintf(m->value, sizeof m->value, "%s", value);
    pthread_mutex_lock(&j->lock);
    struct meta **end = &j->metas;
    while (*end)
        end = &(*end)->next;
    *end = m;
    pthread_cond_signal(&j->work);
    pthread_mutex_unlock(&j->lock);
}

enum err_code journal_forget_ended(struct journal *j, struct err *e)
{
    if (journal_db_forget_older(&j->writer, INT64_MAX, e))
        return ERR_IO;
    int n = sqlite3_changes(j->writer.sql);
    if (n)
        log_warn("journal: it is of another model; %d requests that have ended are forgotten", n);
    return ERR_OK;
}

enum err_code journal_start(struct journal *j, journal_settled_fn *fn, void *arg, struct err *e)
{
    j->settled = fn;
    j->settled_arg = arg;
    if (pthread_create(&j->thread, NULL, run_writer, j))
        return err_set(e, ERR_NOMEM, "no thread for the journal");
    j->started = 1;
    j->checkpoint_started = pthread_create(&j->checkpoint_thread, NULL, run_checkpoints, j) == 0;
    return j->checkpoint_started ? ERR_OK : err_set(e, ERR_NOMEM, "no thread for the journal");
}

void journal_close(struct journal **jp)
{
    struct journal *j = *jp;

    if (!j)
        return;
    pthread_mutex_lock(&j->lock);
    j->stopping = j->hurry = 1;
    pthread_cond_broadcast(&j->work);
    pthread_cond_broadcast(&j->room);
    pthread_cond_broadcast(&j->checkpoint);
    pthread_mutex_unlock(&j->lock);
    if (j->started)
        pthread_join(j->thread, NULL);
    if (j->checkpoint_started)
        pthread_join(j->checkpoint_thread, NULL);
    while (j->queue) {
        struct journal_entry *next = j->queue->next;
        journal_entry_free(j->queue);
        j->queue = next;
    }
    while (j->metas) {
        struct meta *next = j->metas->next;
        free(j->metas);
        j->metas = next;
    }
    journal_db_close(&j->finder);
    journal_db_close(&j->lister);
    journal_db_close(&j->writer);
    journal_tail_close(&j->tail);
    if (j->lock_fd >= 0)
        close(j->lock_fd);
    pthread_cond_destroy(&j->work);
    pthread_cond_destroy(&j->room);
    pthread_cond_destroy(&j->checkpoint);
    pthread_mutex_destroy(&j->lock);
    pthread_mutex_destroy(&j->finder_lock);
    pthread_mutex_destroy(&j->lister_lock);
    free(j->spans);
    free(j);
    *jp = NULL;
}

/* Puts a step into the tail, unless somebody could miss one before it. */
static int put_in_tail(struct journal *j, const struct journal_entry *x)
{
    pthread_mutex_lock(&j->lock);
    int may = j->tail_begun && j->ok && !j->stopping && j->n_hidden == 0 &&
              journal_tail_put(&j->tail, x->tokens, x->n_tokens);
    pthread_mutex_unlock(&j->lock);
    return may;
}

void journal_push(struct journal *j, struct journal_entry *x)
{
    int step = x->spec.len == 0;

    x->next = NULL;
    x->in_tail = step && x->n_ends == 0 && put_in_tail(j, x);
    if (x->in_tail) {
        j->settled(j->settled_arg, x);
        x->shown = 1;
    }
    pthread_mutex_lock(&j->lock);
    *j->queue_end = x;
    j->queue_end = &x->next;
    j->n_unrecorded += step;
    j->n_hidden += step && !x->in_tail;
    j->n_urgent += !x->in_tail;
    if (step && !j->oldest_ms)
        j->oldest_ms = clock_monotonic_ms();
    int due = j->n_urgent || j->n_unrecorded == 1 || j->n_unrecorded == GATHER_STEPS;
    pthread_mutex_unlock(&j->lock);
    if (due)
        pthread_cond_signal(&j->work); /* who wakes finds the lock free */
}

int journal_ok(struct journal *j, char *why, size_t size)
{
    pthread_mutex_lock(&j->lock);
    int ok = j->ok;
    if (why)
        (void)snprintf(why, size, "%s", j->why);
    pthread_mutex_unlock(&j->lock);
    return ok;
}

int journal_wait_room(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    while (!j->hurry && (!j->ok || j->n_unrecorded >= MAX_UNRECORDED ||
                         (j->oldest_ms && clock_monotonic_ms() - j->oldest_ms > MAX_AGE_MS))) {
        struct timespec until = clock_in_ms(100); /* the age changes by itself */
        pthread_cond_timedwait(&j->room, &j->lock, &until);
    }
    int hurry = j->hurry;
    pthread_mutex_unlock(&j->lock);
    return hurry ? -1 : 0;
}

void journal_hurry(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    j->hurry = 1;
    pthread_cond_broadcast(&j->room);
    pthread_mutex_unlock(&j->lock);
}

int journal_find(struct journal *j, const char *id, journal_row_fn *fn, void *arg)
{
    sqlite3_stmt *s = j->finder.statements[DB_FIND];

    pthread_mutex_lock(&j->finder_lock);
    sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
    int n = journal_db_rows(s, fn, arg);
    pthread_mutex_unlock(&j->finder_lock);
    return n;
}

int journal_list(struct journal *j, int max, journal_row_fn *fn, void *arg)
{
    sqlite3_stmt *s = j->lister.statements[DB_NEWEST];

    pthread_mutex_lock(&j->lister_lock);
    sqlite3_bind_int(s, 1, max);
    int n = journal_db_rows(s, fn, arg);
    pthread_mutex_unlock(&j->lister_lock);
    return n;
}
