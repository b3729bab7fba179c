/* SPDX-License-Identifier: MIT */
/* cli/cmd_generate.c - `latent generate`: one completion of the raw prompt. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/completion.h"
#include "cli/text_file.h"

/* The prompt as ids.  Its text is taken byte by byte as it is. */
static enum err_code read_prompt(struct token_list *ids, const struct session *s,
                                 const struct options *o, struct err *e)
{
    unsigned flags = TOKENIZE_BOS | (o->parse_special ? TOKENIZE_SPECIAL : 0);
    struct str text = { 0 };
    enum err_code rc = ERR_OK;

    if (o->prompt)
        str_puts(&text, o->prompt);
    else
        rc = text_file_read(o->file, &text, e);
    if (rc == ERR_OK)
        rc = text.failed ? err_set(e, ERR_NOMEM, "no memory for the prompt")
                         : tokenizer_encode(s->tokenizer, text.data ? text.data : "", text.len,
                                            flags, ids, e);
    str_free(&text);
    if (rc == ERR_OK && ids->n == 0)
        return err_set(e, ERR_USAGE,
                       "the prompt is empty, and the file adds no token of its own; "
                       "give some text");
    return rc;
}

/* The cache a run needs: prompt and answer; 0, what fits, where nothing bounds the answer. */
static int64_t context_wanted(const struct session *s, const struct options *o, size_t n_prompt)
{
    int64_t n = (int64_t)n_prompt + o->n_predict;

    return o->n_predict >= 0 && n <= s->model->hp.context_length ? n : 0;
}

static enum err_code generate(struct session *s, struct completion *c, struct sampling *p,
                              const struct options *o, struct err *e)
{
    TRY(sampling_args_read(p, o, e));
    TRY(session_open(s, o, 1, e));
    TRY(read_prompt(c->tokens, s, o, e));
    TRY(session_check_length(s, o, "prompt", (int64_t)c->tokens->n, e));
    TRY(session_load(s, o, context_wanted(s, o, c->tokens->n), e));
    TRY(completion_run(c, s, p, o, e));
    if (isatty(STDOUT_FILENO))
        printf("\n");
    completion_log(c, p);
    return session_keep_record(s, e);
}

enum err_code run_generate(const struct options *o, struct err *e)
{
    struct session s = { 0 };
    struct sampling p = { 0 };
    struct token_list tokens = { 0 };
    struct completion c = { .tokens = &tokens, .max_tokens = o->n_predict };

    if (!o->prompt == !o->file)
        return err_set(e, ERR_USAGE, "generate: wants one prompt; give -p TEXT or -f FILE");
    enum err_code rc = generate(&s, &c, &p, o, e);
    str_free(&c.text);
    token_list_free(&tokens);
    sampling_args_free(&p);
    session_close(&s);
    return rc;
}
