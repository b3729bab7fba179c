/* SPDX-License-Identifier: MIT */
/* tests/tools/filler_vocab.c - see filler_vocab.h. */
#include "tests/tools/filler_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 24, N_BYTES = 256, FIRST_BYTE = 3, FIRST_WORD = FIRST_BYTE + N_BYTES };
enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_UNUSED = 5 };

static const char *const controls[FIRST_BYTE] = { "<｜begin▁of▁sentence｜>",
                                                  "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>" };

/* Left and right part; the first ones begin with a space, which the byte alphabet writes
 * as U+0120. */
static const char words[][2][4] = {
    {"\xc4\xa0",  "t"},
    { "\xc4\xa0", "a"},
    { "h",        "e"},
    { "i",        "n"},
    { "r",        "e"},
    { "o",        "n"},
    { "e",        "r"},
    { "n",        "d"},
    { "o",        "u"},
    { "i",        "s"},
    { "a",        "t"},
    { "e",        "n"},
    { "o",        "r"},
    { "e",        "s"},
    { "i",        "t"},
};
enum { N_WORDS = sizeof words / sizeof words[0] };

struct vocab {
    char (*text)[2 * TEXT_BYTES]; /* [size], owned: longest is a control token */
    struct gguf_string *tokens;   /* [size], owned */
    int32_t *types;               /* [size], owned */
};

/* GPT-2's byte alphabet: printable bytes stand for themselves, the others count up from
 * U+0100. */
static void byte_text(int byte, char *out)
{
    int code = byte;

    if (!((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad))) {
        code = 0x100;
        for (int b = 0; b < byte; b++)
            code += !((b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad));
    }
    if (code < 0x80)
        (void)snprintf(out, 3, "%c", code);
    else
        (void)snprintf(out, 3, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
}

static void fill(struct vocab *v, int size)
{
    for (int i = 0; i < size; i++) {
        char *text = v->text[i];
        v->types[i] = TYPE_NORMAL;
        if (i < FIRST_BYTE) {
            (void)snprintf(text, sizeof v->text[i], "%s", controls[i]);
            v->types[i] = TYPE_CONTROL;
        } else if (i < FIRST_WORD) {
            byte_text(i - FIRST_BYTE, text);
        } else if (i < FIRST_WORD + N_WORDS) {
            (void)snprintf(text, sizeof v->text[i], "%s%s", words[i - FIRST_WORD][0],
                           words[i - FIRST_WORD][1]);
        } else {
            (void)snprintf(text, sizeof v->text[i], "[PAD%d]", i);
            v->types[i] = TYPE_UNUSED;
        }
        v->tokens[i].data = text;
        v->tokens[i].len = strlen(text);
    }
}

static void write_word(struct gguf_writer *w, const char *key, const char *text)
{
    gguf_write_string(w, key, text, strlen(text));
}

static void write_keys(struct gguf_writer *w, const struct vocab *v, int size)
{
    char texts[N_WORDS][TEXT_BYTES];
    struct gguf_string merges[N_WORDS];

    for (int i = 0; i < N_WORDS; i++) {
        merges[i].len = (size_t)snprintf(texts[i], TEXT_BYTES, "%s %s", words[i][0], words[i][1]);
        merges[i].data = texts[i];
    }
    write_word(w, "tokenizer.ggml.model", "gpt2");
    write_word(w, "tokenizer.ggml.pre", "deepseek-v3");
    gguf_write_strings(w, "tokenizer.ggml.tokens", v->tokens, (uint64_t)size);
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->types, (uint64_t)size);
    gguf_write_strings(w, "tokenizer.ggml.merges", merges, N_WORDS);
    gguf_write_u32(w, "tokenizer.ggml.bos_token_id", 0);
    gguf_write_u32(w, "tokenizer.ggml.eos_token_id", 1);
    gguf_write_u32(w, "tokenizer.ggml.padding_token_id", 2);
    gguf_write_bool(w, "tokenizer.ggml.add_bos_token", 1);
    gguf_write_bool(w, "tokenizer.ggml.add_eos_token", 0);
}

enum err_code filler_vocab_write(struct gguf_writer *w, int size, struct err *e)
{
    struct vocab v = { calloc((size_t)size, sizeof *v.text), calloc((size_t)size, sizeof *v.tokens),
                       calloc((size_t)size, sizeof *v.types) };
    enum err_code rc = ERR_OK;

    if (v.text && v.tokens && v.types) {
        fill(&v, size);
        write_keys(w, &v, size);
    } else {
        rc = err_set(e, ERR_NOMEM, "no memory for %d tokens", size);
    }
    free(v.text);
    free(v.tokens);
    free(v.types);
    return rc;
}
