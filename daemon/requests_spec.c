/* SPDX-License-Identifier: MIT */
/* daemon/requests_spec.c - what a request asks for: checked, and as bytes for the journal. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "daemon/book.h"
#include "rank/wire_sampling.h"

enum { SPEC_VERSION = 1, BIAS_BYTES = 8 };

/* ---- Checking ------------------------------------------------------------- */

static enum err_code check_name(const char *what, const char *text, size_t min, size_t max,
                                struct err *e)
{
    size_t n = strnlen(text, max + 1);

    if (n < min || n > max)
        return err_set(e, ERR_USAGE, "%s: give %zu to %zu characters", what, min, max);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= 0x20 || text[i] >= 0x7f)
            return err_set(e, ERR_USAGE, "%s: byte %zu is no visible ASCII character", what, i);
    return ERR_OK;
}

static enum err_code check_range(const char *what, int64_t v, int64_t min, int64_t max,
                                 struct err *e)
{
    if (v >= min && v <= max)
        return ERR_OK;
    return err_set(e, ERR_USAGE, "%s: %" PRId64 "; give %" PRId64 " to %" PRId64, what, v, min,
                   max);
}

static enum err_code check_ids(const char *what, const int32_t *ids, int64_t n, int n_vocab,
                               struct err *e)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return err_set(e, ERR_USAGE, "%s: token %" PRId64 " is %d; the model has 0 to %d", what,
                           i, ids[i], n_vocab - 1);
    return ERR_OK;
}

static enum err_code check_stops(const struct request_spec *s, struct err *e)
{
    TRY(check_range("stop", s->n_stops, 0, REQUEST_STOPS_MAX, e));
    for (int i = 0; i < s->n_stops; i++) {
        const struct request_bytes *b = &s->stops[i];
        if (b->len < 1 || b->len > REQUEST_STOP_MAX)
            return err_set(e, ERR_USAGE, "stop %d: %zu bytes; give 1 to %d", i, b->len,
                           REQUEST_STOP_MAX);
        if (memchr(b->data, 0, b->len))
            return err_set(e, ERR_USAGE, "stop %d: has a NUL byte; leave it out", i);
        if (utf8_valid_prefix(b->data, b->len) != b->len)
            return err_set(e, ERR_USAGE, "stop %d: is not UTF-8 and could never be found", i);
    }
    return ERR_OK;
}

static enum err_code check_sampling(const struct request_spec *s, int n_vocab, struct err *e)
{
    TRY(check_range("sampling.bias", s->sampling.n_bias, 0, REQUEST_BIAS_MAX, e));
    for (int i = 0; i < s->sampling.n_bias; i++)
        TRY(check_range("sampling.bias: an id", s->sampling.bias[i].id, 0, n_vocab - 1, e));
    return sampling_check(&s->sampling, e);
}

enum err_code request_spec_check(const struct request_spec *s, int n_vocab, struct err *e)
{
    TRY(check_name("id", s->id, 1, REQUEST_ID_MAX, e));
    TRY(check_name("client", s->client, 0, REQUEST_CLIENT_MAX, e));
    if (s->n_prompt < 1)
        return err_set(e, ERR_USAGE, "prompt: has no tokens; give some text");
    TRY(check_ids("prompt", s->prompt, s->n_prompt, n_vocab, e));
    if (s->max_tokens != -1)
        TRY(check_range("max_tokens", s->max_tokens, 1, INT32_MAX, e));
    TRY(check_sampling(s, n_vocab, e));
    TRY(check_stops(s, e));
    TRY(check_range("priority", s->priority, -REQUEST_PRIORITY_MAX, REQUEST_PRIORITY_MAX, e));
    TRY(check_range("deadline_ms", s->deadline_ms, 0, REQUEST_DEADLINE_MAX_MS, e));
    TRY(check_range("end_ids", s->n_end_ids, 0, REQUEST_END_IDS_MAX, e));
    return check_ids("end_ids", s->end_ids, s->n_end_ids, n_vocab, e);
}

/* ---- To bytes ------------------------------------------------------------- */

static void put_ids(struct str *out, const int32_t *ids, int64_t n)
{
    wire_put_i32(out, (int32_t)n);
    for (int64_t i = 0; i < n; i++)
        wire_put_i32(out, ids[i]);
}

void request_spec_put(struct str *out, const struct request_spec *s, uint64_t seed)
{
    const struct sampling *p = &s->sampling;

    wire_put(out, SPEC_VERSION, 1);
    wire_put_text(out, s->client);
    wire_put_i64(out, s->max_tokens);
    wire_put_sampling(out, p);
    wire_put(out, s->has_seed != 0, 1);
    wire_put(out, s->has_seed ? p->seed : seed, 8);
    wire_put_i32(out, s->priority);
    wire_put_i64(out, s->deadline_ms);
    wire_put(out, s->ignore_eos != 0, 1);
    wire_put_i32(out, p->n_bias);
    for (int i = 0; i < p->n_bias; i++) {
        wire_put_i32(out, p->bias[i].id);
        wire_put_f32(out, p->bias[i].bias);
    }
    put_ids(out, s->end_ids, s->n_end_ids);
    put_ids(out, s->prompt, s->n_prompt);
    wire_put_i32(out, s->n_stops);
    for (int i = 0; i < s->n_stops; i++) {
        wire_put(out, s->stops[i].len, 2);
        str_append(out, s->stops[i].data, s->stops[i].len);
    }
}

/* ---- And back ------------------------------------------------------------- */

/* The arrays of a spec.  Behind them, in no more bytes than they had: biases, prompt, the text of
 * the stops. */
struct spec_memory {
    struct request_bytes stops[REQUEST_STOPS_MAX];
    int32_t end_ids[REQUEST_END_IDS_MAX];
    char client[REQUEST_CLIENT_MAX + 1];
};

static void get_scalars(struct request_spec *s, char *client, struct wire *w)
{
    struct sampling *p = &s->sampling;

    if (wire_get_u8(w) != SPEC_VERSION)
        w->failed = 1;
    wire_get_text(w, client, REQUEST_CLIENT_MAX + 1);
    s->max_tokens = wire_get_i64(w);
    wire_get_sampling(w, p);
    s->has_seed = wire_get_u8(w);
    p->seed = wire_get(w, 8);
    s->priority = wire_get_i32(w);
    s->deadline_ms = wire_get_i64(w);
    s->ignore_eos = wire_get_u8(w);
}

static const int32_t *get_ids(struct wire *w, int64_t max, int64_t *n, int32_t *to)
{
    *n = wire_get_count(w, max, sizeof *to);
    for (int64_t i = 0; i < *n; i++)
        to[i] = wire_get_i32(w);
    return to;
}

/* Copies the strings to `text`. */
static void get_stops(struct request_spec *s, struct wire *w, struct request_bytes *stops,
                      char *text)
{
    s->n_stops = (int)wire_get_count(w, REQUEST_STOPS_MAX, 2);
    s->stops = stops;
    for (int i = 0; i < s->n_stops; i++) {
        size_t len = wire_get(w, 2);
        const uint8_t *b = len <= REQUEST_STOP_MAX ? wire_take(w, len) : NULL;
        if (!b) {
            w->failed = 1;
            return;
        }
        memcpy(text, b, len);
        stops[i] = (struct request_bytes){ .data = text, .len = len };
        text += len;
    }
}

enum err_code request_spec_get(struct request_spec *s, char **memory, const void *bytes, size_t n,
                               struct err *e)
{
    struct wire w = wire_over(bytes, n);
    struct spec_memory *m = calloc(1, sizeof *m + n);
    int64_t count;

    *s = (struct request_spec){ 0 };
    if (!m)
        return err_set(e, ERR_NOMEM, "no memory for a request of %zu bytes", n);
    s->client = m->client;
    get_scalars(s, m->client, &w);
    s->sampling.n_bias = (int)wire_get_count(&w, REQUEST_BIAS_MAX, BIAS_BYTES);
    struct logit_bias *bias = (struct logit_bias *)(void *)(m + 1);
    for (int i = 0; i < s->sampling.n_bias; i++) {
        bias[i].id = wire_get_i32(&w);
        bias[i].bias = wire_get_f32(&w);
    }
    s->sampling.bias = bias;
    s->end_ids = get_ids(&w, REQUEST_END_IDS_MAX, &count, m->end_ids);
    s->n_end_ids = (int)count;
    int32_t *prompt = (int32_t *)(void *)(bias + s->sampling.n_bias);
    s->prompt = get_ids(&w, INT32_MAX, &s->n_prompt, prompt);
    get_stops(s, &w, m->stops, (char *)(prompt + s->n_prompt));
    if (w.failed || wire_left(&w)) {
        free(m);
        return err_set(e, ERR_FORMAT, "a request in the journal is malformed");
    }
    *memory = (char *)m;
    return ERR_OK;
}
