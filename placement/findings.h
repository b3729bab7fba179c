/* SPDX-License-Identifier: MIT */
/* placement/findings.h - what the planner has to say: errors, warnings, notes.
 *
 * A rule that is wrong does not end the planning: the report stays complete, and the caller
 * decides by the errors in the list.  Texts are whole sentences for the user, without a
 * trailing period, and name the rule where one is meant.
 */
#ifndef PLACEMENT_FINDINGS_H
#define PLACEMENT_FINDINGS_H

enum finding_level { FINDING_NOTE, FINDING_WARNING, FINDING_ERROR };

struct finding {
    enum finding_level level;
    int rule;   /* index of the rule it is about, or -1      */
    char *text; /* owned                                     */
};

/* Starts as { 0 }; end with findings_free.  A failed allocation sets `failed` and drops the
 * finding; check it once, at the end. */
struct findings {
    struct finding *v; /* [n] */
    int n, cap;
    int failed;
};

void findings_add(struct findings *f, enum finding_level level, int rule, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void findings_free(struct findings *f);

/* Findings of this level; with rule >= 0 only those about it. */
int findings_count(const struct findings *f, enum finding_level level, int rule);

#endif
