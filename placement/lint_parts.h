/* SPDX-License-Identifier: MIT */
/* placement/lint_parts.h - the single checks of lint.c; private to placement/.
 *
 * A check looks at one rule and writes one sentence: what the rule takes and what was
 * probably meant.  It returns 1 if it has something to say.
 */
#ifndef PLACEMENT_LINT_PARTS_H
#define PLACEMENT_LINT_PARTS_H

#include "base/str.h"
#include "placement/match.h"

struct lint_rule {
    const struct rules *rules;
    const struct match *match;
    int r;
    const char *pattern; /* of rule r                                  */
    char *plain;         /* the pattern without its backslashes        */
    uint64_t *bits;      /* [n_words], for variants of the pattern     */
};

typedef int lint_fn(struct lint_rule *l, struct str *out);

/* How it is written (lint_text.c). */
lint_fn lint_quotes, lint_backslashes, lint_blanks, lint_class_range, lint_empty_alternative;

/* Layer numbers (lint_numbers.c). */
lint_fn lint_bare_number, lint_missing_layer;

/* Names (lint_names.c). */
lint_fn lint_hf_name, lint_family, lint_surprise, lint_nearest_name;

/* Tensors that a variant of the pattern takes, as bits in l->bits; 0 if it is no pattern. */
int lint_variant(struct lint_rule *l, const char *pattern);

/* "3, 5-7, 12": the layers of these tensors, at most some ranges of them; "none". */
void lint_put_layers(struct str *out, const struct match *m, const uint64_t *bits);

/* The number behind "blk." in a name, or -1. */
int lint_layer(const char *name);

/* "s" where there is not exactly one. */
static inline const char *lint_s(int n)
{
    return n == 1 ? "" : "s";
}

/* What rule r takes alone, [n_words] bits. */
static inline const uint64_t *lint_alone(const struct lint_rule *l)
{
    return l->match->alone + (int64_t)l->r * l->match->n_words;
}

#endif
