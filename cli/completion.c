/* SPDX-License-Identifier: MIT */
#include "cli/completion.h"

#include <inttypes.h>

#include "base/log.h"
#include "cli/output.h"
#include "rank/text_filter.h"

/* What one run holds; freed as a whole. */
struct run {
    struct completion *c;
    struct session *s;
    const struct sampling *p;
    int ignore_end;
    int64_t piece_tokens; /* of a prompt, fed between two looks at *stop and the clock */
    struct text_filter *filter;
    struct str piece;

    int32_t chosen; /* by the last logits */
    enum err_code failed;
    struct err *e;
};

static void choose(void *arg, int64_t pos, const float *logits)
{
    struct run *r = arg;
    const struct token_list *t = r->c->tokens;

    r->failed = sampler_choose(engine_sampler(r->s->engine), r->p, logits, t->ids, t->n, pos + 1,
                               &r->chosen, r->e);
}

static int stopped(const struct run *r)
{
    return r->c->stop && *r->c->stop;
}

/* Feeds the tokens from `from` on, a long prompt in pieces, and chooses the next one. */
static enum err_code feed(struct run *r, size_t from)
{
    const struct token_list *t = r->c->tokens;
    int64_t n = (int64_t)(t->n - from), left = n;
    struct progress progress;
    enum err_code rc = ERR_OK;

    progress_start(&progress, "reading the prompt", n);
    for (; rc == ERR_OK && left > r->piece_tokens && !stopped(r); left -= r->piece_tokens) {
        rc = engine_feed(r->s->engine, 0, t->ids + t->n - left, r->piece_tokens, ENGINE_NONE, NULL,
                         NULL, r->e);
        progress_update(&progress, n - left + r->piece_tokens);
    }
    progress_end(&progress);
    TRY(rc);
    if (stopped(r))
        return ERR_OK;
    TRY(engine_feed(r->s->engine, 0, t->ids + t->n - left, left, ENGINE_LAST, choose, r, r->e));
    return r->failed;
}

static enum err_code show(struct run *r, size_t from)
{
    struct str *text = &r->c->text;

    if (text->failed)
        return err_set(r->e, ERR_NOMEM, "no memory for the text");
    return text->len > from ? output_write(text->data + from, text->len - from, r->e) : ERR_OK;
}

/* Takes the chosen token.  *end is set where it ends the text. */
static enum err_code take(struct run *r, int *end)
{
    struct completion *c = r->c;
    size_t before = c->text.len;

    token_list_push(c->tokens, r->chosen);
    if (!c->tokens->ids)
        return err_set(r->e, ERR_NOMEM, "no memory for the tokens");
    c->n_produced++;
    if (!r->ignore_end &&
        (tokenizer_is_end(r->s->tokenizer, r->chosen) || (c->end_id && *c->end_id == r->chosen))) {
        *end = 1;
        return ERR_OK;
    }
    str_clear(&r->piece);
    tokenizer_decode(r->s->tokenizer, r->chosen, 0, &r->piece);
    *end = text_filter_push(r->filter, r->piece.data, r->piece.len, &c->text);
    return show(r, before);
}

static enum err_code produce(struct run *r)
{
    struct completion *c = r->c;
    int64_t room = engine_context(r->s->engine) - (int64_t)c->n_prompt;
    int64_t most = c->max_tokens >= 0 && c->max_tokens < room ? c->max_tokens : room;
    double begin = clock_seconds();
    int end = 0;

    if (c->n_kept)
        engine_extend(r->s->engine, 0, (int64_t)c->n_prompt);
    else
        engine_begin(r->s->engine, 0, (int64_t)c->n_prompt);
    if (c->max_tokens == 0)
        return ERR_OK;
    TRY(feed(r, c->n_kept));
    c->prompt_s = clock_seconds() - begin;
    begin = clock_seconds();
    while (!stopped(r) && (int64_t)c->n_produced < most) {
        TRY(take(r, &end));
        if (end || (int64_t)c->n_produced == most)
            break;
        TRY(feed(r, c->tokens->n - 1));
        c->n_steps++;
    }
    size_t before = c->text.len;
    text_filter_flush(r->filter, &c->text);
    c->produce_s = clock_seconds() - begin;
    if (!end && !stopped(r) && (c->max_tokens < 0 || c->max_tokens > room))
        log_warn("the context of %" PRId64
                 " positions is full: the text ends here; a larger -c may help",
                 engine_context(r->s->engine));
    return show(r, before);
}

enum err_code completion_run(struct completion *c, struct session *s, const struct sampling *p,
                             const struct options *o, struct err *e)
{
    struct run r = {
        .c = c,
        .s = s,
        .p = p,
        .ignore_end = o->ignore_eos,
        .piece_tokens = o->ubatch,
        .e = e,
    };
    enum err_code rc;

    c->n_prompt = c->tokens->n;
    c->n_produced = c->n_steps = 0;
    c->prompt_s = c->produce_s = 0;
    if ((rc = text_filter_create(&r.filter, o->stop.v, (int)o->stop.n, e)) == ERR_OK)
        rc = produce(&r);
    text_filter_free(&r.filter);
    str_free(&r.piece);
    return rc;
}

void completion_log(const struct completion *c, const struct sampling *p)
{
    log_info("prompt: %zu tokens in %.2f s, %.1f tokens/s", c->n_prompt, c->prompt_s,
             c->prompt_s > 0 ? (double)c->n_prompt / c->prompt_s : 0.0);
    log_info("produced: %zu tokens, %zu steps in %.2f s, %.1f tokens/s", c->n_produced, c->n_steps,
             c->produce_s, c->produce_s > 0 ? (double)c->n_steps / c->produce_s : 0.0);
    if (p->temperature > 0)
        log_info("seed: %llu", (unsigned long long)p->seed);
}
