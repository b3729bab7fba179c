/* SPDX-License-Identifier: MIT */
/* daemon/server_submit.c - from a Submit to what the book takes: every value in its range, and
 * the prompt as tokens.
 *
 * Reading order: sampling; stop strings; the three forms of a prompt; the whole.
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server_call.h"
#include "model/chat.h"

/* ---- Sampling ----------------------------------------------------------- */

static enum err_code take_real(float *to, int given, float value, float min, float max,
                               const char *name, const char **field, struct err *e)
{
    if (!given)
        return ERR_OK;
    if (!(value >= min && value <= max)) {
        *field = name;
        return err_set(e, ERR_USAGE, "%s %g: out of range; give %g to %g", name, (double)value,
                       (double)min, (double)max);
    }
    *to = value;
    return ERR_OK;
}

static enum err_code take_count(int *to, int given, int64_t value, int64_t min, int64_t max,
                                const char *name, const char **field, struct err *e)
{
    if (!given)
        return ERR_OK;
    if (value < min || value > max) {
        *field = name;
        return err_set(e, ERR_USAGE, "%s %lld: out of range; give %lld to %lld", name,
                       (long long)value, (long long)min, (long long)max);
    }
    *to = (int)value;
    return ERR_OK;
}

static enum err_code take_biases(struct server_submit *s, const Latentd__Sampling *q,
                                 const char **field, struct err *e)
{
    if (!q->n_bias)
        return ERR_OK;
    s->bias = calloc(q->n_bias, sizeof *s->bias);
    if (!s->bias)
        return err_set(e, ERR_NOMEM, "sampling.bias: no memory");
    for (size_t i = 0; i < q->n_bias; i++) {
        const Latentd__LogitBias *b = q->bias[i];
        if (!b->has_id || b->id < 0 || !(b->bias < INFINITY)) {
            *field = "sampling.bias";
            return err_set(e, ERR_USAGE,
                           "sampling.bias: entry %zu is no bias; give a token's id and a number "
                           "below infinity",
                           i);
        }
        s->bias[i] = (struct logit_bias){ .id = b->id, .bias = b->bias };
    }
    s->spec.sampling.bias = s->bias;
    s->spec.sampling.n_bias = (int)q->n_bias;
    return ERR_OK;
}

static enum err_code take_sampling(struct server_submit *s, const Latentd__Sampling *q,
                                   const char **field, struct err *e)
{
    struct sampling *p = &s->spec.sampling;

    sampling_default(p);
    if (!q)
        return ERR_OK;
#define REAL(to, name, min, max) \
    TRY(take_real(&p->to, q->has_##name, q->name, min, max, "sampling." #name, field, e))
#define COUNT(to, name, min) \
    TRY(take_count(&p->to, q->has_##name, q->name, min, INT_MAX, "sampling." #name, field, e))
    REAL(temperature, temperature, 0, 1000);
    COUNT(top_k, top_k, 0);
    REAL(top_p, top_p, 0, 1);
    REAL(min_p, min_p, 0, 1);
    REAL(repeat_penalty, repeat_penalty, 1e-6f, 1000);
    REAL(presence_penalty, presence_penalty, -1000, 1000);
    REAL(frequency_penalty, frequency_penalty, -1000, 1000);
    COUNT(penalty_last_n, repeat_last_n, -1);
#undef REAL
#undef COUNT
    s->spec.has_seed = q->has_seed;
    p->seed = q->seed;
    return take_biases(s, q, field, e);
}

/* ---- Stop strings ------------------------------------------------------- */

static enum err_code take_stops(struct server_submit *s, const Latentd__SubmitRequest *q,
                                const char **field, struct err *e)
{
    if (q->n_stop > REQUEST_STOPS_MAX) {
        *field = "stop";
        return err_set(e, ERR_USAGE, "stop: %zu strings; give at most %d", q->n_stop,
                       REQUEST_STOPS_MAX);
    }
    for (size_t i = 0; i < q->n_stop; i++) {
        s->stops[i] = (struct request_bytes){ q->stop[i], strlen(q->stop[i]) };
        if (!s->stops[i].len) {
            *field = "stop";
            return err_set(e, ERR_USAGE, "stop: string %zu is empty; leave it out", i);
        }
    }
    s->spec.stops = s->stops;
    s->spec.n_stops = (int)q->n_stop;
    return ERR_OK;
}

/* ---- The prompt --------------------------------------------------------- */

static enum err_code wrong_message(size_t i, const char *what, const char **field, struct err *e)
{
    *field = "chat.messages";
    return err_set(e, ERR_USAGE, "chat.messages: message %zu %s", i, what);
}

static enum err_code render_chat(struct server_submit *s, const Latentd__Chat *q,
                                 const struct service *v, struct chat_message *m,
                                 const char **field, struct err *e)
{
    const struct chat_options opt = { .thinking = q->has_thinking ? q->thinking : -1 };
    const struct chat_format *format;
    const char *name = q->format ? q->format : v->chat_format;

    *field = q->format ? "chat.format" : NULL;
    TRY(chat_format_choose(&format, v->gguf, name, e));
    for (size_t i = 0; i < q->n_messages; i++) {
        const Latentd__ChatMessage *from = q->messages[i];
        if (from->role < LATENTD__ROLE__ROLE_SYSTEM || from->role > LATENTD__ROLE__ROLE_ASSISTANT)
            return wrong_message(i, "has no role; give system, user or assistant", field, e);
        m[i] = (struct chat_message){ .role = (enum chat_role)(from->role - 1),
                                      .text = from->content.len ? (char *)from->content.data : "",
                                      .len = from->content.len };
        if (m[i].role == CHAT_ASSISTANT) { /* formats leave earlier reasoning out */
            size_t begin = chat_answer_begin(format, m[i].text, m[i].len);
            m[i].text += begin;
            m[i].len -= begin;
        }
    }
    *field = "chat.messages";
    TRY(chat_render(format, v->gguf, v->tokenizer, m, (int)q->n_messages, &opt, &s->prompt, e));
    s->end_id = chat_end_id(format, v->tokenizer);
    s->spec.end_ids = &s->end_id;
    s->spec.n_end_ids = s->end_id >= 0;
    return ERR_OK;
}

static enum err_code take_chat(struct server_submit *s, const Latentd__Chat *q,
                               const struct service *v, const char **field, struct err *e)
{
    if (!q->n_messages) {
        *field = "chat.messages";
        return err_set(e, ERR_USAGE, "chat.messages: there is none; give at least the user's");
    }
    struct chat_message *m = calloc(q->n_messages, sizeof *m);
    enum err_code rc =
        m ? render_chat(s, q, v, m, field, e) : err_set(e, ERR_NOMEM, "chat.messages: no memory");
    free(m);
    return rc;
}

static enum err_code take_tokens(struct server_submit *s, const Latentd__TokenList *q,
                                 const struct service *v, const char **field, struct err *e)
{
    for (size_t i = 0; i < q->n_ids; i++) {
        if (q->ids[i] < 0 || q->ids[i] >= tokenizer_size(v->tokenizer)) {
            *field = "tokens.ids";
            return err_set(e, ERR_USAGE, "tokens.ids: %d at %zu is no token; give 0 to %d",
                           q->ids[i], i, tokenizer_size(v->tokenizer) - 1);
        }
        token_list_push(&s->prompt, q->ids[i]);
    }
    return ERR_OK;
}

static enum err_code take_prompt(struct server_submit *s, const Latentd__SubmitRequest *q,
                                 const struct service *v, const char **field, struct err *e)
{
    unsigned flags = TOKENIZE_BOS | (q->parse_special ? TOKENIZE_SPECIAL : 0);

    if (!v->tokenizer)
        return err_set(e, ERR_FULL, "the model is not read yet; try again");
    switch (q->prompt_case) {
    case LATENTD__SUBMIT_REQUEST__PROMPT_TEXT:
        TRY(tokenizer_encode(v->tokenizer, (const char *)q->text.data, q->text.len, flags,
                             &s->prompt, e));
        break;
    case LATENTD__SUBMIT_REQUEST__PROMPT_TOKENS:
        TRY(take_tokens(s, q->tokens, v, field, e));
        break;
    case LATENTD__SUBMIT_REQUEST__PROMPT_CHAT:
        TRY(take_chat(s, q->chat, v, field, e));
        break;
    default:
        return err_set(e, ERR_USAGE, "prompt: missing; give text, tokens or chat");
    }
    if (s->prompt.failed)
        return err_set(e, ERR_NOMEM, "prompt: no memory");
    if (!s->prompt.n)
        return err_set(e, ERR_USAGE, "prompt: it is empty; give at least one token");
    s->spec.prompt = s->prompt.ids;
    s->spec.n_prompt = (int64_t)s->prompt.n;
    return ERR_OK;
}

/* ---- The whole ---------------------------------------------------------- */

enum err_code server_submit_read(struct server_submit *s, const Latentd__SubmitRequest *q,
                                 const struct service *service, const char **field, struct err *e)
{
    int priority = 0;

    *field = NULL;
    if (!q->id || !*q->id) {
        *field = "id";
        return err_set(e, ERR_USAGE, "id: missing; choose one, the same for every attempt");
    }
    if (q->has_max_tokens && !q->max_tokens) {
        *field = "max_tokens";
        return err_set(e, ERR_USAGE, "max_tokens 0: give at least 1, or leave it out");
    }
    TRY(take_count(&priority, q->has_priority, q->priority, -REQUEST_PRIORITY_MAX,
                   REQUEST_PRIORITY_MAX, "priority", field, e));
    s->spec = (struct request_spec){
        .id = q->id,
        .client = q->client ? q->client : "",
        .max_tokens = q->has_max_tokens ? (int64_t)q->max_tokens : -1,
        .priority = priority,
        .deadline_ms = q->deadline_ms,
        .ignore_eos = q->ignore_eos,
    };
    TRY(take_sampling(s, q->sampling, field, e));
    TRY(take_stops(s, q, field, e));
    return take_prompt(s, q, service, field, e);
}

void server_submit_free(struct server_submit *s)
{
    token_list_free(&s->prompt);
    free(s->bias);
    *s = (struct server_submit){ 0 };
}
