/* SPDX-License-Identifier: MIT */
/* model/presplit.h - a pre-tokenizer, compiled once and run often.
 *
 * Private to model/; others call presplit() of model/tokenizer.h.  A presplitter is
 * immutable once opened and may be used by several threads.
 */
#ifndef MODEL_PRESPLIT_H
#define MODEL_PRESPLIT_H

#include "model/tokenizer.h"

struct presplitter;

/* Compiles the expressions of the pre-tokenizer called `pre`; "" and "default" are what a
 * file without the key has, and no name of any.
 * Errors: ERR_UNSUPPORTED, unknown name; ERR_NOMEM. */
enum err_code presplitter_open(struct presplitter **out, const char *pre, struct err *e);
void presplitter_close(struct presplitter **p);

/* Whether this is one of its names, whichever it was opened with. */
int presplitter_is(const struct presplitter *p, const char *name);

/* As presplit().  Errors: ERR_NOMEM. */
enum err_code presplitter_run(const struct presplitter *p, const char *text, size_t n, piece_fn *fn,
                              void *arg, struct err *e);

#endif
