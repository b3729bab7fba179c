/* SPDX-License-Identifier: MIT */
/* model/bpe.h - byte pair encoding: bytes of one piece to token ids.
 *
 * Private to model/.  A piece starts as one symbol for each byte; as long as two
 * neighbours have a merge, those with the lowest rank become one symbol, the leftmost
 * first.  Symbols that are no token are written byte by byte.
 *
 * A struct bpe is immutable once bpe_finish was called; the work space is the caller's,
 * one for each thread.
 */
#ifndef MODEL_BPE_H
#define MODEL_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "model/tokenizer.h"
#include "model/vocab.h"

struct bpe_merge {
    int32_t left, right, result; /* symbols: numbers in the vocabulary */
};

/* Starts as zeros; owned: end with bpe_free.  A failed allocation sets `failed`. */
struct bpe {
    const struct vocab *vocab; /* borrowed, as `plain` is */
    const uint8_t *plain;      /* [n_tokens]: text may become this token */
    int32_t n_tokens;
    size_t longest;          /* bytes of the longest text of a token */
    struct bpe_merge *merge; /* by rank */
    uint32_t n_merges, cap;
    uint32_t *slot; /* rank + 1 by the pair, 0: empty */
    size_t n_slots;
    int32_t byte_symbol[256];
    int32_t byte_token[256]; /* for symbols that are no token; -1: none */
    struct str joined;       /* the result of the merge being added */
    int failed;
};

/* Makes room for n merges in all, which saves time where many are to come. */
void bpe_reserve(struct bpe *b, uint32_t n);

/* Adds the next merge, in order of rank, written "LEFT RIGHT"; its symbols join the
 * vocabulary.  Returns 0; 1 if its result is no token; -1 if it is no merge at all. */
int bpe_add(struct bpe *b, struct vocab *v, const char *text, size_t n, int32_t n_tokens);

/* To be called once, when the vocabulary has all tokens and merges; the caller fills in
 * byte_token. */
void bpe_finish(struct bpe *b, struct vocab *v, const uint8_t *plain, int32_t n_tokens);
void bpe_free(struct bpe *b);

struct bpe_node {
    int32_t symbol;         /* -1: merged into the one before */
    uint32_t before, after; /* neighbours */
};

/* Starts as zeros; end with bpe_work_free. */
struct bpe_work {
    struct bpe_node *node; /* [cap] */
    uint64_t *heap;        /* [2 * cap]: rank << 32 | left node */
    size_t cap, n_heap;
    struct str letters;
};
void bpe_work_free(struct bpe_work *w);

/* Appends the ids of piece[n], n < 2^31.  With `whole`, a piece that is a token is that
 * token, whatever the merges say.  On no memory sets out->failed. */
void bpe_encode(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n, int whole,
                struct token_list *out);

#endif
