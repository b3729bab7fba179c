/* SPDX-License-Identifier: MIT */
/* tests/support/small_vocab.h - tokenizers made for a test: the 256 letters of the byte
 * alphabet (ids 0 to 255, in order of bytes), the results of the merges (256 and up), then
 * whatever else is asked for. */
#ifndef TESTS_SUPPORT_SMALL_VOCAB_H
#define TESTS_SUPPORT_SMALL_VOCAB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/byte_alphabet.h"
#include "model/gguf_write.h"
#include "model/tokenizer.h"

struct small_token {
    const char *text;
    int32_t type; /* as in tokenizer.ggml.token_type */
};

struct small_vocab {
    const char *pre;                /* NULL: "gigachat"                                   */
    const char *const *merges;      /* "LEFT RIGHT", ended by NULL; NULL: "a a" alone      */
    const struct small_token *more; /* ended by a NULL text; may be NULL                  */
    const char *const *keys;        /* KEY=TYPE:VALUE, ended by NULL; may be NULL         */
};

enum { SMALL_MAX = 1024 };

struct small_tokens {
    char text[SMALL_MAX][64];
    struct gguf_string token[SMALL_MAX];
    int32_t type[SMALL_MAX];
    size_t n;
};

static inline void small_add(struct small_tokens *s, const char *text, size_t n, int32_t type)
{
    if (s->n == SMALL_MAX || n > sizeof s->text[0])
        abort();
    memcpy(s->text[s->n], text, n);
    s->token[s->n] = (struct gguf_string){ s->text[s->n], n };
    s->type[s->n++] = type;
}

static inline void small_write(const struct small_vocab *v, const struct small_tokens *s,
                               const char *const *merges, const char *path)
{
    struct gguf_string merge[SMALL_MAX];
    struct gguf_writer *w = NULL;
    const char *pre = v->pre ? v->pre : "gigachat";
    size_t n = 0;

    for (; merges[n]; n++)
        merge[n] = (struct gguf_string){ merges[n], strlen(merges[n]) };
    if (gguf_writer_create(&w, path, NULL))
        abort();
    gguf_write_string(w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_write_string(w, "tokenizer.ggml.pre", pre, strlen(pre));
    gguf_write_strings(w, "tokenizer.ggml.tokens", s->token, s->n);
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, s->type, s->n);
    gguf_write_strings(w, "tokenizer.ggml.merges", merge, n);
    if (gguf_writer_finish(&w, NULL))
        abort();
}

/* Writes the vocabulary to `path` and opens it from there. */
static inline enum err_code small_vocab_open(struct tokenizer **out, const struct small_vocab *v,
                                             const char *path, struct err *e)
{
    static const char *const one_merge[] = { "a a", NULL };
    const char *const *merges = v->merges ? v->merges : one_merge;
    struct small_tokens *s = calloc(1, sizeof *s);
    struct gguf *g = NULL;
    enum err_code rc;

    if (!s)
        abort();
    for (int byte = 0; byte < 256; byte++) {
        char letter[2];
        small_add(s, letter, alphabet_letter((uint8_t)byte, letter), 1);
    }
    for (size_t i = 0; merges[i]; i++) {
        const char *gap = merges[i][0] ? strchr(merges[i] + 1, ' ') : NULL;
        char joined[128];
        if (!gap || !gap[1])
            continue; /* not a merge */
        int n =
            snprintf(joined, sizeof joined, "%.*s%s", (int)(gap - merges[i]), merges[i], gap + 1);
        small_add(s, joined, (size_t)n, 1);
    }
    for (const struct small_token *t = v->more; t && t->text; t++)
        small_add(s, t->text, strlen(t->text), t->type);
    small_write(v, s, merges, path);
    free(s);
    rc = gguf_open(&g, path, 0, e);
    for (const char *const *key = v->keys; rc == ERR_OK && key && *key; key++)
        rc = gguf_override(g, *key, e);
    if (rc == ERR_OK)
        rc = tokenizer_open(out, g, e);
    gguf_close(&g);
    return rc;
}

#endif
