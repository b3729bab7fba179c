/* SPDX-License-Identifier: MIT */
/* model/chat.c - see chat.h.
 *
 * Reading order: choosing a format; the prompt as text; answers.  The prompt as ids is in
 * chat_ids.c.
 */
#include "model/chat.h"

#include <stdlib.h>
#include <string.h>

#include "model/chat_format.h"

/* ---- Choosing ----------------------------------------------------------- */

static int contains(struct gguf_string text, const char *mark)
{
    return text.len && memmem(text.data, text.len, mark, strlen(mark)) != NULL;
}

static int fits(const struct chat_format *f, struct gguf_string chat_template)
{
    enum { MARKS = sizeof f->has / sizeof *f->has };

    for (int i = 0; i < MARKS; i++)
        if ((f->has[i] && !contains(chat_template, f->has[i])) ||
            (f->lacks[i] && contains(chat_template, f->lacks[i])))
            return 0;
    return 1;
}

struct gguf_string chat_template_of(const struct gguf *g)
{
    const struct gguf_kv *kv = g ? gguf_find(g, "tokenizer.chat_template") : NULL;
    struct gguf_string text = { 0 };

    if (kv && gguf_as_string(&kv->value, &text))
        text = (struct gguf_string){ 0 };
    return text;
}

/* What is wrong with the format called `name` ("": with the file), and the names that one may
 * choose from. */
static enum err_code no_format(struct err *e, enum err_code code, const char *name,
                               const char *problem)
{
    struct str names = { 0 };

    for (const struct chat_format *f = chat_formats; f->name; f++)
        str_printf(&names, "%s%s", f == chat_formats ? "" : ", ", f->name);
    err_set(e, code, "chat format%s%s: %s; name one with --chat-format: %s", *name ? " " : "", name,
            problem, names.failed ? "see the manual" : names.data);
    str_free(&names);
    return code;
}

const struct chat_format *chat_format_detect(const char *chat_template, size_t len)
{
    const struct chat_format *f = chat_formats;

    while (f->name && !fits(f, (struct gguf_string){ chat_template, len }))
        f++;
    return f->name ? f : NULL;
}

enum err_code chat_format_choose(const struct chat_format **out, const struct gguf *g,
                                 const char *name, struct err *e)
{
    struct gguf_string text;
    const struct chat_format *f = chat_formats;

    if (name) {
        while (f->name && strcmp(f->name, name) != 0)
            f++;
        if (!f->name)
            return no_format(e, ERR_USAGE, name, "there is none of that name");
        *out = f;
        return ERR_OK;
    }
    text = chat_template_of(g);
    if (!text.len)
        return no_format(e, ERR_UNSUPPORTED, "", "the file has no chat template");
    f = chat_format_detect(text.data, text.len);
    if (!f)
        return no_format(e, ERR_UNSUPPORTED, "",
                         "the file's chat template is none that is known here");
    *out = f;
    return ERR_OK;
}

const char *chat_format_name(const struct chat_format *f)
{
    return f->name;
}

/* ---- As text ------------------------------------------------------------ */

enum err_code chat_render_text(const struct chat_format *f, const char *chat_template,
                               const char *bos, const char *eos, const struct chat_message *m,
                               int n, const struct chat_options *opt, struct str *out,
                               struct err *e)
{
    struct gguf_string text = { chat_template, chat_template ? strlen(chat_template) : 0 };
    struct chat_pieces p = { 0 };
    enum err_code rc = chat_pieces_build(&p, f, text, m, n, opt, e);

    for (size_t i = 0; rc == ERR_OK && i < p.n; i++)
        switch (p.piece[i].kind) {
        case PIECE_TEXT:
        case PIECE_MARK:
            str_append(out, p.piece[i].text, p.piece[i].len);
            break;
        case PIECE_BOS:
            str_puts(out, bos);
            break;
        case PIECE_EOS:
            str_puts(out, eos);
            break;
        }
    chat_pieces_free(&p);
    if (rc == ERR_OK && out->failed)
        rc = err_set(e, ERR_NOMEM, "chat: no memory for the prompt's text");
    return rc;
}

/* ---- Answers ------------------------------------------------------------ */

size_t chat_answer_begin(const struct chat_format *f, const char *text, size_t len)
{
    static const char mark[] = "</think>";
    size_t begin = 0;

    if (f->reasons)
        for (size_t i = 0; i + sizeof mark - 1 <= len; i++)
            if (!memcmp(text + i, mark, sizeof mark - 1))
                begin = i + sizeof mark - 1;
    return begin;
}
