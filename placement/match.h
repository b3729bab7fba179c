/* SPDX-License-Identifier: MIT */
/* placement/match.h - which rule takes which tensor.
 *
 * Patterns are searched in the names of the file's tensors; the first rule that matches takes
 * the tensor.  For every rule it is also known what it would take alone, and to which earlier
 * rules it lost.  A rule with an error in its target still takes tensors, so that the counts
 * of the others stay what the user expects; one whose pattern is invalid or was stopped by
 * the step limit takes none.
 */
#ifndef PLACEMENT_MATCH_H
#define PLACEMENT_MATCH_H

#include <stdint.h>

#include "placement/findings.h"
#include "placement/name_index.h"
#include "placement/rules.h"

struct rule_take {
    int tensors, tensors_alone; /* as first match; if it stood alone         */
    int64_t bytes, bytes_alone;
    int lost_to; /* the earlier rule that took most of the others, or -1     */
    int stopped; /* by the step limit                                        */
    int invalid; /* the pattern does not compile                             */
};

struct match {
    int n_rules, n_tensors;
    struct rule_take *takes; /* [n_rules]                       */
    int *rule_of;            /* [n_tensors], -1: no rule        */
    uint64_t *alone;         /* [n_rules][match_words] bits     */
    int n_words;
    const struct named_tensor *tensors; /* [n_tensors], borrowed */
    struct name_index index;
};

/* Runs every rule over every name.  What is wrong with single rules goes to *findings.
 * Errors: ERR_NOMEM.  End with match_free. */
enum err_code match_rules(struct match *m, const struct rules *rules,
                          const struct named_tensor *tensors, int n_tensors,
                          struct findings *findings, struct err *e);
void match_free(struct match *m);

/* What any pattern takes of the same tensors: writes [n_words] bits.  Returns their number; -1 if
 * the pattern is invalid, -2 - t if it was stopped on tensor t (no bit is set then).  `why` tells
 * of an invalid one; its code ERR_NOMEM is to be passed on. */
int match_text(const struct match *m, const char *pattern, uint64_t *bits, int *column,
               struct err *why);

/* Whether rule r would take tensor t if it stood alone. */
static inline int match_alone(const struct match *m, int r, int t)
{
    return (int)(m->alone[(int64_t)r * m->n_words + t / 64] >> (t % 64) & 1);
}

/* "rule 2 (-ot, column 10) exps=CPU", for messages. */
const char *rule_label(const struct rules *rules, int r, char *buf, size_t size);

#endif
