/* SPDX-License-Identifier: MIT */
/* placement/lint_text.c - checks of how a pattern is written; see lint_parts.h. */
#include "placement/lint_parts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "placement/number_range.h"

/* The pattern without any byte of `drop`; *n tensors match it.  NULL: no memory. */
static char *without(struct lint_rule *l, const char *drop, int *n)
{
    char *variant = malloc(strlen(l->pattern) + 1), *to = variant;

    if (!variant)
        return NULL;
    for (const char *s = l->pattern; *s; s++)
        if (!strchr(drop, *s))
            *to++ = *s;
    *to = '\0';
    *n = lint_variant(l, variant);
    return variant;
}

static int taken(const struct lint_rule *l)
{
    return l->match->takes[l->r].tensors_alone;
}

static int column_of(const struct lint_rule *l, const char *at)
{
    return l->rules->v[l->r].column + (int)(at - l->pattern);
}

int lint_quotes(struct lint_rule *l, struct str *out)
{
    const char *at = strpbrk(l->pattern, "\"'");
    int n = 0;

    if (!at)
        return 0;
    char *variant = without(l, "\"'", &n);
    str_printf(out,
               "a quote mark at column %d is part of the pattern, and no name has one; without "
               "quotes it takes %d tensor%s, as it stands %d",
               column_of(l, at), n, lint_s(n), taken(l));
    free(variant);
    return 1;
}

int lint_backslashes(struct lint_rule *l, struct str *out)
{
    const char *at = strstr(l->pattern, "\\\\");

    if (!at)
        return 0;
    char *variant = strdup(l->pattern), *to = variant;
    if (!variant)
        return 0;
    for (const char *s = l->pattern; *s; s++) {
        s += s[0] == '\\' && s[1] == '\\';
        *to++ = *s;
    }
    *to = '\0';
    int n = lint_variant(l, variant);
    str_printf(out,
               "two backslashes at column %d stand for a backslash, which no name has; with "
               "single ones it takes %d tensor%s, as it stands %d",
               column_of(l, at), n, lint_s(n), taken(l));
    free(variant);
    return 1;
}

int lint_blanks(struct lint_rule *l, struct str *out)
{
    const char *at = strpbrk(l->pattern, " \t");
    int n = 0;

    if (!at)
        return 0;
    char *variant = without(l, " \t", &n);
    str_printf(out,
               "a blank in the pattern at column %d is matched as it stands, and no name has one; "
               "without blanks it takes %d tensor%s, as it stands %d",
               column_of(l, at), n, lint_s(n), taken(l));
    free(variant);
    return 1;
}

/* [0-10] and the like: numbers on both sides, one of them with more than one digit. */
static const char *find_class_range(const char *s, int *lo, int *hi, size_t *len)
{
    for (; *s; s++) {
        if (*s == '\\') {
            if (!*++s)
                return NULL;
            continue;
        }
        if (*s != '[' || !isdigit((unsigned char)s[1]))
            continue;
        char *end;
        long a = strtol(s + 1, &end, 10);
        const char *dash = end;
        if (*dash != '-' || !isdigit((unsigned char)dash[1]))
            continue;
        long b = strtol(dash + 1, &end, 10);
        int digits = (int)(end - s) - 2;
        if (*end != ']' || digits < 3 || a > b || b > 9999)
            continue;
        *lo = (int)a;
        *hi = (int)b;
        *len = (size_t)(end - s) + 1;
        return s;
    }
    return NULL;
}

int lint_class_range(struct lint_rule *l, struct str *out)
{
    int lo, hi;
    size_t len;
    char range[256];
    const char *at = find_class_range(l->pattern, &lo, &hi, &len);

    if (!at)
        return 0;
    number_range_pattern(lo, hi, range, sizeof range);
    str_printf(out,
               "[%d-%d] at column %d is a class of single characters, not the numbers %d to %d: "
               "the rule takes %d tensor%s, of layers ",
               lo, hi, column_of(l, at), lo, hi, taken(l), lint_s(taken(l)));
    lint_put_layers(out, l->match, lint_alone(l));
    struct str variant = { 0 };
    str_append(&variant, l->pattern, (size_t)(at - l->pattern));
    str_puts(&variant, range);
    str_puts(&variant, at + len);
    int n = variant.failed ? 0 : lint_variant(l, variant.data);
    str_printf(out, "; for the numbers write %s, which takes %d", range, n);
    str_free(&variant);
    return 1;
}

/* The ']' of the class that begins at s, or the end of the text. */
static const char *class_end(const char *s)
{
    s++;
    s += *s == '^';
    s += *s == ']';
    while (*s && *s != ']')
        s += s[0] == '\\' && s[1] ? 2 : 1;
    return s;
}

/* llama.cpp's own way to say "chexps or exps". */
static int is_ch_idiom(const char *p, const char *s)
{
    return s - p >= 4 && strncmp(s - 4, "(ch|)", 5) == 0;
}

/* Where an alternative with nothing in it ends, or NULL; *inside: within a group. */
static const char *find_empty_alternative(const char *p, int *inside)
{
    const char *begin = p;     /* of the running alternative           */
    int depth = 0, opened = 0; /* opened: it is the first of a group */

    for (const char *s = p;; s++) {
        if (*s == '\\' && s[1]) {
            s++;
            continue;
        }
        if (*s == '[' && *(s = class_end(s)))
            continue;
        int ends = *s == '|' || *s == ')' || !*s;
        int no_choice = (opened && *s == ')') || (s == p && !*s);
        if (ends && s == begin && !no_choice && !is_ch_idiom(p, s)) {
            *inside = depth > 0;
            return s;
        }
        if (!*s)
            return NULL;
        depth += (*s == '(') - (*s == ')');
        if (*s == '(' || *s == '|') {
            opened = *s == '(';
            s += opened && s[1] == '?' && s[2] == ':' ? 2 : 0;
            begin = s + 1;
        }
    }
}

int lint_empty_alternative(struct lint_rule *l, struct str *out)
{
    int inside = 0;
    const char *at = find_empty_alternative(l->pattern, &inside);

    if (!at)
        return 0;
    if (inside)
        str_printf(out,
                   "an empty alternative at column %d makes the whole group optional: the rule "
                   "takes %d tensor%s; leave out the '|' beside it if that is not meant",
                   column_of(l, at), taken(l), lint_s(taken(l)));
    else
        str_printf(out,
                   "an empty alternative at column %d matches every name: the rule takes %d "
                   "tensors; leave out the '|' beside it",
                   column_of(l, at), taken(l));
    return 1;
}
