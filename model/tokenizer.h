/* SPDX-License-Identifier: MIT */
/* model/tokenizer.h - text to token ids and back: byte-level BPE.
 *
 * Text is bytes: anything round-trips, valid UTF-8 or not.  Steps of tokenizer_encode:
 * special tokens are cut out, the rest is split into pieces by the pre-tokenizer
 * named in the file, each piece is merged by rank.  Time is O(n log n) in the
 * text and the stack constant.
 *
 * A tokenizer is immutable once opened and may be used by several threads.
 */
#ifndef MODEL_TOKENIZER_H
#define MODEL_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct gguf;
struct tokenizer;

/* Ids in order; starts as zeros.  Owned: end with token_list_free.  A failed allocation
 * sets `failed` and drops the ids; check it once, at the end. */
struct token_list {
    int32_t *ids;
    size_t n, cap;
    int failed;
};
void token_list_push(struct token_list *l, int32_t id);
void token_list_free(struct token_list *l);

/* Reads the vocabulary of an open file (any architecture; vocabulary-only files too).
 * Errors: ERR_FORMAT (missing or inconsistent keys), ERR_UNSUPPORTED (a tokenizer model or
 * pre-tokenizer that is not known: lists those that are), ERR_NOMEM. */
enum err_code tokenizer_open(struct tokenizer **out, const struct gguf *g, struct err *e);
void tokenizer_close(struct tokenizer **t);

enum tokenize_flags {
    TOKENIZE_BOS = 1,     /* BOS in front, if the file asks for it (add_bos_token)      */
    TOKENIZE_SPECIAL = 2, /* control tokens in the text become their ids; a text that
                             begins with BOS then gets no second one                    */
    TOKENIZE_LITERAL = 4, /* for what people write in a chat: markers, <|...|> and
                             <｜...｜>, stay text though the file calls them user-defined */
};

/* Appends the ids of text[n].  User-defined tokens in the text are always recognised but for
 * TOKENIZE_LITERAL, control tokens only with TOKENIZE_SPECIAL.  Bytes that the vocabulary
 * has no token for are left out.  Errors: ERR_NOMEM. */
enum err_code tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                               unsigned flags, struct token_list *out, struct err *e);

/* Appends the bytes of one token.  Control tokens yield nothing unless `show_special`.
 * Ids out of range yield nothing. */
void tokenizer_decode(const struct tokenizer *t, int32_t id, int show_special, struct str *out);

int tokenizer_size(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t); /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t);
int tokenizer_adds_bos(const struct tokenizer *t);
int tokenizer_is_end(const struct tokenizer *t, int32_t id); /* ends generation */

/* The id whose text is exactly this, or -1: for control tokens of chat formats. */
int32_t tokenizer_find(const struct tokenizer *t, const char *text);

/* The name of the pre-tokenizer in the file. */
const char *tokenizer_pre(const struct tokenizer *t);

/* ---- The pre-tokenizers alone ------------------------------------------- */

/* Called for each piece in order: bytes [at, at + n) of the text. */
typedef void piece_fn(void *arg, size_t at, size_t n);

/* Splits text with the pre-tokenizer called `pre`.  Pieces cover the text without gaps.
 * Errors: ERR_USAGE, unknown name (lists the known ones); ERR_NOMEM. */
enum err_code presplit(const char *pre, const char *text, size_t n, piece_fn *fn, void *arg,
                       struct err *e);

#endif
