/* SPDX-License-Identifier: MIT */
/* placement/rules.h - placement rules as the user wrote them.
 *
 * A rule is PATTERN=TARGET.  Several are separated by commas outside () [] {} (\, is no
 * separator either), the option may be repeated, and a file holds one a line with # comments.
 * The target is split off at the last '=' whose right side is a target; blanks around ',' and
 * '=' are trimmed.  Every rule remembers where it stands, for messages.
 *
 * --cpu-moe, --n-cpu-moe and --hot are rules as well, appended behind those of the user.
 */
#ifndef PLACEMENT_RULES_H
#define PLACEMENT_RULES_H

#include "placement/target.h"

enum rule_origin {
    RULE_TYPED,    /* written by the user: taking nothing is an error */
    RULE_APPENDED, /* stands for an option such as --cpu-moe          */
    RULE_HOT,      /* --hot: leaves experts to the planner, which deals the frequent ones first,
                      also those that rules before it share out by count */
};

struct rule {
    enum rule_origin origin;
    char *source;         /* owned: "-ot", "-ot #2", "rules.txt:12", "--cpu-moe"       */
    int column;           /* 1-based byte in the option's value or line: the pattern   */
    char *pattern;        /* owned                                                     */
    char *target_text;    /* owned, trimmed; "" if there is none                   */
    struct target target; /* n == 0 when `error` is set, and of RULE_HOT        */
    char *error;          /* owned: what is wrong with the rule as text, or NULL         */
};

struct rules {
    struct rule *v; /* [n], first match wins */
    int n, cap;
};

enum { RULES_MAX = 100000, RULES_MAX_TEXT = 16 << 20 };

/* Appends what one option's value holds.  A rule that is wrong is kept with its `error`, so that
 * the report can be complete.  Errors: ERR_NOMEM; ERR_USAGE, no rule at all in the text, or too
 * many. */
enum err_code rules_add_text(struct rules *r, const char *source, const char *text, struct err *e);

/* The same for a file.  Errors: ERR_IO and those of rules_add_text. */
enum err_code rules_add_file(struct rules *r, const char *path, struct err *e);

/* --cpu-moe: the experts of every block in host memory. */
enum err_code rules_add_cpu_moe(struct rules *r, struct err *e);

/* --n-cpu-moe N: those of blocks 0 .. N - 1, dense ones counted.  N = 0 adds nothing. */
enum err_code rules_add_n_cpu_moe(struct rules *r, int n_blocks, struct err *e);

/* --hot: experts that no rule takes go where the planner wants them, frequent ones first. */
enum err_code rules_add_hot(struct rules *r, struct err *e);

void rules_free(struct rules *r);

#endif
