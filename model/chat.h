/* SPDX-License-Identifier: MIT */
/* model/chat.h - from messages to a prompt, in the form a model was trained on.
 *
 * The format is chosen from the chat template in the file, by marks that tell the
 * templates of this family apart; native code then writes the prompt, token by token.
 * Markers are written by their ids.  The text between two markers, the format's words and the
 * messages alike, is tokenised in one go without special tokens, as the model saw it.
 *
 * So nothing that stands in a message becomes a control token or a marker of the format,
 * not even one that the vocabulary calls user-defined, as some do with <think>.  Other
 * user-defined tokens (one for "ue" in a German word, say) are recognised in messages as
 * the vocabulary wants it.
 */
#ifndef MODEL_CHAT_H
#define MODEL_CHAT_H

#include "model/tokenizer.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT };

struct chat_message {
    enum chat_role role;
    const char *text; /* [len] bytes, borrowed */
    size_t len;
};

struct chat_format; /* one row of the table in chat_formats.def; static */

/* The format whose marks this template has, or NULL. */
const struct chat_format *chat_format_detect(const char *chat_template, size_t len);

/* The format of the file's own template, or the one called `name` if it is not NULL.
 * Errors: ERR_UNSUPPORTED, an unknown template or none in the file; ERR_USAGE, an unknown
 * name; both list the names for --chat-format. */
enum err_code chat_format_choose(const struct chat_format **out, const struct gguf *g,
                                 const char *name, struct err *e);
const char *chat_format_name(const struct chat_format *f);

struct chat_options {
    int thinking;     /* 1: let the model think, 0: do not, -1: as the template does if nothing
                         is said; without effect where the format knows no difference */
    int history_only; /* 1: leave out what opens the assistant's answer */
};

/* Writes the prompt for the messages, ending where the assistant is to answer: as ids
 * (chat_render, appended) or, for tests and --verbose, as text (chat_render_text).  System
 * messages stand where the format puts them.  `g` is the file whose template holds long fixed
 * texts (GigaChat3) and default system messages, read at run time; chat_template may be NULL.
 * Errors: ERR_UNSUPPORTED (a marker is not in the vocabulary, or a fixed text not in the
 * template), ERR_USAGE (no message to answer: the last that is not a system message must be
 * the user's), ERR_NOMEM. */
enum err_code chat_render(const struct chat_format *f, const struct gguf *g,
                          const struct tokenizer *t, const struct chat_message *m, int n,
                          const struct chat_options *opt, struct token_list *out, struct err *e);
enum err_code chat_render_text(const struct chat_format *f, const char *chat_template,
                               const char *bos, const char *eos, const struct chat_message *m,
                               int n, const struct chat_options *opt, struct str *out,
                               struct err *e);

/* The marker that ends an answer in this format, -1 if the vocabulary lacks it: the model writes
 * it, whether or not the file declares it an end of text. */
int32_t chat_end_id(const struct chat_format *f, const struct tokenizer *t);

/* Where the answer begins in what the model wrote: behind the reasoning, where the format
 * knows reasoning, otherwise 0.  Earlier answers go into messages without it. */
size_t chat_answer_begin(const struct chat_format *f, const char *text, size_t len);

#endif
