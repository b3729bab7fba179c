/* SPDX-License-Identifier: MIT */
/* model/chat.h - from messages to a prompt, in the form a model was trained on.
 *
 * The format is chosen from the chat template in the file, by the marks that tell the
 * templates of this family apart; native code then writes the prompt, token by
 * token: markers are control tokens by id, message text is tokenised without special
 * tokens, so nothing a user types becomes a control token.
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

/* The format of the file's own template, or the one called `name` if it is not NULL.
 * Errors: ERR_UNSUPPORTED, an unknown template or name, or none in the file: lists the names
 * for --chat-format. */
enum err_code chat_format_choose(const struct chat_format **out, const struct gguf *g,
                                 const char *name, struct err *e);
const char *chat_format_name(const struct chat_format *f);

struct chat_options {
    int thinking; /* 1: let the model think, 0: do not, where the format knows the difference */
};

/* Writes the prompt for the messages, ending where the assistant is to answer: as ids
 * (chat_render) or, for tests and --verbose, as text (chat_render_text).  `g` is the file whose
 * template holds long fixed texts (GigaChat3), read at run time.
 * Errors: ERR_UNSUPPORTED (a marker is not in the vocabulary), ERR_USAGE (an order of roles
 * that the format cannot express), ERR_NOMEM. */
enum err_code chat_render(const struct chat_format *f, const struct gguf *g, const struct tokenizer *t,
                          const struct chat_message *m, int n, const struct chat_options *opt,
                          struct token_list *out, struct err *e);
enum err_code chat_render_text(const struct chat_format *f, const char *chat_template, const char *bos,
                               const char *eos, const struct chat_message *m, int n,
                               const struct chat_options *opt, struct str *out, struct err *e);

#endif
