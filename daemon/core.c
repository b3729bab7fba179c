/* SPDX-License-Identifier: MIT */
/* daemon/core.c - see core.h. */
#include "daemon/core.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/team.h"
#include "daemon/book.h"
#include "daemon/driver.h"
#include "daemon/journal.h"
#include "daemon/launch.h"
#include "daemon/status_board.h"
#include "session/planning.h"

/* Ranks that are not in a step leave within the first; in a job it is their status that counts. */
enum { QUIT_MS = 400, QUIT_JOB_MS = 4000 };

/* ---- Callbacks ------------------------------------------------------------- */

static void on_news(void *arg)
{
    driver_wake(arg);
}

static void on_link(void *arg, int fd)
{
    const struct core *d = arg;

    driver_attach(d->driver, fd);
}

static void on_lost(void *arg, const char *why)
{
    const struct core *d = arg;

    log_warn("%s: clients wait until the ranks are back", why);
    ranks_lost(d->ranks);
}

static void on_ready(void *arg)
{
    const struct core *d = arg;

    ranks_served(d->ranks);
}

/* ---- Opening --------------------------------------------------------------- */

static enum err_code open_model(struct core *d, struct err *e)
{
    const struct options *o = d->opt;
    struct gguf_string name = { 0 };

    if (!o->model)
        return err_set(e, ERR_USAGE, "no model; give -m FILE");
    TRY(model_open(&d->model, o->model, 0, o->override_kv.v, (int)o->override_kv.n, e));
    TRY(tokenizer_open(&d->tokenizer, d->model->gguf, e));
    TRY(model_digest(d->model->gguf, d->model_hash, e));
    const struct gguf_kv *kv = gguf_find(d->model->gguf, "general.name");
    if (kv)
        (void)gguf_as_string(&kv->value, &name);
    (void)snprintf(d->model_name, sizeof d->model_name, "%.*s", (int)name.len,
                   name.data ? name.data : "");
    return ERR_OK;
}

static enum err_code open_book(struct core *d, struct err *e)
{
    const struct options *o = d->opt;
    struct journal_options j = { .dir = o->state_dir,
                                 .sync_full = o->journal_sync,
                                 .keep_ms = o->keep_hours * 3600 * 1000,
                                 .keep_bytes = o->keep_mib << 20 };
    struct requests_options b = { .tokenizer = d->tokenizer,
                                  .model_hash = d->model_hash,
                                  .n_vocab = d->model->hp.n_vocab,
                                  .n_context = d->model->hp.context_length,
                                  .max_waiting = (int)o->max_waiting };

    TRY(journal_open(&d->journal, &j, e));
    b.journal = d->journal;
    return requests_create(&d->book, &b, e);
}

static enum err_code start_driver(struct core *d, struct err *e)
{
    struct status_facts f = { .model_path = d->opt->model,
                              .model_name = d->model_name,
                              .model_hash = d->model_hash,
                              .reuse = d->opt->reuse ? "strict" : "any",
                              .n_vocab = d->model->hp.n_vocab,
                              .journal = d->journal,
                              .book = d->book };
    struct driver_options o = { .book = d->book,
                                .journal = d->journal,
                                .hp = &d->model->hp,
                                .model_hash = d->model_hash,
                                .strict_reuse = d->opt->reuse,
                                .quit_ms = d->job.rank < 0 ? QUIT_MS : QUIT_JOB_MS,
                                .on_lost = on_lost,
                                .on_ready = on_ready,
                                .arg = d };

    TRY(status_create(&d->status, &f, e));
    status_set_plan(d->status, &d->plan);
    o.status = d->status;
    TRY(driver_start(&d->driver, &o, e));
    requests_on_news(d->book, on_news, d->driver);
    return ERR_OK;
}

/* Where mpirun keeps its sockets and shared memory: beside the socket of the clients, which lies in
 * memory as a rule, otherwise in the state directory. */
static void choose_run_dir(struct core *d)
{
    const struct text_list *l = &d->opt->listen;

    (void)snprintf(d->run_dir, sizeof d->run_dir, "%s/mpi", d->opt->state_dir);
    for (size_t i = 0; i < l->n; i++) {
        const char *slash = strrchr(l->v[i], '/');
        if (strncmp(l->v[i], "ipc:///", 7) != 0 || slash == l->v[i] + 6)
            continue;
        (void)snprintf(d->run_dir, sizeof d->run_dir, "%.*s/mpi", (int)(slash - l->v[i] - 6),
                       l->v[i] + 6);
        return;
    }
}

static enum err_code start_ranks(struct core *d, struct err *e)
{
    if (!*d->program)
        TRY(launch_find_rank(d->program, sizeof d->program, e));
    TRY(options_pass_on(d->opt, COMMAND_latentd_rank, &d->words, e));
    choose_run_dir(d);
    struct ranks_options o = { .program = d->program,
                               .words = d->words.v,
                               .n_words = (int)d->words.n,
                               .n_ranks = planning_ranks(d->opt),
                               .crowded = !d->opt->launch && team_is_crowded(planning_ranks(d->opt),
                                                                             (int)d->opt->threads),
                               .launch = d->opt->launch,
                               .in_job = d->job.rank >= 0,
                               .run_dir = d->run_dir,
                               .on_link = on_link,
                               .on_link_arg = d };
    return ranks_create(&d->ranks, &o, e);
}

/* ---- The interface --------------------------------------------------------- */

enum err_code core_open(struct core *d, struct options *o, const char *program, struct err *e)
{
    *d = (struct core){ .opt = o };
    (void)snprintf(d->program, sizeof d->program, "%s", program ? program : "");
    TRY(comm_find_job(&d->job, e));
    TRY(open_model(d, e));
    TRY(core_plan(d, e));
    TRY(open_book(d, e));
    TRY(start_ranks(d, e));
    return start_driver(d, e);
}

int core_close(struct core *d)
{
    if (d->status)
        status_set_phase(d->status, PHASE_STOPPING);
    if (d->book)
        requests_on_news(d->book, NULL, NULL); /* the journal still has some */
    driver_stop(&d->driver);
    int left = ranks_stop(&d->ranks);
    journal_close(&d->journal);
    status_free(&d->status);
    requests_free(&d->book);
    tokenizer_close(&d->tokenizer);
    model_close(&d->model);
    link_plan_free(&d->plan);
    free(d->words.v);
    d->words = (struct text_list){ 0 };
    return left;
}
