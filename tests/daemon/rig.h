/* SPDX-License-Identifier: MIT */
/* tests/daemon/rig.h - a daemon without its server, in the process of a test.
 *
 * The test is the client: it submits to the book and reads events with a cursor, while rig_turn
 * looks after the ranks.
 */
#ifndef TESTS_DAEMON_RIG_H
#define TESTS_DAEMON_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/core.h"

struct rig {
    struct options opt;
    struct core core;
};

/* words: options besides model and state directory, NULL at the end. */
static inline enum err_code rig_open(struct rig *r, const char *rank_program, const char *model,
                                     const char *dir, char *const *words, struct err *e)
{
    static char listen[600]; /* nobody listens there: mpirun's files lie beside it */
    char cwd[512], *argv[32] = { "-m",       (char *)model, "--state-dir", (char *)dir,
                                 "--listen", listen,        "-t",          "1" };
    int n = 8;

    (void)snprintf(listen, sizeof listen, "ipc://%s/socket", getcwd(cwd, sizeof cwd));
    while (words && *words)
        argv[n++] = *words++;
    *r = (struct rig){ 0 };
    TRY(options_parse(&r->opt, COMMAND_latentd, n, argv, e));
    return core_open(&r->core, &r->opt, rank_program, e);
}

static inline void rig_close(struct rig *r)
{
    core_close(&r->core);
    options_free(&r->opt);
}

/* A few milliseconds in the life of the main thread. */
static inline enum err_code rig_turn(struct rig *r, struct err *e)
{
    struct pollfd fds[RANKS_FDS];
    int64_t wait_ms;

    TRY(ranks_poll(r->core.ranks, e));
    int n = ranks_fds(r->core.ranks, fds, &wait_ms);
    (void)poll(fds, (nfds_t)n, wait_ms < 2 ? (int)wait_ms : 2);
    return ERR_OK;
}

/* What one client has read of one request. */
struct reader {
    char id[32];
    int64_t cursor;
    int32_t tokens[4096];
    int n;
    struct str text;
    int ended;
    struct request_view view;
};

/* Reads what is there.  Returns the answer. */
static inline enum answer reader_read(struct rig *r, struct reader *x, struct err *e)
{
    struct request_events ev;
    enum answer a = requests_next(r->core.book, x->id, x->cursor, NULL, &ev, e);

    if (a != ANSWER_OK)
        return a;
    memcpy(x->tokens + x->n, ev.tokens ? ev.tokens : x->tokens,
           (size_t)ev.n_tokens * sizeof *x->tokens);
    x->n += ev.n_tokens;
    str_append(&x->text, ev.text.data ? ev.text.data : "", ev.text.len);
    x->cursor = ev.cursor;
    x->ended = ev.ended;
    x->view = ev.view;
    request_events_free(&ev);
    return ANSWER_OK;
}

static inline void rig_no_wake(struct requests_waiter *w)
{
    (void)w;
}

/* Submits until the journal has it (or it is refused). */
static inline enum answer rig_submit(struct rig *r, const struct request_spec *spec, struct err *e)
{
    struct requests_waiter w = { .wake = rig_no_wake };
    enum answer a;

    for (double end = clock_seconds() + 60;;) {
        a = requests_submit(r->core.book, spec, &w, NULL, e);
        requests_forget(r->core.book, &w);
        if (a != ANSWER_WAIT || rig_turn(r, e) != ERR_OK || clock_seconds() > end)
            return a;
    }
}

#endif
