/* SPDX-License-Identifier: MIT */
/* cli/remote.c - see remote.h. */
#include "cli/remote.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/priority.h"
#include "cli/completion.h"
#include "cli/output.h"
#include "cli/text_file.h"

enum { HELD_MOST = 20 }; /* calls of while_waiting: two seconds */

/* ---- The connection ------------------------------------------------------- */

static volatile sig_atomic_t interrupts;
static struct sigaction before;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupts = 1;
}

void remote_interrupt_begin(void)
{
    const struct sigaction on = { .sa_handler = on_interrupt }; /* no SA_RESTART */

    sigaction(SIGINT, &on, &before);
}

void remote_interrupt_end(void)
{
    sigaction(SIGINT, &before, NULL);
}

int remote_interrupted(void)
{
    int was = interrupts;

    interrupts = 0;
    return was;
}

static void tell_back(struct remote *r)
{
    if (r->told_gone)
        log_info("the daemon is back");
    r->gone_s = 0;
    r->told_gone = 0;
}

/* About every 100 ms while a call waits.  A restart that is quicker than a second is not worth a
 * line. */
static int while_waiting(void *arg, int connected)
{
    struct remote *r = arg;
    double now_s = clock_seconds();

    if (connected)
        tell_back(r);
    else if (r->c && r->gone_s == 0)
        r->gone_s = now_s;
    else if (r->c && !r->told_gone && now_s - r->gone_s > 1) {
        log_info("the daemon is gone; the request stays, waiting for it to come back");
        r->told_gone = 1;
    }
    /* The daemon may accept what nobody would know of to cancel. */
    if (interrupts && connected && r->submitting && r->held++ < HELD_MOST)
        return 0;
    return interrupts;
}

static enum err_code read_token(struct remote *r, const struct options *o, struct err *e)
{
    struct str text = { 0 };
    enum err_code rc = text_file_read(o->token_file, &text, e);

    if (rc == ERR_OK && !text.failed && text.len) {
        text.data[strcspn(text.data, "\r\n")] = '\0';
        r->token = strdup(text.data);
    }
    str_free(&text);
    if (rc == ERR_OK && (!r->token || !*r->token))
        rc = err_set(e, ERR_USAGE, "%s: no token in its first line", o->token_file);
    return rc;
}

enum err_code remote_open(struct remote *r, const struct options *o, struct err *e)
{
    struct latent_options options = {
        .endpoint = o->endpoint,
        .agent = "latent/" LATENTD_VERSION,
        .waiting = while_waiting,
        .arg = r,
    };
    struct latent_error le;

    *r = (struct remote){ 0 };
    if (o->token_file)
        TRY(read_token(r, o, e));
    options.token = r->token;
    priority_short_turns(); /* text comes while ranks compute on the same cores */
    if (latent_connect(&r->c, &options, &le) != LATENT_OK)
        return remote_err(&le, e);
    return ERR_OK;
}

void remote_close(struct remote *r)
{
    latent_close(&r->c);
    free(r->token);
    r->token = NULL;
}

enum err_code remote_err(const struct latent_error *from, struct err *e)
{
    switch (from->code) {
    case LATENT_OK:
        return ERR_OK;
    case LATENT_STOPPED:
        return err_set(e, ERR_CANCELLED, "interrupted");
    case LATENT_USAGE:
    case LATENT_INVALID_PARAMETER:
    case LATENT_ID_CONFLICT:
        return err_set(e, ERR_USAGE, "%s", from->message);
    case LATENT_NO_MEMORY:
        return err_set(e, ERR_NOMEM, "%s", from->message);
    default:
        return err_set(e, ERR_IO, "%s: %s", latent_code_name(from->code), from->message);
    }
}

/* ---- Submitting ------------------------------------------------------------ */

static enum err_code read_biases(struct latent_request *r, struct latent_bias **bias,
                                 const struct text_list *texts, struct err *e)
{
    *bias = calloc(texts->n + 1, sizeof **bias);
    if (!*bias)
        return err_set(e, ERR_NOMEM, "--logit-bias: no memory");
    for (size_t i = 0; i < texts->n; i++)
        if (logit_bias_parse(texts->v[i], &(*bias)[i].id, &(*bias)[i].bias))
            return err_set(e, ERR_USAGE,
                           "--logit-bias %.40s: not a bias; give ID+X or ID-X, as in 1234-0.5",
                           texts->v[i]);
    r->bias = *bias;
    r->n_bias = texts->n;
    return ERR_OK;
}

enum err_code remote_sampling(struct latent_request *r, struct latent_bias **bias,
                              const struct options *o, struct err *e)
{
#define GIVEN(to, field)              \
    do {                              \
        if (o->given[OPTION_##field]) \
            r->to = o->field;         \
    } while (0)
    GIVEN(temperature, temperature);
    GIVEN(top_k, top_k);
    GIVEN(top_p, top_p);
    GIVEN(min_p, min_p);
    GIVEN(repeat_penalty, repeat_penalty);
    GIVEN(presence_penalty, presence_penalty);
    GIVEN(frequency_penalty, frequency_penalty);
    GIVEN(repeat_last_n, repeat_last_n);
#undef GIVEN
    r->has_seed = o->seed >= 0;
    r->seed = o->seed >= 0 ? (uint64_t)o->seed : 0;
    r->stops = o->stop.v;
    r->n_stops = o->stop.n;
    r->ignore_eos = o->ignore_eos;
    return read_biases(r, bias, &o->logit_bias, e);
}

enum err_code remote_submit(struct remote *r, const struct latent_request *q,
                            struct latent_accepted *out, struct err *e)
{
    struct latent_error le;
    struct timespec pause = { 0 };
    enum latent_code code;
    int told = 0;

    for (;;) {
        r->submitting = 1;
        code = latent_submit(r->c, q, out, &le);
        r->submitting = r->held = 0;
        if (code == LATENT_OK)
            return ERR_OK;
        if (le.code != LATENT_STARTING || interrupts)
            return remote_err(&le, e);
        if (!told++)
            log_info("%s", le.message);
        pause.tv_sec = le.retry_ms / 1000;
        pause.tv_nsec = le.retry_ms % 1000 * 1000000L;
        nanosleep(&pause, NULL);
    }
}

/* ---- Printing ---------------------------------------------------------------- */

static int print_chunk(void *arg, const struct latent_chunk *chunk)
{
    struct remote_text *t = arg;

    tell_back(t->r);
    if (t->keep)
        str_append(t->keep, chunk->text, chunk->text_len);
    if (chunk->text_len)
        t->print_code = output_write(chunk->text, chunk->text_len, t->e);
    if (chunk->ended) {
        t->end = *chunk;
        strncpy(t->message, chunk->message, sizeof t->message - 1);
    }
    return t->print_code != ERR_OK;
}

enum err_code remote_print(struct remote *r, struct remote_text *t, struct err *e)
{
    struct latent_error le;

    t->r = r;
    t->e = e;
    t->print_code = ERR_OK;
    if (latent_follow(r->c, &t->stream, print_chunk, t, &le) == LATENT_OK)
        return ERR_OK;
    return t->print_code != ERR_OK ? t->print_code : remote_err(&le, e);
}

enum err_code remote_report(const struct remote_text *t, struct err *e)
{
    const struct latent_chunk *end = &t->end;
    double prompt_s = end->first_token_ms > end->accepted_ms
                          ? (double)(end->first_token_ms - end->accepted_ms) * 1e-3
                          : 0;
    double produce_s = end->first_token_ms && end->ended_ms > end->first_token_ms
                           ? (double)(end->ended_ms - end->first_token_ms) * 1e-3
                           : 0;

    log_info("prompt: %u tokens, %u of them from the cache; first token after %.2f s",
             end->prompt_tokens, end->cached_tokens, prompt_s);
    log_info("produced: %u tokens in %.2f s, %.1f tokens/s; ended by %s", end->produced_tokens,
             produce_s, produce_s > 0 ? (double)(end->produced_tokens - 1) / produce_s : 0.0,
             latent_reason_name(end->reason));
    switch (end->reason) {
    case LATENT_REASON_STOP:
    case LATENT_REASON_LENGTH:
        return ERR_OK;
    case LATENT_REASON_CANCELLED:
        return err_set(e, ERR_CANCELLED, "%s: cancelled", t->stream.id);
    case LATENT_REASON_NUMERIC_ERROR:
        return err_set(e, ERR_NUMERIC, "%s: %s", t->stream.id, t->message);
    default:
        return err_set(e, ERR_IO, "%s: %s%s%s", t->stream.id, latent_reason_name(end->reason),
                       *t->message ? ": " : "", t->message);
    }
}
