/* SPDX-License-Identifier: MIT */
/* daemon/scheduler.h - which tokens the ranks compute next.
 *
 * Continuous batching: every step takes one token of each request that produces, and fills up with
 * pieces of prompts, up to the tokens that a step may have.  Requests join and leave between steps.
 *
 *  - Higher priority first; among equals the client that has lately had the fewest tokens; then
 *    the older request.  A client with many requests therefore has no more than one with few, and
 *    a running request gives its place up to one of a higher priority, or to a client that has
 *    at least two fewer running.
 *  - A request may use every free page.  Where pages run out, the last in that order loses its own
 *    and waits; what it had stays cached as long as it can, and is computed again otherwise.
 *  - What it computed is the same whatever the order: form and order of sums come from the position
 *    alone.
 *
 * Pure: no clock, no socket, no thread.  Steps are made one after the other: scheduler_plan, then
 * scheduler_result for it.  Where a step decides nothing but the next token of everyone who runs,
 * scheduler_ahead gives it while the one before it still runs, so that ranks need not wait.
 */
#ifndef DAEMON_SCHEDULER_H
#define DAEMON_SCHEDULER_H

#include "daemon/requests.h"
#include "model/hparams.h"
#include "rank/link.h"
#include "rank/step.h"

struct scheduler_options {
    struct step_limits limits;
    const struct hparams *hp; /* borrowed */
    int mla, strict_reuse;
};

/* A request as it enters.  Copied. */
struct scheduler_request {
    int64_t number; /* what the caller calls it */
    const char *client;
    int priority;
    const int32_t *tokens; /* [n_tokens], the prompt and what was produced before */
    int64_t n_tokens, n_prompt, max_tokens; /* max: of produced ones; -1: what the context holds */
};

/* A request takes a sequence: rank 0 must know before the step. */
struct scheduler_begin {
    int64_t number;
    int seq;
    const int32_t *tokens; /* [n_tokens], all known so far; valid until the next call */
    int64_t n_tokens;
    int64_t n_cached; /* positions that need not be computed */
};

struct scheduler_end {
    int64_t number;
    enum reason reason;
    int bad_layer; /* of REASON_NUMERIC_ERROR, see batch_token */
    int64_t bad_pos;
};

struct scheduler_token {
    int64_t number;
    int64_t index; /* of the produced ones, from 0 */
    int32_t token;
    int full; /* the last one it may have: end it with REASON_LENGTH unless the token itself does */
};

/* What a call decided; its lists are the scheduler's, valid until the next call. */
struct scheduler_output {
    struct step *step; /* of scheduler_plan: what to run; NULL: nothing */
    const struct scheduler_begin *begins;
    const struct scheduler_end *ends;     /* these are gone */
    const struct scheduler_token *tokens; /* of scheduler_result */
    const int64_t *paused;                /* of scheduler_plan: numbers of those that wait again */
    int n_begins, n_ends, n_tokens, n_paused;
};

struct scheduler_counts {
    int waiting, running;
    int64_t pages_total, pages_used, pages_cached;
    int64_t prompt_tokens, cached_tokens, produced_tokens, preempted;
};

struct scheduler;

enum err_code scheduler_create(struct scheduler **out, const struct scheduler_options *o,
                               struct err *e);
void scheduler_free(struct scheduler **s);

/* Errors: ERR_NOMEM. */
enum err_code scheduler_add(struct scheduler *s, const struct scheduler_request *r, struct err *e);

/* Takes a request out, with the result of the last step that it is in; what it computed may
 * be reused.  Unknown numbers are ignored. */
void scheduler_remove(struct scheduler *s, int64_t number);

/* Ends what no context holds and builds the next step, when no step runs.  id: of the step, not 0.
 * Errors: ERR_NOMEM. */
enum err_code scheduler_plan(struct scheduler *s, int64_t id, struct scheduler_output *out,
                             struct err *e);

/* The step after the running one, for which its tokens need not be known (batch_token.sampled).
 * out->step is NULL if there is none, because something else is to be decided or one is ahead
 * already.  Errors: ERR_NOMEM. */
enum err_code scheduler_ahead(struct scheduler *s, int64_t id, struct scheduler_output *out,
                              struct err *e);

/* Takes what the first of these steps produced: its new tokens, and ends that failed.
 * Errors: ERR_FORMAT, a result that does not belong to the step; ERR_NOMEM. */
enum err_code scheduler_result(struct scheduler *s, const struct link_result *r,
                               struct scheduler_output *out, struct err *e);

void scheduler_count(const struct scheduler *s, struct scheduler_counts *out);

#endif
