/* SPDX-License-Identifier: MIT */
/* model/chat_pieces.c - see chat_format.h: the formats, and conversations as pieces.
 *
 * Reading order: the table; pieces; text that is taken from the file or cut from an
 * answer; the conversation.
 */
#include "model/chat_format.h"

#include <stdlib.h>
#include <string.h>

const struct chat_format chat_formats[] = {
#define FORMAT(NAME, MODELS, ...) { .name = (NAME), .models = (MODELS), __VA_ARGS__ },
#include "model/chat_formats.def"
#undef FORMAT
    { .name = NULL },
};

/* ---- Pieces ------------------------------------------------------------- */

static void add(struct chat_pieces *p, enum chat_piece_kind kind, const char *text, size_t len)
{
    if (p->failed || (kind == PIECE_TEXT && !len))
        return;
    if (p->n == p->cap) {
        size_t cap = 2 * p->cap + 16;
        struct chat_piece *piece = realloc(p->piece, cap * sizeof *piece);
        if (!piece) {
            p->failed = 1;
            return;
        }
        p->piece = piece;
        p->cap = cap;
    }
    p->piece[p->n++] = (struct chat_piece){ kind, text, len };
}

void chat_pieces_free(struct chat_pieces *p)
{
    free(p->piece);
    *p = (struct chat_pieces){ 0 };
}

void chat_pieces_add_mark(struct chat_pieces *p, const char *text, size_t len)
{
    add(p, PIECE_MARK, text, len);
}

void chat_pieces_parse(struct chat_pieces *p, const char *string, struct gguf_string file_text)
{
    const char *at = string ? string : "";

    while (*at) {
        size_t len = strcspn(at, MARK("") BOS EOS FILE_TEXT);
        add(p, PIECE_TEXT, at, len);
        at += len;
        if (*at == MARK("")[0]) {
            len = strcspn(++at, &MARK("")[1]);
            add(p, PIECE_MARK, at, len);
            at += len + 1;
        } else if (*at == *BOS) {
            add(p, PIECE_BOS, NULL, 0);
            at++;
        } else if (*at == *EOS) {
            add(p, PIECE_EOS, NULL, 0);
            at++;
        } else if (*at == *FILE_TEXT) {
            add(p, PIECE_TEXT, file_text.data, file_text.len);
            at++;
        }
    }
}

/* ---- Cutting text ------------------------------------------------------- */

/* What Python's str.strip takes away, for the templates call that. */
static const char *const white[] = {
    " ",
    "\n",
    "\r",
    "\t",
    "\v",
    "\f",
    "\x1C",
    "\x1D",
    "\x1E",
    "\x1F",
    "\xC2\x85",
    "\xC2\xA0",
    "\xE1\x9A\x80",
    "\xE2\x80\x80",
    "\xE2\x80\x81",
    "\xE2\x80\x82",
    "\xE2\x80\x83",
    "\xE2\x80\x84",
    "\xE2\x80\x85",
    "\xE2\x80\x86",
    "\xE2\x80\x87",
    "\xE2\x80\x88",
    "\xE2\x80\x89",
    "\xE2\x80\x8A",
    "\xE2\x80\xA8",
    "\xE2\x80\xA9",
    "\xE2\x80\xAF",
    "\xE2\x81\x9F",
    "\xE3\x80\x80",
};

/* Bytes of the white character at the begin, or at the end, of s; 0: there is none. */
static size_t white_at(struct gguf_string s, int at_end)
{
    for (size_t i = 0; i < sizeof white / sizeof *white; i++) {
        size_t n = strlen(white[i]);
        if (n <= s.len && !memcmp(at_end ? s.data + s.len - n : s.data, white[i], n))
            return n;
    }
    return 0;
}

static struct gguf_string trim(struct gguf_string s)
{
    size_t n;

    while ((n = white_at(s, 0))) {
        s.data += n;
        s.len -= n;
    }
    while ((n = white_at(s, 1)))
        s.len -= n;
    return s;
}

/* What follows `mark` in s; data NULL: it is not there. */
static struct gguf_string behind(struct gguf_string s, const char *mark)
{
    const char *at = s.len ? memmem(s.data, s.len, mark, strlen(mark)) : NULL;

    if (!at)
        return (struct gguf_string){ 0 };
    at += strlen(mark);
    return (struct gguf_string){ at, s.len - (size_t)(at - s.data) };
}

/* The text between two marks, if it is plain: nothing in it for the template engine. */
static struct gguf_string between(struct gguf_string s, const char *from, const char *to)
{
    struct gguf_string text = behind(s, from), rest = behind(text, to);

    if (!rest.data)
        return (struct gguf_string){ 0 };
    text.len = (size_t)(rest.data - text.data) - strlen(to);
    if (behind(text, "{{").data || behind(text, "{%").data || behind(text, "{#").data)
        return (struct gguf_string){ 0 };
    return trim(text);
}

static enum err_code find_file_text(struct gguf_string *out, const struct chat_format *f,
                                    struct gguf_string chat_template, struct err *e)
{
    *out = (struct gguf_string){ 0 };
    if (!f->file_text_from)
        return ERR_OK;
    *out = between(chat_template, f->file_text_from, f->file_text_to);
    if (out->data)
        return ERR_OK;
    if (!f->file_text_else)
        return err_set(e, ERR_UNSUPPORTED,
                       "chat format %s: the file's template lacks its text behind \"%s\"; choose "
                       "another --chat-format",
                       f->name, f->file_text_from);
    *out = (struct gguf_string){ f->file_text_else, strlen(f->file_text_else) };
    return ERR_OK;
}

static struct gguf_string earlier_answer(const struct chat_format *f, const struct chat_message *m)
{
    struct gguf_string text = { m->text, m->len }, rest;

    if (f->history != HISTORY_WHOLE)
        while ((rest = behind(text, "</think>")).data) {
            text = rest;
            if (f->history == HISTORY_AFTER_FIRST_THOUGHT)
                break;
        }
    return f->history_trimmed ? trim(text) : text;
}

/* ---- The conversation --------------------------------------------------- */

/* Whose turn it is: the last message that is not a system message decides. */
static enum err_code check_order(const struct chat_format *f, const struct chat_message *m, int n,
                                 struct err *e)
{
    int last = n - 1;

    if (n < 1)
        return err_set(e, ERR_USAGE, "chat: there are no messages; begin with the user's");
    while (last >= 0 && m[last].role == CHAT_SYSTEM)
        last--;
    if (last >= 0 ? m[last].role != CHAT_USER : f->one_answer_a_turn)
        return err_set(e, ERR_USAGE,
                       "chat: nothing to answer; the last message must be the user's");
    return ERR_OK;
}

static void add_systems_in_front(struct chat_pieces *p, const struct chat_format *f,
                                 const struct chat_message *m, int n)
{
    int any = 0;

    for (int i = 0; i < n; i++) {
        if (m[i].role != CHAT_SYSTEM)
            continue;
        if (any)
            add(p, PIECE_TEXT, f->system_join, strlen(f->system_join));
        add(p, PIECE_TEXT, m[i].text, m[i].len);
        any = 1;
    }
}

static void add_message(struct chat_pieces *p, const struct chat_format *f,
                        const struct chat_message *m, enum chat_role before)
{
    const struct gguf_string none = { 0 };
    struct gguf_string text = { m->text, m->len };
    const char *open = "", *close = "";

    switch (m->role) {
    case CHAT_SYSTEM:
        open = f->system_open;
        close = f->system_close;
        break;
    case CHAT_USER:
        open = f->user_open;
        close = f->user_close;
        break;
    case CHAT_ASSISTANT:
        open = f->one_answer_a_turn && before != CHAT_USER ? "" : f->answer_open;
        close = f->answer_close;
        text = earlier_answer(f, m);
        break;
    }
    chat_pieces_parse(p, open, none);
    add(p, PIECE_TEXT, text.data, text.len);
    chat_pieces_parse(p, close, none);
}

enum err_code chat_pieces_build(struct chat_pieces *p, const struct chat_format *f,
                                struct gguf_string chat_template, const struct chat_message *m,
                                int n, const struct chat_options *opt, struct err *e)
{
    struct gguf_string file_text;
    enum chat_role before = CHAT_SYSTEM; /* the last one that was not a system message */
    int think = opt->thinking < 0 ? f->thinks_by_default : opt->thinking;

    TRY(check_order(f, m, n, e));
    TRY(find_file_text(&file_text, f, chat_template, e));
    chat_pieces_parse(p, f->begin, file_text);
    if (m[0].role != CHAT_SYSTEM)
        chat_pieces_parse(p, f->no_system, file_text);
    if (f->system_join)
        add_systems_in_front(p, f, m, n);
    for (int i = 0; i < n; i++) {
        if (m[i].role != CHAT_SYSTEM || !f->system_join)
            add_message(p, f, &m[i], before);
        if (m[i].role != CHAT_SYSTEM)
            before = m[i].role;
    }
    if (!opt->history_only)
        chat_pieces_parse(p, think && f->opening_thinking ? f->opening_thinking : f->opening,
                          file_text);
    if (p->failed)
        return err_set(e, ERR_NOMEM, "chat: no memory for %d messages", n);
    return ERR_OK;
}
