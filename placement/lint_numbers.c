/* SPDX-License-Identifier: MIT */
/* placement/lint_numbers.c - checks of layer numbers in patterns; see lint_parts.h. */
#include "placement/lint_parts.h"

#include <ctype.h>
#include <string.h>

/* A number written out in a pattern: digits that are no part of a class, a quantifier, an escape
 * or a longer number made with one of these. */
struct run {
    const char *at;
    size_t len;
};

static int joins_number(char before, char after)
{
    return (before && strchr("])}", before)) || (after && strchr("[(*+?{\\", after));
}

/* Index behind the item at p[i] that cannot hold a written number. */
static size_t skip_other(const char *p, size_t i)
{
    if (p[i] == '\\')
        return p[i + 1] ? i + 2 : i + 1;
    if (p[i] == '[' || p[i] == '{') {
        const char *end = strchr(p + i + 1, p[i] == '[' ? ']' : '}');
        return end ? (size_t)(end - p) + 1 : i + 1;
    }
    if (p[i] == '(' && p[i + 1] == '?')
        return p[i + 2] ? i + 3 : i + 2;
    return i + 1;
}

/* The next run from *from on; 0: none.  Digits after "\d" stand with it, so the byte before an
 * escape counts as well. */
static int next_run(const char *p, size_t *from, struct run *run)
{
    char before = *from > 0 ? p[*from - 1] : '\0';

    for (size_t i = *from; p[i];) {
        if (!isdigit((unsigned char)p[i])) {
            size_t behind = skip_other(p, i);
            int escaped_class = p[i] == '\\' && behind == i + 2 && isalpha((unsigned char)p[i + 1]);
            before = escaped_class ? ']' : p[behind - 1];
            i = behind;
            continue;
        }
        size_t n = strspn(p + i, "0123456789");
        char after = p[i + n];
        if (after == '\\' && !isalpha((unsigned char)p[i + n + 1]))
            after = '.'; /* an escaped sign ends the number */
        *run = (struct run){ p + i, n };
        int joined = joins_number(before, after);
        i += n;
        before = '0';
        *from = i;
        if (!joined && n < 5)
            return 1;
    }
    return 0;
}

/* Whether both neighbours are fixed signs, so that no longer number can stand there. */
static int is_bounded(const char *p, const struct run *r)
{
    const char *behind = r->at + r->len;

    return r->at - p >= 2 && r->at[-1] == '.' && r->at[-2] == '\\' && behind[0] == '\\' &&
           behind[1] == '.';
}

/* Builds the pattern with `text` in place of the run; returns the tensors it takes. */
static int replace_run(struct lint_rule *l, const struct run *r, const char *before,
                       const char *after, int keep_number)
{
    struct str s = { 0 };

    str_append(&s, l->pattern, (size_t)(r->at - l->pattern));
    str_puts(&s, before);
    if (keep_number)
        str_append(&s, r->at, r->len);
    str_puts(&s, after);
    str_puts(&s, r->at + r->len);
    int n = s.failed ? 0 : lint_variant(l, s.data);
    str_free(&s);
    return n;
}

int lint_bare_number(struct lint_rule *l, struct str *out)
{
    const struct match *m = l->match;
    int alone = m->takes[l->r].tensors_alone;
    struct run run;
    size_t from = 0;

    while (alone > 0 && next_run(l->pattern, &from, &run)) {
        if (is_bounded(l->pattern, &run))
            continue;
        int n = replace_run(l, &run, "(?<![0-9])", "(?![0-9])", 1);
        if (n == alone)
            continue;
        for (int w = 0; w < m->n_words; w++) /* what the number took by accident */
            l->bits[w] = lint_alone(l)[w] & ~l->bits[w];
        str_printf(out,
                   "the number %.*s is not bounded, so that the rule takes %d tensors, those of "
                   "layers ",
                   (int)run.len, run.at, alone);
        lint_put_layers(out, m, l->bits);
        str_printf(out, " too; bounded on both sides, as in blk\\.%.*s\\., it takes %d",
                   (int)run.len, run.at, n);
        return 1;
    }
    return 0;
}

int lint_missing_layer(struct lint_rule *l, struct str *out)
{
    struct run run;
    size_t from = 0;

    while (next_run(l->pattern, &from, &run)) {
        if (replace_run(l, &run, "[0-9]+", "", 0) == 0)
            continue;
        str_printf(out, "layer %.*s has no such tensor; layers that have it: ", (int)run.len,
                   run.at);
        lint_put_layers(out, l->match, l->bits);
        return 1;
    }
    return 0;
}
