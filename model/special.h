/* SPDX-License-Identifier: MIT */
/* model/special.h - finds the tokens that are cut out of a text before it is split.
 *
 * Private to model/.  Of the tokens that match, the leftmost counts, and of those the
 * longest.
 */
#ifndef MODEL_SPECIAL_H
#define MODEL_SPECIAL_H

#include <stddef.h>
#include <stdint.h>

/* Longer ones are not looked for, so that a search takes time linear in the text. */
enum { SPECIAL_MAX_BYTES = 1024 };

/* How far a token must be allowed for to be found. */
enum special_class {
    SPECIAL_TEXT,    /* user-defined: always                                         */
    SPECIAL_MARKER,  /* user-defined, but of the form <|...|>: not in words of others */
    SPECIAL_CONTROL, /* control and unknown: only where the caller asks for it        */
};

struct special {
    const char *text; /* borrowed, len >= 1 bytes */
    size_t len;
    int32_t id;
    enum special_class class;
};

/* Starts as zeros; end with specials_free. */
struct specials {
    struct special *at; /* sorted by text once specials_sort was called */
    size_t n, cap;
    int failed;
    size_t first[257]; /* those that start with byte b: [first[b], first[b + 1]) */
};

/* Empty texts and those over the limit are passed over.  A failed allocation sets `failed`. */
void specials_add(struct specials *s, const struct special *token);

/* To be called once, after the last one was added. */
void specials_sort(struct specials *s);

/* The first token in text[n] at or behind *at whose class is at most `class`: moves *at to it,
 * or to n and returns NULL. */
const struct special *specials_next(const struct specials *s, const char *text, size_t n,
                                    enum special_class class, size_t *at);

void specials_free(struct specials *s);

#endif
