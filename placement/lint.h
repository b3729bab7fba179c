/* SPDX-License-Identifier: MIT */
/* placement/lint.h - rules that do something else than their author believes.
 *
 * A rule that takes nothing, or only what earlier rules took, is an error (a warning with
 * allow_unused; of appended rules a note).  Blanks, classes that look like number ranges, empty
 * alternatives, numbers that are also the end of longer ones, Hugging Face names and names of
 * other models get a warning that says what the rule takes and what was probably meant.
 */
#ifndef PLACEMENT_LINT_H
#define PLACEMENT_LINT_H

#include "placement/match.h"

/* Errors: ERR_NOMEM. */
enum err_code lint_rules(struct findings *f, const struct rules *rules, const struct match *m,
                         int allow_unused, struct err *e);

#endif
