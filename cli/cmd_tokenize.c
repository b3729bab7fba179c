/* SPDX-License-Identifier: MIT */
/* cli/cmd_tokenize.c - `latent tokenize`: bytes to ids, ids to bytes, bytes to pieces.
 *
 * Standard input is taken byte by byte as it is.  Only the vocabulary of the file is read, so
 * that it works on vocabularies alone and on models that do not run here.
 */
#include <inttypes.h>
#include <string.h>

#include "cli/json_out.h"
#include "options/options.h"
#include "cli/output.h"
#include "cli/text_file.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

static enum err_code open_tokenizer(struct tokenizer **t, const struct options *o, struct err *e)
{
    struct gguf *g = NULL;
    enum err_code rc;

    if (!o->model)
        return err_set(e, ERR_USAGE, "tokenize: no model; give -m FILE");
    rc = gguf_open(&g, o->model, GGUF_HEADERS_ONLY, e);
    for (size_t i = 0; rc == ERR_OK && i < o->override_kv.n; i++)
        rc = gguf_override(g, o->override_kv.v[i], e);
    if (rc == ERR_OK)
        rc = tokenizer_open(t, g, e);
    gguf_close(&g);
    return rc;
}

/* ---- Text to ids -------------------------------------------------------- */

static enum err_code encode(const struct tokenizer *t, const struct str *in, struct str *out,
                            const struct options *o, struct err *e)
{
    unsigned flags = (o->no_bos ? 0 : TOKENIZE_BOS) | (o->parse_special ? TOKENIZE_SPECIAL : 0);
    struct token_list ids = { 0 };
    enum err_code rc = tokenizer_encode(t, in->data ? in->data : "", in->len, flags, &ids, e);

    if (o->json) {
        str_puts(out, "{\"pre\": ");
        append_json_string(out, tokenizer_pre(t), strlen(tokenizer_pre(t)));
        str_puts(out, ", \"ids\": [");
    }
    for (size_t i = 0; i < ids.n; i++)
        str_printf(out, "%s%" PRId32, i == 0 ? "" : o->json ? ", " : " ", ids.ids[i]);
    str_puts(out, o->json ? "]}\n" : "\n");
    token_list_free(&ids);
    return rc;
}

/* ---- Ids to text -------------------------------------------------------- */

/* The next number at *at, or -1 at the end; blanks and commas separate. */
static enum err_code next_id(int32_t *id, const struct str *in, size_t *at, int n_tokens,
                             struct err *e)
{
    int64_t value = 0;
    size_t from;

    while (*at < in->len && strchr(" \t\r\n,", in->data[*at]) && in->data[*at])
        ++*at;
    *id = -1;
    if (*at == in->len)
        return ERR_OK;
    for (from = *at; *at < in->len && in->data[*at] >= '0' && in->data[*at] <= '9'; ++*at)
        if (value < n_tokens)
            value = 10 * value + in->data[*at] - '0';
    if (*at == from || (*at < in->len && (!in->data[*at] || !strchr(" \t\r\n,", in->data[*at]))))
        return err_set(e, ERR_USAGE,
                       "standard input: no token id at byte %zu; want numbers and blanks", *at);
    if (value >= n_tokens)
        return err_set(e, ERR_USAGE,
                       "standard input: the id at byte %zu is not one of the vocabulary's, 0 to %d",
                       from, n_tokens - 1);
    *id = (int32_t)value;
    return ERR_OK;
}

static enum err_code decode(const struct tokenizer *t, const struct str *in, struct str *out,
                            const struct options *o, struct err *e)
{
    struct str text = { 0 };
    size_t at = 0;
    int32_t id;
    enum err_code rc;

    while ((rc = next_id(&id, in, &at, tokenizer_size(t), e)) == ERR_OK && id >= 0)
        tokenizer_decode(t, id, o->parse_special, &text);
    if (o->json) {
        str_puts(out, "{\"text\": ");
        append_json_string(out, text.data, text.len);
        str_puts(out, "}\n");
    } else {
        str_append(out, text.data, text.len);
    }
    out->failed |= text.failed;
    str_free(&text);
    return rc;
}

/* ---- Text to pieces ----------------------------------------------------- */

struct pieces {
    const char *text;
    struct str *out;
};

static void print_piece(void *arg, size_t at, size_t n)
{
    struct pieces *p = arg;

    if (at > 0)
        str_puts(p->out, ", ");
    append_json_string(p->out, p->text + at, n);
}

static enum err_code split(const char *pre, const struct str *in, struct str *out, struct err *e)
{
    struct pieces p = { in->data, out };
    enum err_code rc;

    str_puts(out, "[");
    rc = presplit(pre, in->data ? in->data : "", in->len, print_piece, &p, e);
    str_puts(out, "]\n");
    return rc;
}

/* ---- The command -------------------------------------------------------- */

static enum err_code check_usage(const struct options *o, struct err *e)
{
    if (o->pre && !o->pieces)
        return err_set(e, ERR_USAGE,
                       "--pre: only --pieces has it; for ids use "
                       "--override-kv tokenizer.ggml.pre=str:NAME");
    if (o->pieces && o->decode)
        return err_set(e, ERR_USAGE, "--decode and --pieces: give one of them");
    if (o->pieces && !o->pre && !o->model)
        return err_set(e, ERR_USAGE,
                       "--pieces: of which pre-tokenizer? give --pre NAME or -m FILE");
    return ERR_OK;
}

static enum err_code tokenize(struct tokenizer **t, struct str *in, struct str *out,
                              const struct options *o, struct err *e)
{
    TRY(check_usage(o, e));
    if (!o->pre)
        TRY(open_tokenizer(t, o, e));
    TRY(text_file_read("-", in, e));
    if (o->pieces)
        TRY(split(o->pre ? o->pre : tokenizer_pre(*t), in, out, e));
    else if (o->decode)
        TRY(decode(*t, in, out, o, e));
    else
        TRY(encode(*t, in, out, o, e));
    if (out->failed)
        return err_set(e, ERR_NOMEM, "no memory for the result of %zu bytes", in->len);
    return output_write(out->data, out->len, e);
}

enum err_code run_tokenize(const struct options *o, struct err *e)
{
    struct tokenizer *t = NULL;
    struct str in = { 0 }, out = { 0 };
    enum err_code rc = tokenize(&t, &in, &out, o, e);

    str_free(&in);
    str_free(&out);
    tokenizer_close(&t);
    return rc;
}
