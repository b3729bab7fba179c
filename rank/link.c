/* SPDX-License-Identifier: MIT */
/* rank/link.c - see link.h.  Frames first, then each kind, writing beside reading. */
#include "rank/link.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "rank/wire_sampling.h"

enum { HEAD_BYTES = 5, BIAS_BYTES = 8, SAMPLE_BYTES = 20, BAD_BYTES = 16 };
enum { RANK_BYTES = 22 + 8 * COMM_FIGURES }; /* at least */

/* ---- Frames --------------------------------------------------------------- */

/* Writes both pieces whole. */
static enum err_code send_all(int fd, struct iovec v[2], struct err *e)
{
    struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

    while (m.msg_iovlen > 0) {
        ssize_t n = sendmsg(fd, &m, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, "link: cannot send");
        for (size_t sent = (size_t)n; m.msg_iovlen > 0; m.msg_iov++, m.msg_iovlen--) {
            if (sent < m.msg_iov->iov_len) {
                m.msg_iov->iov_base = (char *)m.msg_iov->iov_base + sent;
                m.msg_iov->iov_len -= sent;
                break;
            }
            sent -= m.msg_iov->iov_len;
        }
    }
    return ERR_OK;
}

enum err_code link_send(int fd, enum link_kind kind, const void *payload, size_t n, struct err *e)
{
    uint8_t head[HEAD_BYTES] = { (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16),
                                 (uint8_t)(n >> 24), (uint8_t)kind };
    struct iovec v[2] = {
        {.iov_base = head,             .iov_len = sizeof head},
        { .iov_base = (void *)payload, .iov_len = n          }
    };

    if (n > LINK_MAX_FRAME)
        return err_set(e, ERR_FORMAT, "link: a frame of %zu bytes is above the limit of %d", n,
                       LINK_MAX_FRAME);
    return send_all(fd, v, e);
}

static enum err_code recv_all(int fd, void *to, size_t n, struct err *e)
{
    for (size_t have = 0; have < n;) {
        ssize_t got = recv(fd, (char *)to + have, n - have, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(e, "link: cannot receive");
        if (got == 0)
            return err_set(e, ERR_IO, "link: the other side has closed it");
        have += (size_t)got;
    }
    return ERR_OK;
}

enum err_code link_recv(int fd, struct link_frame *f, struct err *e)
{
    uint8_t head[HEAD_BYTES];

    *f = (struct link_frame){ 0 };
    TRY(recv_all(fd, head, sizeof head, e));
    struct wire w = wire_over(head, sizeof head);
    size_t n = wire_get(&w, 4);
    if (n > LINK_MAX_FRAME)
        return err_set(e, ERR_FORMAT, "link: a frame of %zu bytes is above the limit of %d", n,
                       LINK_MAX_FRAME);
    uint8_t *payload = malloc(n + 1);
    if (!payload)
        return err_set(e, ERR_NOMEM, "no memory for a frame of %zu bytes", n);
    enum err_code rc = recv_all(fd, payload, n, e);
    if (rc != ERR_OK) {
        free(payload);
        return rc;
    }
    *f = (struct link_frame){ .kind = head[4], .payload = payload, .n = n };
    return ERR_OK;
}

int link_is_whole(const uint8_t *bytes, size_t n, size_t max)
{
    struct wire w = wire_over(bytes, n);
    size_t payload = wire_get(&w, 4);

    if (w.failed)
        return 0;
    return payload > max - HEAD_BYTES ? -1 : n >= HEAD_BYTES + payload;
}

/* ---- What the kinds share ------------------------------------------------- */

static enum err_code done(const struct str *out, const char *what, struct err *e)
{
    return out->failed ? err_set(e, ERR_NOMEM, "no memory for a %s frame", what) : ERR_OK;
}

static enum err_code start(struct wire *w, const struct link_frame *f, enum link_kind kind,
                           const char *what, struct err *e)
{
    *w = wire_over(f->payload, f->n);
    return f->kind == kind
               ? ERR_OK
               : err_set(e, ERR_FORMAT, "link: a frame of kind %d where %s was expected", f->kind,
                         what);
}

static enum err_code finish(const struct wire *w, const char *what, struct err *e)
{
    if (w->failed || wire_left(w))
        return err_set(e, ERR_FORMAT, "link: a %s frame is malformed", what);
    return ERR_OK;
}

/* ---- HELLO, PLAN, RANKS, READY --------------------------------------------- */

enum err_code link_put_hello(struct str *out, const struct link_hello *h, struct err *e)
{
    wire_put(out, h->version, 4);
    wire_put_i64(out, h->pid);
    wire_put_text(out, h->token);
    return done(out, "HELLO", e);
}

enum err_code link_get_hello(struct link_hello *h, const struct link_frame *f, struct err *e)
{
    struct wire w;

    TRY(start(&w, f, LINK_HELLO, "HELLO", e));
    h->version = (uint32_t)wire_get(&w, 4);
    h->pid = wire_get_i64(&w);
    wire_get_text(&w, h->token, sizeof h->token);
    return finish(&w, "HELLO", e);
}

enum err_code link_put_plan(struct str *out, const struct link_plan *p, struct err *e)
{
    for (int i = 0; i < LINK_PLAN_TEXTS; i++) {
        wire_put_i32(out, (int32_t)p->text[i].len);
        str_append(out, p->text[i].data ? p->text[i].data : "", p->text[i].len);
    }
    return done(out, "PLAN", e);
}

enum err_code link_get_plan(struct link_plan *p, const struct link_frame *f, struct err *e)
{
    enum err_code rc;
    struct wire w;

    *p = (struct link_plan){ 0 };
    TRY(start(&w, f, LINK_PLAN, "PLAN", e));
    for (int i = 0; i < LINK_PLAN_TEXTS; i++) {
        size_t n = (size_t)wire_get_count(&w, LINK_MAX_FRAME, 1);
        const uint8_t *bytes = wire_take(&w, n);
        if (bytes)
            str_append(&p->text[i], (const char *)bytes, n);
        w.failed |= p->text[i].failed;
    }
    if ((rc = finish(&w, "PLAN", e)) != ERR_OK)
        link_plan_free(p);
    return rc;
}

void link_plan_free(struct link_plan *p)
{
    for (int i = 0; i < LINK_PLAN_TEXTS; i++)
        str_free(&p->text[i]);
}

enum err_code link_put_ranks(struct str *out, const struct link_ranks *r, struct err *e)
{
    wire_put_i32(out, r->n);
    for (int i = 0; i < r->n; i++) {
        const struct link_rank *x = &r->v[i];
        wire_put_text(out, x->host);
        wire_put_text(out, x->device);
        wire_put_i32(out, x->n_threads);
        wire_put_i64(out, x->weights_bytes);
        wire_put_i64(out, x->cache_bytes);
        for (int f = 0; f < COMM_FIGURES; f++)
            wire_put_i64(out, x->figures[f]);
    }
    return done(out, "RANKS", e);
}

/* Returns whether it makes sense. */
static int get_rank(struct link_rank *x, struct wire *w)
{
    int64_t least = 0;

    wire_get_text(w, x->host, sizeof x->host);
    wire_get_text(w, x->device, sizeof x->device);
    x->n_threads = wire_get_i32(w);
    x->weights_bytes = wire_get_i64(w);
    x->cache_bytes = wire_get_i64(w);
    for (int f = 0; f < COMM_FIGURES; f++) {
        x->figures[f] = wire_get_i64(w);
        least = x->figures[f] < least ? x->figures[f] : least;
    }
    return least >= 0 && x->n_threads >= 0 && x->weights_bytes >= 0 && x->cache_bytes >= 0;
}

enum err_code link_get_ranks(struct link_ranks *r, const struct link_frame *f, struct err *e)
{
    enum err_code rc = ERR_OK;
    struct wire w;

    *r = (struct link_ranks){ 0 };
    TRY(start(&w, f, LINK_RANKS, "RANKS", e));
    int n = (int)wire_get_count(&w, LINK_MAX_RANKS, RANK_BYTES);
    struct link_rank *v = calloc((size_t)n + 1, sizeof *v);
    if (!v)
        return err_set(e, ERR_NOMEM, "no memory for %d ranks", n);
    for (int i = 0; i < n && rc == ERR_OK; i++)
        if (!get_rank(&v[i], &w))
            rc = err_set(e, ERR_FORMAT, "link: a RANKS frame makes no sense");
    if (rc == ERR_OK)
        rc = n < 1 ? err_set(e, ERR_FORMAT, "link: a RANKS frame of no ranks")
                   : finish(&w, "RANKS", e);
    *r = (struct link_ranks){ .n = n, .v = v };
    if (rc != ERR_OK)
        link_ranks_free(r);
    return rc;
}

void link_ranks_free(struct link_ranks *r)
{
    free(r->v);
    *r = (struct link_ranks){ 0 };
}

enum err_code link_put_ready(struct str *out, const struct link_ready *r, struct err *e)
{
    wire_put_i32(out, r->limits.n_vocab);
    wire_put_i32(out, r->limits.n_sequences);
    wire_put_i32(out, r->limits.n_pages);
    wire_put_i32(out, r->limits.max_batch);
    wire_put_i64(out, r->limits.n_context);
    wire_put_i32(out, r->n_ranks);
    wire_put_text(out, r->model_hash);
    wire_put_text(out, r->kernel_set);
    wire_put_text(out, r->cache_type);
    wire_put_i32(out, r->mla);
    wire_put_i32(out, r->exact_math);
    return done(out, "READY", e);
}

enum err_code link_get_ready(struct link_ready *r, const struct link_frame *f, struct err *e)
{
    struct wire w;

    TRY(start(&w, f, LINK_READY, "READY", e));
    r->limits.n_vocab = wire_get_i32(&w);
    r->limits.n_sequences = wire_get_i32(&w);
    r->limits.n_pages = wire_get_i32(&w);
    r->limits.max_batch = wire_get_i32(&w);
    r->limits.n_context = wire_get_i64(&w);
    r->n_ranks = wire_get_i32(&w);
    wire_get_text(&w, r->model_hash, sizeof r->model_hash);
    wire_get_text(&w, r->kernel_set, sizeof r->kernel_set);
    wire_get_text(&w, r->cache_type, sizeof r->cache_type);
    r->mla = wire_get_i32(&w);
    r->exact_math = wire_get_i32(&w);
    TRY(finish(&w, "READY", e));
    const struct step_limits *l = &r->limits;
    if (l->n_vocab < 1 || l->n_sequences < 1 || l->n_pages < 1 || l->max_batch < 1 ||
        l->n_context < 1 || r->n_ranks < 1 || r->mla < 0 || r->mla > 3)
        return err_set(e, ERR_FORMAT, "link: a READY frame makes no sense");
    return ERR_OK;
}

/* ---- BEGIN ---------------------------------------------------------------- */

static void put_sampling(struct str *out, const struct sampling *s)
{
    wire_put_sampling(out, s);
    wire_put(out, s->seed, 8);
    wire_put_i32(out, s->n_bias);
    for (int i = 0; i < s->n_bias; i++) {
        wire_put_i32(out, s->bias[i].id);
        wire_put_f32(out, s->bias[i].bias);
    }
}

static enum err_code get_sampling(struct sampling *s, struct wire *w, const struct step_limits *l,
                                  struct err *e)
{
    wire_get_sampling(w, s);
    s->seed = wire_get(w, 8);
    s->n_bias = (int)wire_get_count(w, l->n_vocab, BIAS_BYTES);
    if (w->failed)
        return err_set(e, ERR_FORMAT, "link: the sampling of a BEGIN frame is malformed");
    if (s->n_bias == 0)
        return ERR_OK;
    struct logit_bias *bias = calloc((size_t)s->n_bias, sizeof *bias);
    if (!bias)
        return err_set(e, ERR_NOMEM, "no memory for %d biases", s->n_bias);
    s->bias = bias;
    for (int i = 0; i < s->n_bias; i++) {
        bias[i].id = wire_get_i32(w);
        bias[i].bias = wire_get_f32(w);
    }
    return ERR_OK;
}

enum err_code link_put_begin(struct str *out, const struct link_begin *b, struct err *e)
{
    wire_put_i32(out, b->seq);
    put_sampling(out, &b->sampling);
    wire_put_i32(out, (int32_t)b->n_history);
    for (int64_t i = 0; i < b->n_history; i++)
        wire_put_i32(out, b->history[i]);
    return done(out, "BEGIN", e);
}

static enum err_code get_begin(struct link_begin *b, struct wire *w, const struct step_limits *l,
                               struct err *e)
{
    b->seq = wire_get_i32(w);
    if (b->seq < 0 || b->seq >= l->n_sequences)
        return err_set(e, ERR_FORMAT, "link: BEGIN of sequence %d, and there are %d", b->seq,
                       l->n_sequences);
    TRY(get_sampling(&b->sampling, w, l, e));
    b->n_history = wire_get_count(w, l->n_context, sizeof(int32_t));
    b->history = calloc((size_t)b->n_history + 1, sizeof *b->history);
    if (!b->history)
        return err_set(e, ERR_NOMEM, "no memory for a history of %" PRId64 " tokens", b->n_history);
    for (int64_t i = 0; i < b->n_history; i++) {
        b->history[i] = wire_get_i32(w);
        if (b->history[i] < 0 || b->history[i] >= l->n_vocab)
            return err_set(e, ERR_FORMAT, "link: BEGIN with token %d", b->history[i]);
    }
    TRY(finish(w, "BEGIN", e));
    return sampling_check(&b->sampling, e);
}

enum err_code link_get_begin(struct link_begin *b, const struct link_frame *f,
                             const struct step_limits *l, struct err *e)
{
    struct wire w;

    *b = (struct link_begin){ 0 };
    TRY(start(&w, f, LINK_BEGIN, "BEGIN", e));
    enum err_code rc = get_begin(b, &w, l, e);
    if (rc != ERR_OK)
        link_begin_free(b);
    return rc;
}

void link_begin_free(struct link_begin *b)
{
    free((void *)b->sampling.bias);
    free(b->history);
    *b = (struct link_begin){ 0 };
}

/* ---- RESULT --------------------------------------------------------------- */

enum err_code link_put_result(struct str *out, const struct link_result *r, struct err *e)
{
    wire_put_i64(out, r->step);
    wire_put_f64(out, r->step_us);
    wire_put_f64(out, r->sum_us);
    wire_put_i32(out, r->n_samples);
    for (int i = 0; i < r->n_samples; i++) {
        wire_put_i32(out, r->samples[i].seq);
        wire_put_i64(out, r->samples[i].pos);
        wire_put_i32(out, r->samples[i].token);
        wire_put_i32(out, r->samples[i].bad_layer);
    }
    wire_put_i32(out, r->n_bad);
    for (int i = 0; i < r->n_bad; i++) {
        wire_put_i32(out, r->bad[i].seq);
        wire_put_i64(out, r->bad[i].pos);
        wire_put_i32(out, r->bad[i].bad_layer);
    }
    return done(out, "RESULT", e);
}

static enum err_code bad_result(struct err *e)
{
    return err_set(e, ERR_FORMAT, "link: a RESULT frame goes beyond the limits of the group");
}

static enum err_code get_samples(struct link_result *r, struct wire *w, const struct step_limits *l,
                                 struct err *e)
{
    r->n_samples = (int)wire_get_count(w, l->max_batch, SAMPLE_BYTES);
    r->samples = calloc((size_t)r->n_samples + 1, sizeof *r->samples);
    if (!r->samples)
        return err_set(e, ERR_NOMEM, "no memory for %d samples", r->n_samples);
    for (int i = 0; i < r->n_samples; i++) {
        struct link_sample *s = &r->samples[i];
        s->seq = wire_get_i32(w);
        s->pos = wire_get_i64(w);
        s->token = wire_get_i32(w);
        s->bad_layer = wire_get_i32(w);
        int token_ok = s->bad_layer ? s->token == -1 : s->token >= 0 && s->token < l->n_vocab;
        if (s->seq < 0 || s->seq >= l->n_sequences || s->pos < 1 || s->pos > l->n_context ||
            s->bad_layer < 0 || !token_ok)
            return bad_result(e);
    }
    return ERR_OK;
}

static enum err_code get_bad(struct link_result *r, struct wire *w, const struct step_limits *l,
                             struct err *e)
{
    r->n_bad = (int)wire_get_count(w, l->max_batch, BAD_BYTES);
    r->bad = calloc((size_t)r->n_bad + 1, sizeof *r->bad);
    if (!r->bad)
        return err_set(e, ERR_NOMEM, "no memory for %d failures", r->n_bad);
    for (int i = 0; i < r->n_bad; i++) {
        struct link_bad *b = &r->bad[i];
        b->seq = wire_get_i32(w);
        b->pos = wire_get_i64(w);
        b->bad_layer = wire_get_i32(w);
        if (b->seq < 0 || b->seq >= l->n_sequences || b->pos < 0 || b->pos >= l->n_context ||
            b->bad_layer < 1)
            return bad_result(e);
    }
    return ERR_OK;
}

enum err_code link_get_result(struct link_result *r, const struct link_frame *f,
                              const struct step_limits *l, struct err *e)
{
    struct wire w;
    enum err_code rc;

    *r = (struct link_result){ 0 };
    TRY(start(&w, f, LINK_RESULT, "RESULT", e));
    r->step = wire_get_i64(&w);
    r->step_us = wire_get_f64(&w);
    r->sum_us = wire_get_f64(&w);
    if ((rc = get_samples(r, &w, l, e)) != ERR_OK || (rc = get_bad(r, &w, l, e)) != ERR_OK ||
        (rc = finish(&w, "RESULT", e)) != ERR_OK)
        link_result_free(r);
    return rc;
}

void link_result_free(struct link_result *r)
{
    free(r->samples);
    free(r->bad);
    *r = (struct link_result){ 0 };
}
