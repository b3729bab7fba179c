/* SPDX-License-Identifier: MIT */
/* tests/support/edit.h - changes to a sheet as table rows. */
#ifndef TESTS_SUPPORT_EDIT_H
#define TESTS_SUPPORT_EDIT_H

#include "tests/support/sheet.h"

enum edit_kind {
    EDIT_END,
    EDIT_DROP_KEY,    /* text: key                            */
    EDIT_SET_INT,     /* text: key, a                         */
    EDIT_SET_REAL,    /* text: key, real                      */
    EDIT_SET_WORD,    /* text: key, word                      */
    EDIT_DROP_TENSOR, /* text: tensor                         */
    EDIT_ADD_TENSOR,  /* text: tensor, a, b, c: shape, in F16 */
    EDIT_RESHAPE,     /* text: tensor, a, b, c: shape         */
    EDIT_RETYPE,      /* text: tensor, a: enum quant          */
    EDIT_RENAME,      /* text: tensor, word                   */
};

struct edit {
    enum edit_kind kind;
    const char *text;
    int64_t a, b, c;
    double real;
    const char *word;
};

/* How rows spell them. */
/* clang-format off */
#define SAME                 { .kind = EDIT_END }
#define LOSE(key)            { .kind = EDIT_DROP_KEY, .text = key }
#define PUT(key, v)          { .kind = EDIT_SET_INT, .text = key, .a = v }
#define REAL(key, v)         { .kind = EDIT_SET_REAL, .text = key, .real = v }
#define WORD(key, v)         { .kind = EDIT_SET_WORD, .text = key, .word = v }
#define DROP(name)           { .kind = EDIT_DROP_TENSOR, .text = name }
#define MORE(name, x, y)     { .kind = EDIT_ADD_TENSOR, .text = name, .a = x, .b = y }
#define MORE3(name, x, y, z) { .kind = EDIT_ADD_TENSOR, .text = name, .a = x, .b = y, .c = z }
#define FORM(name, x, y)     { .kind = EDIT_RESHAPE, .text = name, .a = x, .b = y }
#define FORM3(name, x, y, z) { .kind = EDIT_RESHAPE, .text = name, .a = x, .b = y, .c = z }
#define TYPE(name, q)        { .kind = EDIT_RETYPE, .text = name, .a = QUANT_##q }
#define RENAME(name, to)     { .kind = EDIT_RENAME, .text = name, .word = to }
/* clang-format on */

/* Applies edits up to the first EDIT_END, or max of them. */
void edit_apply(struct sheet *s, const struct edit *edits, int max);

#endif
