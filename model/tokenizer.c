/* SPDX-License-Identifier: MIT */
/* model/tokenizer.c - see tokenizer.h.
 *
 * Reading order: lists of ids, encoding from the outside in reverse (a piece, a stretch of
 * text between special tokens, the text), decoding, what is in the vocabulary.
 */
#include "model/tokenizer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "model/byte_alphabet.h"
#include "model/tokenizer_tables.h"

/* ---- Lists of ids ------------------------------------------------------- */

void token_list_push(struct token_list *l, int32_t id)
{
    if (l->failed)
        return;
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        int32_t *ids = realloc(l->ids, cap * sizeof *ids);
        if (!ids) {
            token_list_free(l);
            l->failed = 1;
            return;
        }
        l->ids = ids;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
}

void token_list_free(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){ 0 };
}

/* ---- Encoding ----------------------------------------------------------- */

struct encoding {
    const struct tokenizer *t;
    const char *text; /* the stretch that pieces are cut from */
    struct bpe_work work;
    struct token_list *out;
};

static void encode_piece(void *arg, size_t at, size_t n)
{
    struct encoding *c = arg;

    bpe_encode(&c->t->bpe, &c->work, c->text + at, n, c->t->whole_pieces, c->out);
}

static enum err_code encode_stretch(struct encoding *c, const char *text, size_t n, struct err *e)
{
    if (n == 0)
        return ERR_OK;
    c->text = text;
    return presplitter_run(c->t->pre, text, n, encode_piece, c, e);
}

static enum err_code encode_text(struct encoding *c, const char *text, size_t n,
                                 enum special_class class, struct err *e)
{
    const struct special *special;
    size_t done = 0, at = 0;

    if (n == 0)
        return ERR_OK; /* the text may be NULL */
    while ((special = specials_next(&c->t->specials, text, n, class, &at))) {
        TRY(encode_stretch(c, text + done, at - done, e));
        token_list_push(c->out, special->id);
        done = at += special->len;
    }
    return encode_stretch(c, text + done, n - done, e);
}

static int starts_with_token(const struct tokenizer *t, const char *text, size_t n, int32_t id)
{
    size_t length;
    const char *token = vocab_text(&t->vocab, id, &length);

    return length > 0 && length <= n && memcmp(text, token, length) == 0;
}

enum err_code tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                               unsigned flags, struct token_list *out, struct err *e)
{
    enum special_class class = flags & TOKENIZE_LITERAL   ? SPECIAL_TEXT
                               : flags & TOKENIZE_SPECIAL ? SPECIAL_CONTROL
                                                          : SPECIAL_MARKER;
    struct encoding c = { .t = t, .out = out };
    enum err_code rc;

    if (n > INT32_MAX)
        return err_set(e, ERR_NOMEM, "text of %zu bytes: too long; want at most 2 GiB", n);
    if (flags & TOKENIZE_BOS && t->adds_bos &&
        !(class == SPECIAL_CONTROL && starts_with_token(t, text, n, t->bos)))
        token_list_push(out, t->bos);
    rc = encode_text(&c, text, n, class, e);
    bpe_work_free(&c.work);
    if (rc == ERR_OK && out->failed)
        rc = err_set(e, ERR_NOMEM, "tokenizer: no memory for the tokens of %zu bytes", n);
    return rc;
}

/* ---- Decoding ----------------------------------------------------------- */

int token_byte(const char *text, size_t n)
{
    char digits[3] = "";

    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    memcpy(digits, text + 3, 2);
    if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1]))
        return -1;
    return (int)strtol(digits, NULL, 16);
}

/* Letters become bytes; what is no letter stays as it is. */
static void decode_letters(const char *text, size_t n, struct str *out)
{
    size_t used;

    for (size_t at = 0; at < n; at += used) {
        int byte = alphabet_byte(text + at, n - at, &used);
        char plain = (char)byte;
        if (byte >= 0)
            str_append(out, &plain, 1);
        else
            str_append(out, text + at, used);
    }
}

void tokenizer_decode(const struct tokenizer *t, int32_t id, int show_special, struct str *out)
{
    size_t n;
    const char *text;

    if (id < 0 || id >= t->n_tokens)
        return;
    text = vocab_text(&t->vocab, id, &n);
    switch ((enum token_type)t->type[id]) {
    case TOKEN_NORMAL:
        decode_letters(text, n, out);
        break;
    case TOKEN_USER:
        str_append(out, text, n);
        break;
    case TOKEN_UNKNOWN:
    case TOKEN_CONTROL:
        if (show_special)
            str_append(out, text, n);
        break;
    case TOKEN_BYTE: {
        int byte = token_byte(text, n);
        char plain = (char)byte;
        if (byte >= 0)
            str_append(out, &plain, 1);
        break;
    }
    case TOKEN_UNUSED:
        break;
    }
}

/* ---- What is in the vocabulary ------------------------------------------ */

int tokenizer_size(const struct tokenizer *t)
{
    return t->n_tokens;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

int tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->adds_bos;
}

int tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_tokens && t->ends[id];
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text)
{
    int32_t id = *text ? vocab_find(&t->vocab, text, strlen(text)) : -1;

    return id < t->n_tokens ? id : -1;
}

const char *tokenizer_pre(const struct tokenizer *t)
{
    return t->pre_name;
}

void tokenizer_close(struct tokenizer **t)
{
    if (!*t)
        return;
    presplitter_close(&(*t)->pre);
    specials_free(&(*t)->specials);
    bpe_free(&(*t)->bpe);
    vocab_free(&(*t)->vocab);
    free((*t)->type);
    free((*t)->plain);
    free((*t)->ends);
    free((*t)->pre_name);
    free(*t);
    *t = NULL;
}
