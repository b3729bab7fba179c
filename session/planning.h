/* SPDX-License-Identifier: MIT */
/* session/planning.h - from options to a plan, for every program that makes one. */
#ifndef SESSION_PLANNING_H
#define SESSION_PLANNING_H

#include "options/options.h"
#include "placement/changes.h"
#include "placement/report.h"
#include "placement/rules.h"

/* Begins as { .o = options } and whatever of the first part is known; ends with planning_free. */
struct planning {
    const struct options *o;
    int64_t n_context;          /* positions of all requests; 0: what fits                     */
    int ranks;                  /* of all hosts; 0: as many as the machine suggests            */
    struct inventory inventory; /* n 0: --devices, otherwise this machine                      */

    const struct model *model;
    struct rules rules;
    struct hot hot;
    struct named_tensor *names; /* [n_names], in file order */
    int n_names;
    struct match match;
    struct findings findings;
    struct plan_input in;
    struct plan plan;
    struct changes changes;
};

/* This machine with what bench --devices measured here, if it ever did and the machine is still
 * the same.  Errors: those of inventory_probe, profile_read. */
enum err_code planning_probe(struct planning *x, struct err *e);

/* How many ranks a program of this host makes: --ranks, otherwise one for each NUMA node, or one in
 * all where -t wants more threads than that leaves cores for. */
int planning_ranks(const struct options *o);

/* Wrong rules and a plan that does not fit are no errors yet: planning_judge.
 * Errors: ERR_USAGE, options or rules that cannot be read; ERR_IO; ERR_NOMEM. */
enum err_code planning_make(struct planning *x, const struct model *m, struct err *e);

/* Logs the errors of rules.  Errors: ERR_USAGE, there are some; ERR_NOFIT, with the shortfall and
 * the cheapest change. */
enum err_code planning_judge(const struct planning *x, struct err *e);

/* Warnings, notes, and a line for each device of several; of many, for the fullest. */
void planning_log(const struct planning *x);

/* All that a report says of it, but for `model`, the file as the user named it.  advice: room of
 * CHANGES_MAX, which with *x must outlive the report. */
struct report planning_report(const struct planning *x, const char *model,
                              const char *advice[CHANGES_MAX]);

void planning_free(struct planning *x);

#endif
