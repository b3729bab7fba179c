/* SPDX-License-Identifier: MIT */
/* model/vocab.h - texts by number, and numbers by text.
 *
 * Private to model/.  Numbers below the count of tokens are token ids; the symbols that
 * only merges know follow.  Texts lie end to end in one block, found through an open
 * hash table.
 */
#ifndef MODEL_VOCAB_H
#define MODEL_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct vocab_text {
    size_t at, len; /* in `bytes` */
};

struct vocab_slot {
    int32_t number; /* + 1; 0: empty */
    uint32_t tag;   /* of the text's hash: most other texts are passed by without a look */
};

/* Starts as zeros; owned: end with vocab_free.  A failed allocation sets `failed`, and
 * numbers are then -1; check it once, at the end. */
struct vocab {
    struct str bytes;
    struct vocab_text *text;
    int32_t n, cap;
    struct vocab_slot *slot;
    size_t n_slots;
    int failed;
};

/* Makes room for n texts in all, which saves time where many are to come. */
void vocab_reserve(struct vocab *v, int32_t n);

/* A new number for a text; of a text added twice the later number is found. */
int32_t vocab_add(struct vocab *v, const char *text, size_t n);

/* The number of a text, which is added if it has none. */
int32_t vocab_intern(struct vocab *v, const char *text, size_t n);

/* The number of a text, or -1. */
int32_t vocab_find(const struct vocab *v, const char *text, size_t n);

/* The text of a number; valid until the next vocab_add or vocab_intern. */
static inline const char *vocab_text(const struct vocab *v, int32_t number, size_t *n)
{
    *n = v->text[number].len;
    return v->bytes.data + v->text[number].at;
}

void vocab_free(struct vocab *v);

#endif
