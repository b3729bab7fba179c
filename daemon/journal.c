/* SPDX-License-Identifier: MIT */
/* daemon/journal.c - the thread of the journal, its queue, its directory; see journal.h.
 *
 * Reading order: the directory; reading back; what is forgotten; the two threads; the
 * interface.
 */
#include "daemon/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/log.h"
#include "base/priority.h"
#include "daemon/clock.h"
#include "daemon/journal_db.h"

enum { MAX_UNRECORDED = 64, MAX_AGE_MS = 1000, RETRY_MS = 1000, TIDY_MS = 30000 };
enum { CHECKPOINT_MS = 1000, PATH_SIZE = 4096 };
#define RESTART_BYTES (64LL << 20)

/* A request that runs, and the first step row that has a token of it. */
struct span {
    int64_t number, first_seq; /* 0: none yet */
    int32_t *tokens;           /* [n] of cap, while the file is read back */
    int64_t n, cap;
};

struct journal {
    struct journal_options opt;
    char path[PATH_SIZE];
    int lock_fd;
    struct journal_db writer, finder, lister; /* a list may take long, and nobody waits for it */
    pthread_mutex_t finder_lock, lister_lock;
    int64_t next_number;

    pthread_t thread, checkpoint_thread;
    int started, checkpoint_started;
    journal_settled_fn *settled;
    void *settled_arg;

    /* The writer's own. */
    struct span *spans; /* [n_spans], ascending numbers */
    int n_spans, cap_spans;
    int64_t last_seq, tidied_ms;

    /* Guarded by lock. */
    pthread_mutex_t lock;
    pthread_cond_t work, room, checkpoint;
    struct journal_entry *queue, **queue_end;
    struct meta {
        struct meta *next;
        char key[32], value[256];
    } * metas;
    int n_unrecorded; /* steps in the queue or being written */
    int64_t oldest_ms;
    int stopping, hurry, ok;
    char why[256];
};

/* ---- The directory -------------------------------------------------------- */

/* The lock decides who lives: a process that is gone holds none. */
static enum err_code lock_directory(struct journal *j, struct err *e)
{
    struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    char path[PATH_SIZE];

    if (mkdir(j->opt.dir, 0700) && errno != EEXIST)
        return err_sys(e, "state directory %s: cannot be made", j->opt.dir);
    (void)snprintf(path, sizeof path, "%s/lock", j->opt.dir);
    j->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (j->lock_fd < 0)
        return err_sys(e, "state directory %s: cannot be written", j->opt.dir);
    if (fcntl(j->lock_fd, F_SETLK, &l) == 0)
        return ERR_OK;
    if (errno != EACCES && errno != EAGAIN)
        return err_sys(e, "%s: cannot be locked", path);
    (void)fcntl(j->lock_fd, F_GETLK, &l);
    return err_set(e, ERR_USAGE,
                   "state directory %s: process %d uses it; stop that one, or give another "
                   "--state-dir",
                   j->opt.dir, (int)l.l_pid);
}

/* Renames the file and what belongs to it, out of the way. */
static enum err_code set_aside(struct journal *j, const struct err *why, struct err *e)
{
    static const char *const parts[] = { "", "-wal", "-shm" };
    char from[PATH_SIZE + 16], to[PATH_SIZE + 64];
    int64_t now = clock_unix_ms();

    for (int i = 0; i < 3; i++) {
        (void)snprintf(from, sizeof from, "%s%s", j->path, parts[i]);
        (void)snprintf(to, sizeof to, "%s.damaged-%" PRId64 "%s", j->path, now, parts[i]);
        if (rename(from, to) && errno != ENOENT)
            return err_sys(e, "%s: is damaged and cannot be set aside", from);
    }
    log_warn("%s; it is set aside as %s.damaged-%" PRId64
             ", a new one begins: requests in it are lost",
             why->msg, j->path, now);
    return ERR_OK;
}

static enum err_code open_files(struct journal *j, struct err *e)
{
    struct err why = { 0 };
    enum err_code rc = journal_db_open(&j->writer, j->path, 1, &why);

    if (rc == ERR_FORMAT) {
        TRY(set_aside(j, &why, e));
        rc = journal_db_open(&j->writer, j->path, 1, &why);
    }
    if (rc != ERR_OK)
        return err_set(e, rc, "%s: %s", j->path, why.msg);
    TRY(journal_db_open(&j->finder, j->path, 0, e));
    return journal_db_open(&j->lister, j->path, 0, e);
}

enum err_code journal_open(struct journal **out, const struct journal_options *o, struct err *e)
{
    struct journal *j = calloc(1, sizeof *j);
    enum err_code rc;

    if (!j)
        return err_set(e, ERR_NOMEM, "no memory for the journal");
    j->opt = *o;
    j->lock_fd = -1;
    j->ok = 1;
    j->queue_end = &j->queue;
    pthread_mutex_init(&j->lock, NULL);
    pthread_mutex_init(&j->finder_lock, NULL);
    pthread_mutex_init(&j->lister_lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&j->work, &monotonic);
    pthread_cond_init(&j->room, &monotonic);
    pthread_cond_init(&j->checkpoint, &monotonic);
    pthread_condattr_destroy(&monotonic);
    (void)snprintf(j->path, sizeof j->path, "%s/journal.db", o->dir);
    if ((rc = lock_directory(j, e)) != ERR_OK || (rc = open_files(j, e)) != ERR_OK) {
        journal_close(&j);
        return rc;
    }
    j->next_number = journal_db_next_number(&j->writer);
    j->last_seq = journal_db_last_step(&j->writer);
    *out = j;
    return ERR_OK;
}

int64_t journal_next_number(const struct journal *j)
{
    return j->next_number;
}

/* ---- Reading back --------------------------------------------------------- */

static struct span *find_span(struct journal *j, int64_t number)
{
    int low = 0, high = j->n_spans;

    while (low < high) {
        int mid = (low + high) / 2;
        if (j->spans[mid].number < number)
            low = mid + 1;
        else
            high = mid;
    }
    return low < j->n_spans && j->spans[low].number == number ? &j->spans[low] : NULL;
}

/* Numbers come in ascending order. */
static int add_span(struct journal *j, int64_t number)
{
    if (array_grow(&j->spans, &j->cap_spans, j->n_spans, sizeof *j->spans))
        return -1;
    j->spans[j->n_spans++] = (struct span){ .number = number };
    return 0;
}

static void remove_span(struct journal *j, int64_t number)
{
    struct span *x = find_span(j, number);

    if (!x)
        return;
    memmove(x, x + 1, (size_t)(j->spans + j->n_spans - x - 1) * sizeof *x);
    j->n_spans--;
}

static int note_live(void *arg, const struct journal_row *row)
{
    return add_span(arg, row->number);
}

static int note_token(void *arg, int64_t seq, int64_t number, int32_t token)
{
    struct span *x = find_span(arg, number);

    if (!x)
        return 0;
    if (x->n == x->cap) {
        int64_t cap = x->cap ? 2 * x->cap : 64;
        int32_t *grown = realloc(x->tokens, (size_t)cap * sizeof *grown);
        if (!grown)
            return -1;
        x->tokens = grown;
        x->cap = cap;
    }
    x->tokens[x->n++] = token;
    if (!x->first_seq)
        x->first_seq = seq;
    return 0;
}

struct read_back {
    struct journal *j;
    journal_row_fn *fn;
    void *arg;
    int stopped;
};

static int give_live(void *arg, const struct journal_row *row)
{
    struct read_back *r = arg;
    struct journal_row full = *row;
    const struct span *x = find_span(r->j, row->number);

    full.tokens = x ? x->tokens : NULL;
    full.n_tokens = x ? x->n : 0;
    r->stopped = r->fn(r->arg, &full);
    return r->stopped;
}

enum err_code journal_read_live(struct journal *j, journal_row_fn *fn, void *arg, struct err *e)
{
    struct read_back r = { .j = j, .fn = fn, .arg = arg };

    (void)journal_db_rows(j->writer.statements[DB_LIVE], note_live, j);
    TRY(journal_db_steps(&j->writer, note_token, j, e));
    (void)journal_db_rows(j->writer.statements[DB_LIVE], give_live, &r);
    for (int i = 0; i < j->n_spans; i++) {
        free(j->spans[i].tokens);
        j->spans[i].tokens = NULL;
    }
    return r.stopped ? err_set(e, ERR_NOMEM, "no memory for the requests of the journal") : ERR_OK;
}

/* ---- Forgetting ----------------------------------------------------------- */

/* Keeps the writer's list of what runs, after a commit. */
static void note_written(struct journal *j, const struct journal_entry *list)
{
    for (const struct journal_entry *x = list; x; x = x->next) {
        if (x->spec.len) {
            if (add_span(j, x->number)) /* its steps are kept for ever then: no harm */
                log_warn("journal: no memory to note request %" PRId64, x->number);
            continue;
        }
        j->last_seq += x->n_tokens > 0;
        for (int i = 0; i < x->n_tokens; i++) {
            struct span *s = find_span(j, x->tokens[i].number);
            if (s && !s->first_seq)
                s->first_seq = j->last_seq;
        }
        for (int i = 0; i < x->n_ends; i++)
            remove_span(j, x->ends[i].number);
    }
}

/* Steps that no running request has a part in; ended requests beyond their time or the size. */
static void tidy(struct journal *j)
{
    int64_t first = j->last_seq + 1;
    struct err e = { 0 };
    int bad;

    for (int i = 0; i < j->n_spans; i++)
        if (j->spans[i].first_seq && j->spans[i].first_seq < first)
            first = j->spans[i].first_seq;
    bad = journal_db_forget_steps(&j->writer, first, &e) ||
          journal_db_forget_older(&j->writer, clock_unix_ms() - j->opt.keep_ms, &e);
    for (int i = 0; !bad && i < 1000 && journal_db_bytes(&j->writer) > j->opt.keep_bytes; i++) {
        bad = journal_db_forget_some(&j->writer, &e);
        if (sqlite3_changes(j->writer.sql) == 0)
            break;
    }
    if (bad)
        log_warn("%s: what is old stays for now", e.msg);
}

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
    int steps = 0;

    if (!list)
        return;
    for (struct journal_entry *x = list; x; x = x->next)
        steps += x->spec.len == 0;
    j->settled(j->settled_arg, list);
    while (list) {
        struct journal_entry *next = list->next;
        journal_entry_free(list);
        list = next;
    }
    pthread_mutex_lock(&j->lock);
    j->n_unrecorded -= steps;
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
    note_written(j, list);
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

static void *run_writer(void *arg)
{
    struct journal *j = arg;
    int stopping = 0;

    priority_at_once();
    while (!stopping) {
        struct timespec until = clock_in_ms(!j->ok ? RETRY_MS : j->tidied_ms ? TIDY_MS : 0);
        pthread_mutex_lock(&j->lock);
        while (!j->queue && !j->metas && !j->stopping &&
               pthread_cond_timedwait(&j->work, &j->lock, &until) == 0)
            ;
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
        if (stopping && failed)
            break;
        if ((!j->tidied_ms || clock_monotonic_ms() - j->tidied_ms > TIDY_MS) && j->ok) {
            tidy(j);
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
    char wal[PATH_SIZE + 16];
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

void journal_push(struct journal *j, struct journal_entry *x)
{
    pthread_mutex_lock(&j->lock);
    x->next = NULL;
    *j->queue_end = x;
    j->queue_end = &x->next;
    if (x->spec.len == 0) {
        j->n_unrecorded++;
        if (!j->oldest_ms)
            j->oldest_ms = clock_monotonic_ms();
    }
    pthread_mutex_unlock(&j->lock);
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
