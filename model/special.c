/* SPDX-License-Identifier: MIT */
/* model/special.c - see special.h.
 *
 * The sorted list is the trie: the tokens that share a prefix are neighbours, so each
 * byte of the text narrows an interval of the list by two binary searches.
 */
#include "model/special.h"

#include <stdlib.h>
#include <string.h>

void specials_add(struct specials *s, const struct special *token)
{
    if (s->failed || token->len == 0 || token->len > SPECIAL_MAX_BYTES)
        return;
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        struct special *at = realloc(s->at, cap * sizeof *at);
        if (!at) {
            s->failed = 1;
            return;
        }
        s->at = at;
        s->cap = cap;
    }
    s->at[s->n++] = *token;
}

/* By text, a prefix before what it begins; of equal texts the later id first. */
static int compare(const void *a, const void *b)
{
    const struct special *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);

    if (order == 0)
        order = (x->len > y->len) - (x->len < y->len);
    return order ? order : (x->id < y->id) - (x->id > y->id);
}

void specials_sort(struct specials *s)
{
    size_t i = 0, n = 0;

    if (s->n)
        qsort(s->at, s->n, sizeof *s->at, compare);
    for (; i < s->n; i++) /* of equal texts the first stays */
        if (n == 0 || s->at[n - 1].len != s->at[i].len ||
            memcmp(s->at[n - 1].text, s->at[i].text, s->at[i].len) != 0)
            s->at[n++] = s->at[i];
    s->n = n;
    i = 0;
    for (size_t byte = 0; byte <= 256; byte++) {
        while (i < s->n && (uint8_t)s->at[i].text[0] < byte)
            i++;
        s->first[byte] = i;
    }
}

/* The first of [low, high), which share `depth` bytes, whose next byte is at least `byte`.
 * One that has no next byte comes first. */
static size_t lower_bound(const struct specials *s, size_t low, size_t high, size_t depth, int byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct special *token = &s->at[middle];
        if (token->len <= depth || (uint8_t)token->text[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that text[n] starts with; n >= 1. */
static const struct special *longest(const struct specials *s, const char *text, size_t n,
                                     enum special_class class)
{
    const struct special *found = NULL;
    size_t low = s->first[(uint8_t)text[0]], high = s->first[(uint8_t)text[0] + 1];

    for (size_t depth = 1; low < high; depth++) {
        if (s->at[low].len == depth && s->at[low].class <= class)
            found = &s->at[low];
        if (depth == n)
            break;
        high = lower_bound(s, low, high, depth, (uint8_t)text[depth] + 1);
        low = lower_bound(s, low, high, depth, (uint8_t)text[depth]);
    }
    return found;
}

const struct special *specials_next(const struct specials *s, const char *text, size_t n,
                                    enum special_class class, size_t *at)
{
    for (; *at < n; ++*at) {
        const struct special *found = longest(s, text + *at, n - *at, class);
        if (found)
            return found;
    }
    return NULL;
}

void specials_free(struct specials *s)
{
    free(s->at);
    *s = (struct specials){ 0 };
}
