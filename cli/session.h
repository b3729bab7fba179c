/* SPDX-License-Identifier: MIT */
/* cli/session.h - a model, its tokenizer and an engine, opened as the options say.
 *
 * In two steps, so that a command can look at its input (and refuse it) before the weights are
 * loaded.
 */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "options/options.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "rank/engine.h"

struct session {
    struct model *model;
    struct tokenizer *tokenizer; /* NULL unless asked for */
    struct engine *engine;
};

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

/* Loads the weights.  n_context: positions where -c was not given; 0: what fits.
 * Errors: those of engine_create. */
enum err_code session_load(struct session *s, const struct options *o, int64_t n_context,
                           struct err *e);

void session_close(struct session *s);

#endif
