/* SPDX-License-Identifier: MIT */
/* placement/pattern.h - one compiled pattern: PCRE2 with limits.
 *
 * Bytes, case-sensitive, substring search.  A pattern that needs too many steps is stopped, so
 * that no rule can hold up the planner; tensor names are short, honest patterns need a few
 * hundred steps.  Literal stretches that every match must contain are known beforehand: most
 * names are ruled out by them without running the pattern at all.
 */
#ifndef PLACEMENT_PATTERN_H
#define PLACEMENT_PATTERN_H

#include <stddef.h>

#include "base/err.h"

enum {
    PATTERN_MAX_BYTES = 8192,
    PATTERN_MAX_STEPS = 20000,
    PATTERN_MAX_LITERALS = 4,
    PATTERN_MAX_LITERAL = 64,
};

struct pattern;

/* What the text of a pattern says without running it. */
struct pattern_literals {
    int n;
    char text[PATTERN_MAX_LITERALS][PATTERN_MAX_LITERAL]; /* NUL-terminated */
};

/* *out is set only on success; end with pattern_free.  Errors: ERR_USAGE, with what is wrong and
 * at which byte (1-based) of the pattern, also in *column; ERR_NOMEM. */
enum err_code pattern_compile(struct pattern **out, const char *text, int *column, struct err *e);
void pattern_free(struct pattern **p);

/* Makes many matches faster; worth it from some hundred names on. */
void pattern_speed_up(struct pattern *p);

/* 1: found in name; 0: not; -1: stopped by the limit. */
int pattern_search(struct pattern *p, const char *name, size_t len);

/* Stretches of at least two bytes that a match must contain, the longest few. */
void pattern_find_literals(struct pattern_literals *l, const char *text);

#endif
