/* SPDX-License-Identifier: MIT */
/* placement/report.h - a plan for people and for programs.
 *
 *     text     at most 100 columns, plain ASCII
 *     JSON     one object, its fields in docs/placement.md
 *     HTML     one page that needs nothing else
 *     explain  everything about one tensor
 *
 * Sizes in text are decimal: 1 GB is 10^9 bytes.
 */
#ifndef PLACEMENT_REPORT_H
#define PLACEMENT_REPORT_H

#include "base/str.h"
#include "placement/findings.h"
#include "placement/match.h"
#include "placement/plan.h"
#include "placement/rules.h"

/* All borrowed. */
struct report {
    const char *model; /* file, as the user named it */
    const struct plan *plan;
    const struct rules *rules;
    const struct match *match;
    const struct findings *findings;
    const char *const *advice; /* [n_advice] what would make it fit, best first */
    int n_advice;
    int no_tensors; /* JSON without its longest part */
};

/* Each appends to *out, whose `failed` tells that memory ran out. */
void report_text(struct str *out, const struct report *r);
void report_json(struct str *out, const struct report *r);
void report_html(struct str *out, const struct report *r);

/* Errors: ERR_USAGE, no tensor of this name: with the nearest one. */
enum err_code report_explain(struct str *out, const struct report *r, const char *tensor,
                             struct err *e);

#endif
