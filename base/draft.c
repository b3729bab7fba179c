/* SPDX-License-Identifier: MIT */
#include "base/draft.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char suffix[] = ".part";

/* ---- What a signal would leave ------------------------------------------ */

/* Names that a signal handler may unlink; a draft beyond these would stay. */
enum { WATCHED_MAX = 8 };
static _Atomic(const char *) watched[WATCHED_MAX];

static void watch(const char *part)
{
    for (int i = 0; i < WATCHED_MAX; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong(&watched[i], &none, part))
            return;
    }
}

static void unwatch(const char *part)
{
    for (int i = 0; i < WATCHED_MAX; i++) {
        const char *expected = part;
        if (atomic_compare_exchange_strong(&watched[i], &expected, NULL))
            return;
    }
}

void draft_drop_all(void)
{
    for (int i = 0; i < WATCHED_MAX; i++) {
        const char *part = atomic_load(&watched[i]);
        if (part)
            unlink(part);
    }
}

static void on_signal(int number)
{
    draft_drop_all();
    raise(number); /* SA_RESETHAND: ends the process as without a handler */
}

void draft_drop_on_signals(void)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
    const struct sigaction on = { .sa_handler = on_signal,
                                  .sa_flags = (int)(SA_RESETHAND | SA_NODEFER) };
    struct sigaction before;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(numbers[i], &on, NULL); /* ignored ones (nohup) stay so */
}

/* ---- The file ------------------------------------------------------------ */

static void forget(struct draft *d)
{
    free(d->path);
    free(d->part);
    *d = (struct draft){ 0 };
}

/* The name behind all links, when a file of that name can be replaced: not so for /proc/self/fd/3
 * and its like, whose target may have no name. */
static char *real_name(const char *path, const struct stat *st)
{
    struct stat found;
    char *name = realpath(path, NULL);

    if (name && stat(name, &found) == 0 && found.st_dev == st->st_dev && found.st_ino == st->st_ino)
        return name;
    free(name);
    return NULL;
}

/* 0, or -1 without memory. */
static int make_names(struct draft *d, const char *path)
{
    struct stat st;
    int is_there = stat(path, &st) == 0;
    int direct = is_there && !S_ISREG(st.st_mode);

    if (is_there && !direct) {
        d->path = real_name(path, &st);
        direct = !d->path;
    }
    if (!d->path && !(d->path = strdup(path)))
        return -1;
    if (direct)
        return 0;
    size_t size = strlen(d->path) + sizeof suffix;
    d->part = malloc(size);
    if (!d->part)
        return -1;
    snprintf(d->part, size, "%s%s", d->path, suffix);
    return 0;
}

enum err_code draft_open(struct draft *d, const char *path, struct err *e)
{
    *d = (struct draft){ 0 };
    if (make_names(d, path) != 0) {
        forget(d);
        return err_set(e, ERR_NOMEM, "%s: no memory to write it", path);
    }
    d->file = fopen(d->part ? d->part : d->path, "wbe");
    if (!d->file) {
        enum err_code rc = err_sys(e, "%s: cannot be written", d->path);
        forget(d);
        return rc;
    }
    if (d->part)
        watch(d->part);
    return ERR_OK;
}

enum err_code draft_keep(struct draft *d, struct err *e)
{
    enum err_code rc = ERR_OK;

    if (fflush(d->file) != 0 || ferror(d->file))
        rc = err_sys(e, "%s: cannot be written", d->path);
    if (fclose(d->file) != 0 && rc == ERR_OK)
        rc = err_sys(e, "%s: cannot be written", d->path);
    d->file = NULL;
    if (rc == ERR_OK && d->part && rename(d->part, d->path) != 0)
        rc = err_sys(e, "%s: cannot be written", d->path);
    if (rc == ERR_OK && d->part) {
        unwatch(d->part);
        free(d->part);
        d->part = NULL; /* nothing is left to remove */
    }
    draft_drop(d);
    return rc;
}

void draft_drop(struct draft *d)
{
    if (d->file)
        fclose(d->file);
    if (d->part) {
        unlink(d->part);
        unwatch(d->part);
    }
    forget(d);
}
