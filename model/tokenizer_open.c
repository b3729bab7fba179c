/* SPDX-License-Identifier: MIT */
/* model/tokenizer_open.c - builds a tokenizer from the metadata of a GGUF file.
 *
 * Reading order: the keys, in the order in which tokenizer_open reads them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "model/byte_alphabet.h"
#include "model/gguf_part.h"
#include "model/tokenizer.h"
#include "model/tokenizer_tables.h"

/* ---- Kind of vocabulary, pre-tokenizer ---------------------------------- */

static enum err_code check_kind(const struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, "tokenizer.ggml.model");
    struct gguf_string kind;

    if (!kv || gguf_as_string(&kv->value, &kind))
        return err_set(e, ERR_FORMAT,
                       "tokenizer.ggml.model: missing or no string; the file has no vocabulary");
    if (kind.len == 4 && memcmp(kind.data, "gpt2", 4) == 0)
        return ERR_OK;
    return err_set(e, ERR_UNSUPPORTED,
                   "tokenizer.ggml.model = %s: not in this version; it reads \"gpt2\" (byte-level "
                   "BPE)",
                   gguf_quote(kind).text);
}

static enum err_code open_pre(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, "tokenizer.ggml.pre");
    struct gguf_string name = { "", 0 };

    if (kv && gguf_as_string(&kv->value, &name))
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.pre: not a string");
    t->pre_name = strndup(name.data, name.len);
    if (!t->pre_name)
        return err_set(e, ERR_NOMEM, "tokenizer: no memory");
    TRY(presplitter_open(&t->pre, t->pre_name, e));
    t->whole_pieces = presplitter_is(t->pre, "tekken");
    return ERR_OK;
}

/* ---- Tokens and merges -------------------------------------------------- */

/* An array of strings, or NULL with ERR_FORMAT told. */
static const struct gguf_value *find_strings(const struct gguf *g, const char *key, struct err *e)
{
    enum { MOST = INT32_MAX / 8 };
    const struct gguf_kv *kv = gguf_find(g, key);

    if (!kv)
        err_set(e, ERR_FORMAT, "%s: missing; text cannot be tokenised without it", key);
    else if (kv->value.type != GGUF_ARRAY || kv->value.element != GGUF_STRING)
        err_set(e, ERR_FORMAT, "%s: not an array of strings", key);
    else if (kv->value.count == 0 || kv->value.count > MOST)
        err_set(e, ERR_FORMAT, "%s: %llu strings; want 1 to %d", key,
                (unsigned long long)kv->value.count, MOST);
    else
        return &kv->value;
    return NULL;
}

static enum err_code read_types(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, "tokenizer.ggml.token_type");

    memset(t->type, TOKEN_NORMAL, (size_t)t->n_tokens);
    if (!kv)
        return ERR_OK;
    if (kv->value.type != GGUF_ARRAY || kv->value.count != (uint64_t)t->n_tokens)
        return err_set(e, ERR_FORMAT,
                       "tokenizer.ggml.token_type: not an array of %d types, one for each token",
                       t->n_tokens);
    for (int32_t i = 0; i < t->n_tokens; i++) {
        struct gguf_value element;
        int64_t type;
        if (gguf_element(&kv->value, (uint64_t)i, &element) || gguf_as_i64(&element, &type))
            return err_set(e, ERR_FORMAT, "tokenizer.ggml.token_type[%d]: not an integer", i);
        if (type >= TOKEN_NORMAL && type <= TOKEN_BYTE)
            t->type[i] = (uint8_t)type;
    }
    return ERR_OK;
}

static enum err_code read_tokens(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    const struct gguf_value *tokens = find_strings(g, "tokenizer.ggml.tokens", e);

    if (!tokens)
        return ERR_FORMAT;
    t->n_tokens = (int32_t)tokens->count;
    t->type = calloc(tokens->count, 1);
    t->plain = calloc(tokens->count, 1);
    t->ends = calloc(tokens->count, 1);
    vocab_reserve(&t->vocab, t->n_tokens);
    const uint8_t *at = tokens->data;
    for (int32_t i = 0; i < t->n_tokens; i++) {
        struct gguf_string text = gguf_next_string(&at);
        vocab_add(&t->vocab, text.data, text.len);
    }
    if (!t->type || !t->plain || !t->ends || t->vocab.failed)
        return err_set(e, ERR_NOMEM, "tokenizer: no memory for %d tokens", t->n_tokens);
    return read_types(t, g, e);
}

static enum err_code read_merges(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    const struct gguf_value *merges = find_strings(g, "tokenizer.ggml.merges", e);
    int no_merge = 0, no_token = 0;

    if (!merges)
        return ERR_FORMAT;
    bpe_reserve(&t->bpe, (uint32_t)merges->count);
    const uint8_t *at = merges->data;
    for (uint64_t i = 0; i < merges->count; i++) {
        struct gguf_string text = gguf_next_string(&at);
        int rc = bpe_add(&t->bpe, &t->vocab, text.data, text.len, t->n_tokens);
        no_merge += rc < 0;
        no_token += rc > 0;
    }
    if (t->bpe.failed || t->vocab.failed)
        return err_set(e, ERR_NOMEM, "tokenizer: no memory for %llu merges",
                       (unsigned long long)merges->count);
    if (no_merge)
        log_warn("tokenizer.ggml.merges: %d are not two texts with a blank between: left out",
                 no_merge);
    if (no_token)
        log_warn("tokenizer.ggml.merges: %d make no token: such text becomes single bytes",
                 no_token);
    return ERR_OK;
}

/* ---- Begin and end ------------------------------------------------------ */

/* The id under a key, or -1. */
static int32_t read_id(const struct tokenizer *t, const struct gguf *g, const char *key)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    int64_t id;

    if (!kv)
        return -1;
    if (gguf_as_i64(&kv->value, &id) || id < 0 || id >= t->n_tokens) {
        /* -1, or all ones, is how some converters write "none". */
        log_warn("%s: not the id of one of %d tokens: ignored", key, t->n_tokens);
        return -1;
    }
    return (int32_t)id;
}

/* Tokens that end an answer whatever the keys say.  With a pre-tokenizer: only there. */
static const struct {
    const char *text, *pre;
} end_texts[] = {
    {"<|eot_id|>",                   NULL      },
    { "<|im_end|>",                  NULL      },
    { "<|end|>",                     NULL      },
    { "<|return|>",                  NULL      },
    { "<|call|>",                    NULL      },
    { "<|endoftext|>",               NULL      },
    { "</s>",                        NULL      },
    { "<|eom_id|>",                  NULL      },
    { "<EOT>",                       NULL      },
    { "_<EOT>",                      NULL      },
    { "[EOT]",                       NULL      },
    { "[EOS]",                       NULL      },
    { "<|end_of_text|>",             NULL      },
    { "<end_of_turn>",               NULL      },
    { "<｜end▁of▁sentence｜>", NULL      },
    { "<|user|>",                    "glm4"    },
    { "<|observation|>",             "glm4"    },
    { "<|message_sep|>",             "gigachat"},
};

static void read_ends(struct tokenizer *t, const struct gguf *g)
{
    static const char *const keys[] = {
        "tokenizer.ggml.eot_token_id",     "tokenizer.ggml.eom_token_id",
        "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
        "tokenizer.ggml.fim_sep_token_id",
    };

    t->bos = read_id(t, g, "tokenizer.ggml.bos_token_id");
    t->eos = read_id(t, g, "tokenizer.ggml.eos_token_id");
    if (t->eos >= 0)
        t->ends[t->eos] = 1;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int32_t id = read_id(t, g, keys[i]);
        if (id >= 0)
            t->ends[id] = 1;
    }
    for (size_t i = 0; i < sizeof end_texts / sizeof end_texts[0]; i++) {
        int32_t id = tokenizer_find(t, end_texts[i].text);
        if (id < 0 || (end_texts[i].pre && !presplitter_is(t->pre, end_texts[i].pre)))
            continue;
        t->ends[id] = 1;
        t->type[id] = TOKEN_CONTROL; /* no text may end an answer */
    }
}

static enum err_code read_add_bos(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, "tokenizer.ggml.add_bos_token");

    t->adds_bos = presplitter_is(t->pre, "tekken");
    if (kv && gguf_as_bool(&kv->value, &t->adds_bos))
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.add_bos_token: not a bool");
    if (t->adds_bos && t->bos < 0) {
        log_warn("tokenizer.ggml.add_bos_token: no bos_token_id to add: ignored");
        t->adds_bos = 0;
    }
    return ERR_OK;
}

/* ---- The tables --------------------------------------------------------- */

static int starts_and_ends(const char *text, size_t n, const char *start, const char *end)
{
    size_t n_start = strlen(start), n_end = strlen(end);

    return n >= n_start + n_end && memcmp(text, start, n_start) == 0 &&
           memcmp(text + n - n_end, end, n_end) == 0;
}

static void add_special(struct tokenizer *t, int32_t id)
{
    struct special s = { .id = id };

    s.text = vocab_text(&t->vocab, id, &s.len);
    switch ((enum token_type)t->type[id]) {
    case TOKEN_NORMAL:
    case TOKEN_UNUSED:
    case TOKEN_BYTE:
        return;
    case TOKEN_UNKNOWN:
    case TOKEN_CONTROL:
        s.class = SPECIAL_CONTROL;
        break;
    case TOKEN_USER:
        s.class = starts_and_ends(s.text, s.len, "<|", "|>") ||
                          starts_and_ends(s.text, s.len, "<｜", "｜>")
                      ? SPECIAL_MARKER
                      : SPECIAL_TEXT;
        break;
    }
    specials_add(&t->specials, &s);
}

/* The tokens of single bytes: letters, otherwise "<0x0A>".  Returns how many bytes of UTF-8 have
 * none; those that it never has some vocabularies leave out.
 * Not by lookup: some vocabularies have a user-defined "ü" that is not the byte 0xFC. */
static int find_byte_tokens(struct tokenizer *t)
{
    int32_t *token = t->bpe.byte_token;
    int missing = 0;

    memset(token, -1, sizeof t->bpe.byte_token);
    for (int32_t i = 0; i < t->n_tokens; i++) {
        size_t n, used;
        const char *text = vocab_text(&t->vocab, i, &n);
        int letter = t->plain[i] && n > 0 ? alphabet_byte(text, n, &used) : -1;
        int byte = t->type[i] == TOKEN_BYTE ? token_byte(text, n) : -1;
        if (letter >= 0 && used == n)
            token[letter] = i;
        else if (byte >= 0 && token[byte] < 0)
            token[byte] = i;
    }
    for (int byte = 0; byte < 256; byte++)
        missing += token[byte] < 0 && byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
    return missing;
}

static enum err_code build_tables(struct tokenizer *t, struct err *e)
{
    int missing = 0;

    for (int32_t i = 0; i < t->n_tokens; i++)
        t->plain[i] = t->type[i] == TOKEN_NORMAL;
    bpe_finish(&t->bpe, &t->vocab, t->plain, t->n_tokens);
    if (!t->vocab.failed) { /* texts lie still from here on */
        missing = find_byte_tokens(t);
        for (int32_t i = 0; i < t->n_tokens; i++)
            add_special(t, i);
        specials_sort(&t->specials);
    }
    if (t->vocab.failed || t->specials.failed)
        return err_set(e, ERR_NOMEM, "tokenizer: no memory for the tables of %d tokens",
                       t->n_tokens);
    if (missing)
        log_warn("tokenizer.ggml.tokens: none for %d of the bytes of UTF-8: left out of texts",
                 missing);
    return ERR_OK;
}

static enum err_code open_into(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    TRY(check_kind(g, e));
    TRY(open_pre(t, g, e));
    TRY(read_tokens(t, g, e));
    TRY(read_merges(t, g, e));
    read_ends(t, g);
    TRY(read_add_bos(t, g, e));
    return build_tables(t, e);
}

enum err_code tokenizer_open(struct tokenizer **out, const struct gguf *g, struct err *e)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    enum err_code rc;

    if (!t)
        return err_set(e, ERR_NOMEM, "tokenizer: no memory");
    rc = open_into(t, g, e);
    if (rc == ERR_OK)
        *out = t;
    else
        tokenizer_close(&t);
    return rc;
}
