/* SPDX-License-Identifier: MIT */
/* proto/client_requests.c - liblatent's requests and streams. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "proto/client_parts.h"

/* ---- Submit ------------------------------------------------------------- */

void latent_request_init(struct latent_request *r)
{
    *r = (struct latent_request){
        .thinking = -1,
        .max_tokens = -1,
        .temperature = NAN,
        .top_p = NAN,
        .min_p = NAN,
        .repeat_penalty = NAN,
        .presence_penalty = NAN,
        .frequency_penalty = NAN,
        .top_k = -1,
        .repeat_last_n = -2,
    };
}

enum latent_code latent_new_id(char id[LATENT_ID_SIZE], struct latent_error *e)
{
    unsigned char random[32];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return client_fail(e, LATENT_INTERNAL, "no random numbers for an id; choose one");
    for (size_t i = 0; i < sizeof random; i++)
        id[i] = "abcdefghijkmnpqrstuvwxyz23456789"[random[i] % 32];
    id[sizeof random] = '\0';
    return LATENT_OK;
}

/* What a submit consists of, all in one place. */
struct submit {
    Latentd__SubmitRequest q;
    Latentd__Sampling sampling;
    Latentd__TokenList tokens;
    Latentd__Chat chat;
    Latentd__ChatMessage *messages, **message_list;
    Latentd__LogitBias *biases, **bias_list;
};

static ProtobufCBinaryData data_of(const char *text, size_t len)
{
    return (ProtobufCBinaryData){ len, (uint8_t *)text };
}

static void fill_sampling(struct submit *s, const struct latent_request *r)
{
    Latentd__Sampling *p = &s->sampling;

    latentd__sampling__init(p);
    s->q.sampling = p;
#define REAL(name) (p->has_##name = !isnan(r->name), p->name = (float)r->name)
    REAL(temperature);
    REAL(top_p);
    REAL(min_p);
    REAL(repeat_penalty);
    REAL(presence_penalty);
    REAL(frequency_penalty);
#undef REAL
    p->has_top_k = r->top_k >= 0;
    p->top_k = (uint32_t)r->top_k;
    p->has_repeat_last_n = r->repeat_last_n >= -1;
    p->repeat_last_n = (int32_t)r->repeat_last_n;
    p->has_seed = r->has_seed != 0;
    p->seed = r->seed;
    for (size_t i = 0; i < r->n_bias; i++) {
        latentd__logit_bias__init(&s->biases[i]);
        s->biases[i].has_id = s->biases[i].has_bias = 1;
        s->biases[i].id = r->bias[i].id;
        s->biases[i].bias = r->bias[i].bias;
        s->bias_list[i] = &s->biases[i];
    }
    p->bias = s->bias_list;
    p->n_bias = r->n_bias;
}

static void fill_chat(struct submit *s, const struct latent_request *r)
{
    for (size_t i = 0; i < r->n_messages; i++) {
        Latentd__ChatMessage *m = &s->messages[i];
        latentd__chat_message__init(m);
        m->has_role = m->has_content = 1;
        m->role = (Latentd__Role)r->messages[i].role;
        m->content = data_of(r->messages[i].text, r->messages[i].len);
        s->message_list[i] = m;
    }
    latentd__chat__init(&s->chat);
    s->chat.messages = s->message_list;
    s->chat.n_messages = r->n_messages;
    s->chat.has_thinking = r->thinking >= 0;
    s->chat.thinking = r->thinking > 0;
    s->chat.format = (char *)r->chat_format;
    s->q.prompt_case = LATENTD__SUBMIT_REQUEST__PROMPT_CHAT;
    s->q.chat = &s->chat;
}

static void fill_prompt(struct submit *s, const struct latent_request *r)
{
    if (r->messages) {
        fill_chat(s, r);
    } else if (r->tokens) {
        latentd__token_list__init(&s->tokens);
        s->tokens.ids = (int32_t *)r->tokens;
        s->tokens.n_ids = r->n_tokens;
        s->q.prompt_case = LATENTD__SUBMIT_REQUEST__PROMPT_TOKENS;
        s->q.tokens = &s->tokens;
    } else if (r->text) {
        s->q.prompt_case = LATENTD__SUBMIT_REQUEST__PROMPT_TEXT;
        s->q.text = data_of(r->text, r->text_len);
    }
}

static void fill_submit(struct submit *s, const struct latent_request *r)
{
    latentd__submit_request__init(&s->q);
    s->q.id = (char *)r->id;
    s->q.client = (char *)r->client;
    s->q.has_parse_special = s->q.parse_special = r->parse_special != 0;
    s->q.has_max_tokens = r->max_tokens >= 0;
    s->q.max_tokens = (uint32_t)r->max_tokens;
    s->q.stop = (char **)r->stops;
    s->q.n_stop = r->n_stops;
    s->q.has_ignore_eos = s->q.ignore_eos = r->ignore_eos != 0;
    s->q.has_priority = r->priority != 0;
    s->q.priority = r->priority;
    s->q.has_deadline_ms = r->deadline_ms != 0;
    s->q.deadline_ms = r->deadline_ms;
    fill_sampling(s, r);
    fill_prompt(s, r);
}

static int allocate(struct submit *s, const struct latent_request *r)
{
    s->messages = calloc(r->n_messages + 1, sizeof *s->messages);
    s->message_list = calloc(r->n_messages + 1, sizeof(Latentd__ChatMessage *));
    s->biases = calloc(r->n_bias + 1, sizeof *s->biases);
    s->bias_list = calloc(r->n_bias + 1, sizeof(Latentd__LogitBias *));
    return s->messages && s->message_list && s->biases && s->bias_list;
}

static enum latent_code check_request(const struct latent_request *r, struct latent_error *e)
{
    int forms = (r->messages != NULL) + (r->tokens != NULL) + (r->text != NULL);

    if (!r->id || !*r->id)
        return client_fail(e, LATENT_USAGE, "id: missing; latent_new_id makes one");
    if (forms != 1)
        return client_fail(e, LATENT_USAGE, "prompt: give one of text, tokens and messages");
    if (r->max_tokens < -1 || r->top_k < -1 || r->repeat_last_n < -2)
        return client_fail(
            e, LATENT_USAGE,
            "max_tokens, top_k or repeat_last_n: negative, and not one of the values "
            "with a meaning");
    if (r->max_tokens > UINT32_MAX || r->top_k > UINT32_MAX || r->repeat_last_n > INT32_MAX)
        return client_fail(e, LATENT_USAGE,
                           "max_tokens, top_k or repeat_last_n: too large to be sent");
    return LATENT_OK;
}

enum latent_code latent_submit(struct latent *c, const struct latent_request *r,
                               struct latent_accepted *out, struct latent_error *e)
{
    struct submit s = { 0 };
    Latentd__Envelope q;
    enum latent_code rc = check_request(r, e);

    if (rc != LATENT_OK)
        return rc;
    if (allocate(&s, r)) {
        fill_submit(&s, r);
        client_question(c, &q, LATENTD__METHOD__METHOD_SUBMIT);
        q.body_case = LATENTD__ENVELOPE__BODY_SUBMIT;
        q.submit = &s.q;
        rc = client_ask(c, &q, LATENTD__ENVELOPE__BODY_SUBMIT_REPLY, e);
    } else {
        rc = client_fail(e, LATENT_NO_MEMORY, "submit: no memory");
    }
    free(s.messages);
    free(s.message_list);
    free(s.biases);
    free(s.bias_list);
    if (rc == LATENT_OK && out) {
        out->prompt_tokens = c->answer->submit_reply->prompt_tokens;
        out->seed = c->answer->submit_reply->seed;
    }
    return rc;
}

/* ---- Streams ------------------------------------------------------------ */

enum latent_code latent_cancel(struct latent *c, const char *id, struct latent_error *e)
{
    Latentd__Envelope q;
    Latentd__CancelRequest r = LATENTD__CANCEL_REQUEST__INIT;

    client_question(c, &q, LATENTD__METHOD__METHOD_CANCEL);
    r.id = (char *)id;
    q.body_case = LATENTD__ENVELOPE__BODY_CANCEL;
    q.cancel = &r;
    return client_ask(c, &q, LATENTD__ENVELOPE__BODY_CANCEL_REPLY, e);
}

void latent_stream_init(struct latent_stream *s, const char *id, uint64_t cursor)
{
    *s = (struct latent_stream){ .cursor = cursor, .wait_ms = PROTO_WAIT_MAX_MS };
    snprintf(s->id, sizeof s->id, "%s", id);
}

static void read_chunk(struct latent_chunk *out, const Latentd__NextReply *r)
{
    *out = (struct latent_chunk){
        .tokens = r->tokens,
        .n_tokens = r->n_tokens,
        .text = r->text.len ? (const char *)r->text.data : "",
        .text_len = r->text.len,
        .state = (enum latent_state)r->state,
        .queue_place = r->queue_place,
        .message = "",
    };
    if (!r->end)
        return;
    out->ended = 1;
    out->reason = (enum latent_reason)r->end->reason;
    out->message = client_text(r->end->message);
    out->prompt_tokens = r->end->prompt_tokens;
    out->cached_tokens = r->end->cached_tokens;
    out->produced_tokens = r->end->produced_tokens;
    out->accepted_ms = r->end->accepted_ms;
    out->first_token_ms = r->end->first_token_ms;
    out->ended_ms = r->end->ended_ms;
}

/* The cursor may only move by what is in the answer: anything else would lose or repeat text.  The
 * end comes again to those who have read it already. */
static enum latent_code check_chunk(const struct latent *c, const struct latent_stream *s,
                                    const Latentd__NextReply *r, struct latent_error *e)
{
    if (r->end && r->cursor == s->cursor && !r->n_tokens)
        return LATENT_OK;
    if (r->cursor < s->cursor || r->cursor - s->cursor != r->n_tokens + (r->end != NULL))
        return client_fail(e, LATENT_PROTOCOL, "%s: events %llu to %llu, but %zu came", c->endpoint,
                           (unsigned long long)s->cursor, (unsigned long long)r->cursor,
                           r->n_tokens + (r->end != NULL));
    return LATENT_OK;
}

enum latent_code latent_next(struct latent *c, struct latent_stream *s, struct latent_chunk *out,
                             struct latent_error *e)
{
    Latentd__Envelope q;
    Latentd__NextRequest r = LATENTD__NEXT_REQUEST__INIT;

    client_question(c, &q, LATENTD__METHOD__METHOD_NEXT);
    r.id = s->id;
    r.has_cursor = r.has_wait_ms = 1;
    r.cursor = s->cursor;
    r.wait_ms = s->wait_ms;
    q.body_case = LATENTD__ENVELOPE__BODY_NEXT;
    q.next = &r;
    enum latent_code rc = client_ask(c, &q, LATENTD__ENVELOPE__BODY_NEXT_REPLY, e);
    if (rc == LATENT_OK)
        rc = check_chunk(c, s, c->answer->next_reply, e);
    if (rc != LATENT_OK)
        return rc;
    read_chunk(out, c->answer->next_reply);
    s->cursor = c->answer->next_reply->cursor;
    return LATENT_OK;
}

enum latent_code latent_follow(struct latent *c, struct latent_stream *s,
                               int (*fn)(void *arg, const struct latent_chunk *chunk), void *arg,
                               struct latent_error *e)
{
    for (;;) {
        struct latent_chunk chunk;
        enum latent_code rc = latent_next(c, s, &chunk, e);

        if (rc != LATENT_OK)
            return rc;
        if ((chunk.n_tokens || chunk.ended) && fn(arg, &chunk))
            return client_fail(e, LATENT_STOPPED, "%s: no longer read", s->id);
        if (chunk.ended)
            return LATENT_OK;
        /* Tokens that come faster than a call counts as waiting would never let it ask. */
        if (client_is_over(c))
            return client_fail(e, LATENT_STOPPED, "%s: no longer waited for", s->id);
    }
}

const char *latent_reason_name(enum latent_reason r)
{
    static const char *const names[] = { "",         "stop",          "length", "cancelled",
                                         "deadline", "numeric_error", "failed" };

    return (unsigned)r < sizeof names / sizeof *names ? names[r] : "unknown";
}

const char *latent_state_name(enum latent_state s)
{
    static const char *const names[] = { "", "waiting", "running", "ended" };

    return (unsigned)s < sizeof names / sizeof *names ? names[s] : "unknown";
}
