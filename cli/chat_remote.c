/* SPDX-License-Identifier: MIT */
/* cli/chat_remote.c - `latent chat --endpoint`: a conversation through a daemon.
 *
 * Each turn submits the whole conversation; the daemon writes it in the model's format and finds
 * what it has computed before in its cache.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/chat_input.h"
#include "cli/output.h"
#include "cli/remote.h"

struct talk {
    struct remote r;
    const struct options *o;
    struct latent_message *m; /* [n]; the texts are owned */
    size_t n, cap;
    struct latent_bias *bias;
};

/* Takes the text. */
static enum err_code add_message_take(struct talk *t, enum latent_role role, struct str *text,
                                      struct err *e)
{
    if (!text->failed && t->n == t->cap) {
        size_t cap = 2 * t->cap + 16;
        struct latent_message *m = realloc(t->m, cap * sizeof *m);
        text->failed = !m;
        t->m = m ? m : t->m;
        t->cap = m ? cap : t->cap;
    }
    if (text->failed) {
        str_free(text);
        return err_set(e, ERR_NOMEM, "chat: no memory for the message");
    }
    t->m[t->n++] = (struct latent_message){ role, text->data ? text->data : strdup(""), text->len };
    *text = (struct str){ 0 };
    return ERR_OK;
}

static void drop_message(struct talk *t)
{
    free((char *)t->m[--t->n].text);
}

static enum err_code submit(struct talk *t, char id[LATENT_ID_SIZE], struct err *e)
{
    struct latent_request q;
    struct latent_error le;

    latent_request_init(&q);
    if (latent_new_id(id, &le) != LATENT_OK)
        return remote_err(&le, e);
    q.id = id;
    q.client = t->o->client;
    q.priority = (int)t->o->priority;
    q.messages = t->m;
    q.n_messages = t->n;
    q.thinking = t->o->think == 0 ? -1 : t->o->think == 1; /* auto, on, off */
    q.chat_format = t->o->chat_format;
    q.max_tokens = t->o->n_predict;
    free(t->bias);
    t->bias = NULL;
    TRY(remote_sampling(&q, &t->bias, t->o, e));
    return remote_submit(&t->r, &q, NULL, e);
}

/* Ctrl-C ends the answer, not the conversation: what came until then is part of it. */
static enum err_code answer(struct talk *t, const char *id, struct str *text, struct err *e)
{
    struct remote_text out = { .keep = text };
    struct latent_error le;

    latent_stream_init(&out.stream, id, 0);
    enum err_code rc = remote_print(&t->r, &out, e);
    if (rc == ERR_CANCELLED && out.print_code == ERR_OK) {
        remote_interrupted();
        if (latent_cancel(t->r.c, id, &le) != LATENT_OK)
            return remote_err(&le, e);
        rc = remote_print(&t->r, &out, e);
    }
    if (rc == ERR_OK)
        rc = output_write("\n", 1, e);
    if (rc == ERR_OK)
        rc = remote_report(&out, e);
    return rc == ERR_CANCELLED && out.print_code == ERR_OK ? ERR_OK : rc;
}

static enum err_code take_turn(struct talk *t, struct str *text, struct err *e)
{
    char id[LATENT_ID_SIZE];
    struct str said = { 0 };

    TRY(add_message_take(t, LATENT_USER, text, e));
    remote_interrupted();
    enum err_code rc = submit(t, id, e);
    if (rc == ERR_OK)
        rc = answer(t, id, &said, e);
    if (rc == ERR_OK && said.len)
        return add_message_take(t, LATENT_ASSISTANT, &said, e);
    str_free(&said);
    drop_message(t); /* a question without an answer */
    return rc;
}

static enum err_code converse(struct talk *t, struct err *e)
{
    struct str text = { 0 };
    enum err_code rc = ERR_OK;

    if (t->o->system_prompt) {
        str_puts(&text, t->o->system_prompt);
        rc = add_message_take(t, LATENT_SYSTEM, &text, e);
    }
    if (rc == ERR_OK && t->o->prompt) {
        str_puts(&text, t->o->prompt);
        rc = take_turn(t, &text, e);
    }
    while (rc == ERR_OK && chat_read_message(&text))
        if (text.len)
            rc = take_turn(t, &text, e);
    str_free(&text);
    return rc;
}

enum err_code chat_remote(const struct options *o, struct err *e)
{
    struct talk t = { .o = o };

    if (o->given[OPTION_model])
        log_warn("-m: means nothing with --endpoint; the daemon has its own model");
    remote_interrupt_begin();
    enum err_code rc = remote_open(&t.r, o, e);
    if (rc == ERR_OK) {
        log_info("a line is a message, one that ends in \\ goes on; Ctrl-C ends an answer, Ctrl-D "
                 "the conversation");
        rc = converse(&t, e);
    }
    remote_interrupt_end();
    remote_close(&t.r);
    while (t.n)
        drop_message(&t);
    free(t.m);
    free(t.bias);
    return rc;
}
