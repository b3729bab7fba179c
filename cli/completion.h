/* SPDX-License-Identifier: MIT */
/* cli/completion.h - from a prompt to text on stdout, token by token. */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include <signal.h>

#include "session/session.h"
#include "rank/sampler.h"

/* The sampling options, checked, with a seed of the system where the user gave none.  End with
 * sampling_args_free.  Errors: ERR_USAGE; ERR_NOMEM. */
enum err_code sampling_args_read(struct sampling *p, const struct options *o, struct err *e);
void sampling_args_free(struct sampling *p);

/* "ID+X" or "ID-X".  Returns -1 if the text is neither. */
int logit_bias_parse(const char *text, int32_t *to_id, float *to_bias);

struct completion {
    struct token_list
        *tokens;           /* in: the prompt; out: and what was produced, the end token included */
    int64_t max_tokens;    /* -1: until the context is full */
    size_t n_kept;         /* tokens of the prompt that the engine holds already; 0: begin anew */
    const int32_t *end_id; /* one more token that ends the text; NULL: none */
    const volatile sig_atomic_t *stop; /* ends soon once this is set; NULL: never */

    /* Results. */
    size_t n_prompt, n_produced, n_steps; /* steps: the first token comes with the prompt */
    double prompt_s, produce_s;
    struct str text; /* what was printed: free with str_free */
};

/* Feeds sequence 0 with c->tokens and prints what follows as it is made: up to a token that ends
 * the text (without --ignore-eos), a --stop text, max_tokens, the context or *stop.
 * Errors: those of engine_feed, sampler_choose, output_write; ERR_NOMEM. */
enum err_code completion_run(struct completion *c, struct session *s, const struct sampling *p,
                             const struct options *o, struct err *e);

/* One line with the counts and speeds, and the seed where it mattered. */
void completion_log(const struct completion *c, const struct sampling *p);

#endif
