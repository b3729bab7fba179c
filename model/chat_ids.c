/* SPDX-License-Identifier: MIT */
/* model/chat_ids.c - the prompt of a chat as ids: chat_render of chat.h.
 *
 * Reading order: the markers of a format; runs of text between markers, with the guard that
 * keeps markers out of them; the pieces one by one.
 */
#include "model/chat.h"

#include <string.h>

#include "model/chat_format.h"

/* ---- Markers ------------------------------------------------------------ */

struct id_writer {
    const struct tokenizer *t;
    struct token_list *ids;
    struct str run;            /* text since the last marker: tokenised as one            */
    struct str bos, eos;       /* their texts                                             */
    struct chat_pieces marks;  /* all that means something in this format (and some text) */
    struct token_list mark_id; /* [marks.n], -1: text, or not in the vocabulary           */
};

/* The id of a marker, -1 if the vocabulary does not have it. */
static int32_t find_mark(const struct tokenizer *t, const struct chat_piece *p)
{
    char name[128];

    if (p->kind != PIECE_MARK || p->len >= sizeof name)
        return -1;
    memcpy(name, p->text, p->len);
    name[p->len] = 0;
    return tokenizer_find(t, name);
}

static void collect_marks(struct id_writer *w, const struct chat_format *f)
{
    const char *const strings[] = {
        f->begin,       f->system_open,  f->system_close, f->user_open,        f->user_close,
        f->answer_open, f->answer_close, f->opening,      f->opening_thinking,
    };

    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        chat_pieces_parse(&w->marks, strings[i], (struct gguf_string){ 0 });
    if (f->reasons)
        chat_pieces_parse(&w->marks, MARK("<think>") MARK("</think>"), (struct gguf_string){ 0 });
    tokenizer_decode(w->t, tokenizer_bos(w->t), 1, &w->bos);
    tokenizer_decode(w->t, tokenizer_eos(w->t), 1, &w->eos);
    chat_pieces_add_mark(&w->marks, w->bos.data, w->bos.len);
    chat_pieces_add_mark(&w->marks, w->eos.data, w->eos.len);
    for (size_t i = 0; i < w->marks.n; i++)
        token_list_push(&w->mark_id, find_mark(w->t, &w->marks.piece[i]));
}

/* ---- Runs of text ------------------------------------------------------- */

static int holds_mark(const struct id_writer *w, size_t from)
{
    for (size_t i = from; i < w->ids->n; i++)
        for (size_t k = 0; k < w->mark_id.n; k++)
            if (w->ids->ids[i] == w->mark_id.ids[k])
                return 1;
    return 0;
}

static int mark_begins(const struct id_writer *w, const char *text, size_t len)
{
    for (size_t k = 0; k < w->mark_id.n; k++) {
        const struct chat_piece *p = &w->marks.piece[k];
        if (w->mark_id.ids[k] >= 0 && p->len <= len && !memcmp(text, p->text, p->len))
            return 1;
    }
    return 0;
}

/* Tokenises the run.  Some vocabularies call markers such as <think> user-defined tokens,
 * which are recognised in any text.  Where one comes out, the text is tokenised once more, cut
 * behind the first byte of each marker, so that none can be seen. */
static enum err_code end_run(struct id_writer *w, struct err *e)
{
    size_t start = w->ids->n, from = 0;

    if (!w->run.len)
        return ERR_OK;
    TRY(tokenizer_encode(w->t, w->run.data, w->run.len, TOKENIZE_LITERAL, w->ids, e));
    if (holds_mark(w, start)) {
        w->ids->n = start;
        for (size_t i = 0; i < w->run.len; i++) {
            if (i + 1 < w->run.len && !mark_begins(w, w->run.data + i, w->run.len - i))
                continue;
            TRY(tokenizer_encode(w->t, w->run.data + from, i + 1 - from, TOKENIZE_LITERAL, w->ids,
                                 e));
            from = i + 1;
        }
    }
    str_clear(&w->run);
    return ERR_OK;
}

/* ---- Pieces ------------------------------------------------------------- */

static enum err_code write_id(struct id_writer *w, int32_t id, struct err *e)
{
    TRY(end_run(w, e));
    token_list_push(w->ids, id);
    return ERR_OK;
}

static enum err_code write_piece(struct id_writer *w, const struct chat_format *f,
                                 const struct chat_piece *p, struct err *e)
{
    int32_t id = -1;

    switch (p->kind) {
    case PIECE_TEXT:
        str_append(&w->run, p->text, p->len);
        return ERR_OK;
    case PIECE_BOS: /* a template writes nothing if the file has none */
        id = tokenizer_bos(w->t);
        return id < 0 ? ERR_OK : write_id(w, id, e);
    case PIECE_EOS:
        id = tokenizer_eos(w->t);
        break;
    case PIECE_MARK:
        id = find_mark(w->t, p);
        break;
    }
    if (id < 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "chat format %s: the vocabulary lacks %.*s; choose another --chat-format",
                       f->name, p->len ? (int)p->len : 3, p->len ? p->text : "EOS");
    return write_id(w, id, e);
}

enum err_code chat_render(const struct chat_format *f, const struct gguf *g,
                          const struct tokenizer *t, const struct chat_message *m, int n,
                          const struct chat_options *opt, struct token_list *out, struct err *e)
{
    struct id_writer w = { .t = t, .ids = out };
    struct chat_pieces p = { 0 };
    enum err_code rc = chat_pieces_build(&p, f, chat_template_of(g), m, n, opt, e);

    if (rc != ERR_OK)
        goto out;
    collect_marks(&w, f);
    /* BOS exactly once: by the format, or else as the file asks for it. */
    if (tokenizer_adds_bos(t) && tokenizer_bos(t) >= 0 && p.piece[0].kind != PIECE_BOS)
        token_list_push(out, tokenizer_bos(t));
    for (size_t i = 0; rc == ERR_OK && i < p.n; i++)
        rc = write_piece(&w, f, &p.piece[i], e);
    if (rc == ERR_OK)
        rc = end_run(&w, e);
    if (rc == ERR_OK && (w.run.failed || w.bos.failed || w.eos.failed || w.marks.failed ||
                         w.mark_id.failed || out->failed))
        rc = err_set(e, ERR_NOMEM, "chat: no memory for the prompt");
out:
    chat_pieces_free(&p);
    chat_pieces_free(&w.marks);
    token_list_free(&w.mark_id);
    str_free(&w.run);
    str_free(&w.bos);
    str_free(&w.eos);
    return rc;
}

int32_t chat_end_id(const struct chat_format *f, const struct tokenizer *t)
{
    struct chat_pieces p = { 0 };
    int32_t id = -1;

    /* Where nothing closes an answer, the user's turn begins. */
    chat_pieces_parse(&p, f->answer_close, (struct gguf_string){ 0 });
    chat_pieces_parse(&p, f->user_open, (struct gguf_string){ 0 });
    if (p.n)
        id = p.piece[0].kind == PIECE_EOS ? tokenizer_eos(t) : find_mark(t, &p.piece[0]);
    chat_pieces_free(&p);
    return id;
}
