/* SPDX-License-Identifier: MIT */
/* cli/cmd_chat.c - `latent chat`: a conversation in the model's own chat format.
 *
 * Each turn writes the whole conversation as a prompt anew, as the format wants it (some drop
 * the reasoning of earlier answers), and feeds what the engine does not hold yet.
 *
 * With --endpoint a daemon does all that: chat_remote.c.
 *
 * Reading order: the conversation; one turn; the command.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/chat_input.h"
#include "cli/completion.h"
#include "cli/output.h"
#include "model/chat.h"

static volatile sig_atomic_t interrupted; /* by Ctrl-C */

struct chat {
    struct session s;
    struct sampling p;
    const struct options *o;
    const struct chat_format *format;
    int32_t end_id;
    struct chat_message *m; /* [n]; the texts are owned */
    int n, cap;
    struct token_list tokens; /* of the last turn; the engine holds the first of them */
    struct completion total;  /* counts and times of all turns */
};

/* ---- The conversation --------------------------------------------------- */

static enum err_code add_message(struct chat *c, enum chat_role role, const char *text, size_t len,
                                 struct err *e)
{
    char *copy = malloc(len + 1);

    if (copy && c->n == c->cap) {
        int cap = 2 * c->cap + 16;
        struct chat_message *m = realloc(c->m, (size_t)cap * sizeof *m);
        if (m) {
            c->m = m;
            c->cap = cap;
        }
    }
    if (!copy || c->n == c->cap) {
        free(copy);
        return err_set(e, ERR_NOMEM, "chat: no memory for a message of %zu bytes", len);
    }
    if (len)
        memcpy(copy, text, len);
    c->m[c->n++] = (struct chat_message){ role, copy, len };
    return ERR_OK;
}

static void drop_message(struct chat *c)
{
    free((char *)c->m[--c->n].text);
}

/* How many tokens of the prompt the engine holds already.  At least one is left to feed. */
static size_t count_kept(const struct chat *c, const struct token_list *prompt)
{
    size_t n = (size_t)engine_length(c->s.engine, 0);

    if (n >= prompt->n || n > c->tokens.n ||
        (n && memcmp(prompt->ids, c->tokens.ids, n * sizeof *prompt->ids) != 0))
        return 0;
    return n;
}

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* ---- One turn ----------------------------------------------------------- */

static void add_counts(struct chat *c, const struct completion *turn)
{
    c->total.n_prompt += turn->n_prompt - turn->n_kept;
    c->total.n_produced += turn->n_produced;
    c->total.n_steps += turn->n_steps;
    c->total.prompt_s += turn->prompt_s;
    c->total.produce_s += turn->produce_s;
}

/* Answers the conversation.  Takes prompt: it becomes c->tokens. */
static enum err_code answer_take(struct chat *c, struct token_list *prompt, struct err *e)
{
    struct completion turn = {
        .tokens = prompt,
        .max_tokens = c->o->n_predict,
        .n_kept = count_kept(c, prompt),
        .end_id = c->end_id >= 0 ? &c->end_id : NULL,
        .stop = &interrupted,
    };
    enum err_code rc = completion_run(&turn, &c->s, &c->p, c->o, e);

    token_list_free(&c->tokens);
    c->tokens = *prompt;
    *prompt = (struct token_list){ 0 };
    add_counts(c, &turn);
    if (rc == ERR_OK)
        rc = output_write("\n", 1, e);
    if (rc == ERR_OK && interrupted)
        log_info("interrupted");
    if (rc == ERR_OK && turn.n_produced) {
        size_t begin = chat_answer_begin(c->format, turn.text.data, turn.text.len);
        rc = add_message(c, CHAT_ASSISTANT, turn.text.data + begin, turn.text.len - begin, e);
    } else if (rc == ERR_OK) {
        drop_message(c); /* a question without an answer */
    }
    str_free(&turn.text);
    return rc;
}

static enum err_code take_turn(struct chat *c, const struct str *text, struct err *e)
{
    /* --think: auto, on, off */
    const struct chat_options opt = { .thinking = c->o->think == 0 ? -1 : c->o->think == 1 };
    struct token_list prompt = { 0 };
    enum err_code rc;

    if (text->failed)
        return err_set(e, ERR_NOMEM, "chat: no memory for the message");
    TRY(add_message(c, CHAT_USER, text->data, text->len, e));
    interrupted = 0;
    rc = chat_render(c->format, c->s.model->gguf, c->s.tokenizer, c->m, c->n, &opt, &prompt, e);
    if (rc == ERR_OK && (int64_t)prompt.n >= engine_context(c->s.engine))
        rc = err_set(e, ERR_FULL,
                     "chat: the conversation has %zu tokens, and the context holds %" PRId64
                     "; begin a new one, or give a larger -c",
                     prompt.n, engine_context(c->s.engine));
    if (rc == ERR_OK)
        rc = answer_take(c, &prompt, e);
    token_list_free(&prompt);
    return rc;
}

/* ---- The command -------------------------------------------------------- */

static enum err_code converse(struct chat *c, struct err *e)
{
    struct str text = { 0 };
    enum err_code rc = ERR_OK;

    if (c->o->prompt) {
        str_puts(&text, c->o->prompt);
        rc = take_turn(c, &text, e);
    }
    while (rc == ERR_OK) {
        str_clear(&text);
        if (!chat_read_message(&text))
            break;
        if (text.len)
            rc = take_turn(c, &text, e);
    }
    str_free(&text);
    return rc;
}

/* A format that the vocabulary cannot write is refused before the weights are loaded. */
static enum err_code try_format(const struct chat *c, struct err *e)
{
    static const struct chat_message hello = { CHAT_USER, "hello", 5 };
    static const struct chat_options opt = { .thinking = 1 };
    struct token_list prompt = { 0 };
    enum err_code rc =
        chat_render(c->format, c->s.model->gguf, c->s.tokenizer, &hello, 1, &opt, &prompt, e);

    token_list_free(&prompt);
    return rc;
}

static enum err_code open_chat(struct chat *c, struct err *e)
{
    TRY(sampling_args_read(&c->p, c->o, e));
    TRY(session_open(&c->s, c->o, 1, e));
    TRY(chat_format_choose(&c->format, c->s.model->gguf, c->o->chat_format, e));
    TRY(try_format(c, e));
    c->end_id = chat_end_id(c->format, c->s.tokenizer);
    if (c->o->system_prompt)
        TRY(add_message(c, CHAT_SYSTEM, c->o->system_prompt, strlen(c->o->system_prompt), e));
    return session_load(&c->s, c->o, 0, e);
}

enum err_code run_chat(const struct options *o, struct err *e)
{
    const struct sigaction on = { .sa_handler = on_interrupt }; /* no SA_RESTART: reading ends */
    struct sigaction before;
    struct chat c = { .o = o };

    if (o->endpoint)
        return chat_remote(o, e);
    enum err_code rc = open_chat(&c, e);

    if (rc == ERR_OK) {
        log_info("chat format %s; a line is a message, one that ends in \\ goes on; Ctrl-C ends an "
                 "answer, Ctrl-D the conversation",
                 chat_format_name(c.format));
        sigaction(SIGINT, &on, &before);
        rc = converse(&c, e);
        sigaction(SIGINT, &before, NULL);
        completion_log(&c.total, &c.p);
    }
    while (c.n)
        drop_message(&c);
    free(c.m);
    token_list_free(&c.tokens);
    sampling_args_free(&c.p);
    session_close(&c.s);
    return rc;
}
