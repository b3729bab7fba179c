/* SPDX-License-Identifier: MIT */
/* daemon/journal_files.c - the directory of the journal, reading back, and what is forgotten. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/log.h"
#include "daemon/clock.h"
#include "daemon/journal_parts.h"

/* ---- The directory -------------------------------------------------------- */

/* The lock decides who lives: a process that is gone holds none. */
static enum err_code lock_directory(struct journal *j, struct err *e)
{
    struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    char path[JOURNAL_PATH];

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
    static const char *const parts[] = { "", "-wal", "-shm", "-tail" };
    char from[JOURNAL_PATH + 16], to[JOURNAL_PATH + 64];
    int64_t now = clock_unix_ms();

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
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
    char tail[JOURNAL_PATH + 16];
    struct err why = { 0 };
    enum err_code rc;

    if (!j)
        return err_set(e, ERR_NOMEM, "no memory for the journal");
    j->opt = *o;
    j->lock_fd = j->tail.fd = -1;
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
    (void)snprintf(tail, sizeof tail, "%s-tail", j->path);
    if (journal_tail_open(&j->tail, tail, &why) != ERR_OK)
        log_warn("%s: every token waits for a commit", why.msg);
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

/* What the tail has beyond the rows.  The tail keeps it until its commit, the first of all, and
 * takes nothing new before: the entry is not in_tail. */
static enum err_code read_tail(struct journal *j, struct err *e)
{
    struct journal_entry *x = journal_entry_new(clock_unix_ms());
    struct journal_token *found = NULL;
    int n = 0;
    char run[24];
    enum err_code rc = x ? journal_tail_read(&j->tail, &found, &n, e) : ERR_NOMEM;

    journal_get_meta(j, JOURNAL_TAIL_RUN, run, sizeof run);
    if (strtoull(run, NULL, 16) != journal_tail_run(&j->tail))
        n = 0;
    for (int i = 0; i < n && rc == ERR_OK; i++) {
        const struct span *s = find_span(j, found[i].number);
        if (s && found[i].position == s->n &&
            (note_token(j, 0, found[i].number, found[i].token) ||
             journal_entry_add_token(x, found[i].number, found[i].position, found[i].token)))
            rc = ERR_NOMEM;
    }
    free(found);
    if (rc != ERR_OK || x->n_tokens == 0) {
        journal_entry_free(x);
        return rc == ERR_OK ? ERR_OK : err_set(e, rc, "no memory for the tail of the journal");
    }
    x->shown = 1;
    journal_push(j, x);
    return ERR_OK;
}

enum err_code journal_read_live(struct journal *j, journal_row_fn *fn, void *arg, struct err *e)
{
    struct read_back r = { .j = j, .fn = fn, .arg = arg };

    (void)journal_db_rows(j->writer.statements[DB_LIVE], note_live, j);
    TRY(journal_db_steps(&j->writer, note_token, j, e));
    TRY(read_tail(j, e));
    (void)journal_db_rows(j->writer.statements[DB_LIVE], give_live, &r);
    for (int i = 0; i < j->n_spans; i++) {
        free(j->spans[i].tokens);
        j->spans[i].tokens = NULL;
    }
    return r.stopped ? err_set(e, ERR_NOMEM, "no memory for the requests of the journal") : ERR_OK;
}

/* ---- Forgetting ----------------------------------------------------------- */

void journal_note_written(struct journal *j, const struct journal_entry *list)
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

void journal_tidy(struct journal *j)
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
