/* SPDX-License-Identifier: MIT */
/* tests/placement/support.h - the 1,086 names of a V3 file, tab-separated lines, findings. */
#ifndef TESTS_PLACEMENT_SUPPORT_H
#define TESTS_PLACEMENT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "placement/match.h"

enum { MAX_NAMES = 4096 };

struct names {
    struct named_tensor v[MAX_NAMES];
    int n;
    char *text;
};

static inline char *support_read(const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/rules/%s", TEST_DATA, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

/* Every tensor gets 1 byte, so that bytes count tensors. */
static inline struct names *support_v3_names(void)
{
    struct names *n = calloc(1, sizeof *n);

    assert_non_null(n);
    n->text = support_read("v3-names.txt");
    for (char *line = strtok(n->text, "\n"); line; line = strtok(NULL, "\n"))
        n->v[n->n++] = (struct named_tensor){ .name = line, .bytes = 1 };
    assert_int_equal(n->n, 1086);
    return n;
}

static inline void support_free_names(struct names *n)
{
    free(n->text);
    free(n);
}

/* The finding of this level about rule r that contains `part`; fails the test without one. */
static inline const char *support_want(const struct findings *f, enum finding_level level, int r,
                                       const char *part)
{
    for (int i = 0; i < f->n; i++)
        if (f->v[i].level == level && (r < 0 || f->v[i].rule == r) && strstr(f->v[i].text, part))
            return f->v[i].text;
    for (int i = 0; i < f->n; i++)
        print_message("  level %d rule %d: %s\n", f->v[i].level, f->v[i].rule, f->v[i].text);
    fail_msg("no finding of level %d about rule %d says '%s'", level, r, part);
    return NULL;
}

#endif
