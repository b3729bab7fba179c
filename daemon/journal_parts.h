/* SPDX-License-Identifier: MIT */
/* daemon/journal_parts.h - what journal.c and journal_files.c share. */
#ifndef DAEMON_JOURNAL_PARTS_H
#define DAEMON_JOURNAL_PARTS_H

#include <pthread.h>

#include "daemon/journal.h"
#include "daemon/journal_db.h"
#include "daemon/journal_tail.h"

enum { JOURNAL_PATH = 4096 };
#define JOURNAL_TAIL_RUN "tail_run" /* the key of meta, hexadecimal */

/* A request that runs, and the first step row that has a token of it. */
struct span {
    int64_t number, first_seq; /* 0: none yet */
    int32_t *tokens;           /* [n] of cap, while the file is read back */
    int64_t n, cap;
};

struct journal {
    struct journal_options opt;
    char path[JOURNAL_PATH];
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
    struct journal_tail tail;
    int tail_begun;
    int n_unrecorded; /* steps in the queue or being written */
    int n_hidden;     /* of them, those that nobody may see before */
    int n_urgent;     /* entries in the queue that somebody waits for */
    int64_t oldest_ms;
    int stopping, hurry, ok;
    char why[256];
};

/* ---- journal_files.c ------------------------------------------------------- */

/* Keeps the writer's list of what runs, after a commit. */
void journal_note_written(struct journal *j, const struct journal_entry *list);

/* Steps that no running request has a part in; ended requests beyond their time or the size. */
void journal_tidy(struct journal *j);

#endif
