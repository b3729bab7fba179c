/* SPDX-License-Identifier: MIT */
/* session/session.h - a model, its plan, and the ranks that run it, as the options say.
 *
 * In two steps, so that a command can look at its input (and refuse it) before the weights are
 * loaded.  The ranks are this process alone, threads of it (--ranks), or the processes that
 * mpirun started: then rank 0 runs the command and the others follow it.
 */
#ifndef SESSION_SESSION_H
#define SESSION_SESSION_H

#include "base/draft.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "rank/comm_measure.h"
#include "rank/group.h"
#include "session/planning.h"

struct session {
    struct model *model;
    struct tokenizer *tokenizer; /* NULL unless asked for */
    struct planning planning;
    struct engine *engine; /* of rank 0 */
    struct group *group;   /* of ranks that are threads */
    struct draft record;   /* of --record-experts */
    /* Set between session_open and session_load, called on rank 0 when the plan stands and nothing
     * is loaded yet; or NULL. */
    enum err_code (*on_plan)(void *arg, const struct planning *x, struct err *e);
    void *on_plan_arg;
};

/* Whether a command runs on ranks; of the others, under mpirun, only rank 0's process is to run
 * one. Whether this is another process of mpirun's than that. */
int session_runs_ranks(enum command_id c);
int session_follows(void);

/* Before a process says that it fails: where all fail alike rank 0 says it, and mpirun ends the
 * others while they wait here.  Returns at once on rank 0, and without mpirun. */
void session_let_rank_0_speak(void);

/* Before a command, and after it.  Under mpirun, of a command that loads a model: the ranks meet,
 * and all but rank 0 stay here until the command is over there; then *follows is set.
 * session_end tells them.  It returns 0, or where ranks have failed the status with which the
 * process is to leave by _exit: why has been said.  Errors: ERR_PEER. */
enum err_code session_start(const struct options *o, int *follows, struct err *e);
int session_end(void);

/* The processes that mpirun started, between the two; NULL otherwise. */
struct comm *session_comm(void);

/* What sums over those processes cost; once, instead of session_load. */
enum err_code session_measure_sums(struct comm_cost *out, struct err *e);

/* How many ranks session_load will make. */
int session_ranks(const struct options *o);

/* Opens the model of -m, and its tokenizer with `with_tokenizer`.  End with session_close, also
 * after a failure.  Errors: ERR_USAGE without -m; those of model_open and tokenizer_open. */
enum err_code session_open(struct session *s, const struct options *o, int with_tokenizer,
                           struct err *e);

/* Refuses n tokens of one sequence that no context could hold: more than the model's, or than
 * -c.  `what` names them.  Errors: ERR_FULL. */
enum err_code session_check_length(const struct session *s, const struct options *o,
                                   const char *what, int64_t n, struct err *e);

/* Refuses ids that the vocabulary does not have.  Errors: ERR_USAGE. */
enum err_code session_check_ids(const struct session *s, const int32_t *ids, size_t n,
                                struct err *e);

/* Plans and loads.  n_context: positions where -c was not given; 0: what fits.
 * Errors: those of planning_make, planning_judge, group_create; with --record-experts those of
 * draft_open, and ERR_USAGE for a model without routed experts. */
enum err_code session_load(struct session *s, const struct options *o, int64_t n_context,
                           struct err *e);

/* At the end of a command: the file of --record-experts, if it was asked for.  Without this call it
 * does not appear.  Errors: ERR_IO. */
enum err_code session_keep_record(struct session *s, struct err *e);

void session_close(struct session *s);

#endif
