/* SPDX-License-Identifier: MIT */
/* placement/findings.c - see findings.h. */
#include "placement/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int findings_grow(struct findings *f)
{
    if (f->n < f->cap)
        return 1;
    int cap = f->cap ? 2 * f->cap : 16;
    struct finding *v = realloc(f->v, (size_t)cap * sizeof *v);
    if (!v)
        return 0;
    f->v = v;
    f->cap = cap;
    return 1;
}

void findings_add(struct findings *f, enum finding_level level, int rule, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    int len = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (len < 0 || !findings_grow(f)) {
        if (len >= 0)
            free(text);
        f->failed = 1;
        return;
    }
    f->v[f->n++] = (struct finding){ .level = level, .rule = rule, .text = text };
}

void findings_free(struct findings *f)
{
    for (int i = 0; i < f->n; i++)
        free(f->v[i].text);
    free(f->v);
    *f = (struct findings){ 0 };
}

int findings_count(const struct findings *f, enum finding_level level, int rule)
{
    int n = 0;

    for (int i = 0; i < f->n; i++)
        n += f->v[i].level == level && (rule < 0 || f->v[i].rule == rule);
    return n;
}
