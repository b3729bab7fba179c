/* SPDX-License-Identifier: MIT */
/* base/draft.h - a file that is complete or not there.
 *
 * What is written goes to a file beside the wanted one, with ".part" behind its name, which takes
 * the wanted name at the end.  Until then an older file of that name stays as it was.  A name
 * that stands for something else (a pipe, a terminal, /dev/null) is written directly.
 */
#ifndef BASE_DRAFT_H
#define BASE_DRAFT_H

#include <stdio.h>

#include "base/err.h"

struct draft {
    FILE *file; /* to write to; NULL when nothing is open */
    char *path; /* the wanted name, links followed, owned */
    char *part; /* the name until draft_keep, owned; NULL: written directly */
};

/* Opens *d for `path`; end with draft_keep or draft_drop.  On failure nothing is held.
 * Errors: ERR_IO, ERR_NOMEM. */
enum err_code draft_open(struct draft *d, const char *path, struct err *e);

/* Closes and gives the file its name.  On failure it is removed.  Errors: ERR_IO. */
enum err_code draft_keep(struct draft *d, struct err *e);

/* Gives up: closes and removes.  Fine when nothing is open. */
void draft_drop(struct draft *d);

/* Removes what is open anywhere in this process, which then ends at once.  May be called by a
 * signal handler. */
void draft_drop_all(void);

/* For a program's main: SIGINT, SIGTERM and SIGHUP, where they would end the process, first remove
 * what is open. */
void draft_drop_on_signals(void);

#endif
