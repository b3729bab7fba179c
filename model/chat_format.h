/* SPDX-License-Identifier: MIT */
/* model/chat_format.h - what a chat format is, and a conversation as pieces of a prompt.
 *
 * Private to the files chat*.c.  A format is data: strings around each kind of
 * message, and a few flags where the models really differ.  In the strings, control bytes
 * that no template contains set the markers apart from the text:
 *
 *     MARK("<|im_end|>")   a marker: this one token of the vocabulary
 *     BOS, EOS             the file's tokens
 *     FILE_TEXT            text of the file's own template, between file_text_from and _to
 */
#ifndef MODEL_CHAT_FORMAT_H
#define MODEL_CHAT_FORMAT_H

#include "model/chat.h"
#include "model/gguf.h"

#define MARK(text) "\1" text "\2"
#define BOS        "\3"
#define EOS        "\4"
#define FILE_TEXT  "\5"

enum chat_history {
    HISTORY_WHOLE,               /* earlier answers as they stand               */
    HISTORY_AFTER_FIRST_THOUGHT, /* only what follows the first "</think>"      */
    HISTORY_AFTER_LAST_THOUGHT,  /* only what follows the last "</think>"       */
};

struct chat_format {
    const char *name, *models;
    const char *has[4], *lacks[4]; /* substrings of the templates, NULL: no more */

    /* NULL is "" in all of these. */
    const char *begin;
    const char *no_system;   /* behind `begin` if the first message is no system message */
    const char *system_join; /* not NULL: all system messages stand in front, joined by it */
    const char *system_open, *system_close;
    const char *user_open, *user_close;
    const char *answer_open, *answer_close; /* around an earlier answer          */
    const char *opening,
        *opening_thinking; /* of the answer to come; NULL: it makes no difference */

    const char *file_text_from, *file_text_to;
    const char *file_text_else; /* if the file has none; NULL: the file must */

    enum chat_history history;
    int history_trimmed;   /* earlier answers lose white space at both ends           */
    int one_answer_a_turn; /* answer_open only behind a user's message                */
    int thinks_by_default; /* what the template does if nothing is said               */
    int reasons;           /* the model may write reasoning, then "</think>"          */
};

/* All of them; ends with a row without a name. */
extern const struct chat_format chat_formats[];

/* The template in the file, data NULL if there is none (or no file). */
struct gguf_string chat_template_of(const struct gguf *g);

/* ---- Pieces ------------------------------------------------------------- */

enum chat_piece_kind { PIECE_TEXT, PIECE_MARK, PIECE_BOS, PIECE_EOS };

struct chat_piece {
    enum chat_piece_kind kind;
    const char *text; /* [len], borrowed from format, template or message; not of BOS and EOS */
    size_t len;
};

struct chat_pieces {
    struct chat_piece *piece; /* [n]; free with chat_pieces_free */
    size_t n, cap;
    int failed; /* no memory */
};

void chat_pieces_free(struct chat_pieces *p);
void chat_pieces_add_mark(struct chat_pieces *p, const char *text, size_t len);

/* The pieces of one string of a format.  FILE_TEXT becomes file_text. */
void chat_pieces_parse(struct chat_pieces *p, const char *string, struct gguf_string file_text);

/* The prompt for a conversation.  chat_template: the file's ({0} if it has none).
 * Errors: those of chat_render, without what the vocabulary lacks. */
enum err_code chat_pieces_build(struct chat_pieces *p, const struct chat_format *f,
                                struct gguf_string chat_template, const struct chat_message *m,
                                int n, const struct chat_options *opt, struct err *e);

#endif
