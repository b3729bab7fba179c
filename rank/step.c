/* SPDX-License-Identifier: MIT */
/* rank/step.c - see step.h.
 *
 * The bytes: id i64, then each list as count i32 and its items, in the order of struct step.  A
 * token is id, seq i32, pos i64, and one byte of flags.
 */
#include "rank/step.h"

#include <inttypes.h>
#include <stdlib.h>

#include "rank/wire.h"

enum { PAGE = 64 };
enum { FLAG_ABSORBED = 1, FLAG_PRODUCED = 2, FLAG_WANTED = 4, FLAG_SAMPLED = 8 };
enum { RESET_BYTES = 4, MAP_BYTES = 12, ZERO_BYTES = 4, COPY_BYTES = 8, TOKEN_BYTES = 17 };

/* ---- Encoding ------------------------------------------------------------- */

enum err_code step_encode(const struct step *s, struct str *out, struct err *e)
{
    wire_put_i64(out, s->id);
    wire_put_i32(out, s->n_resets);
    for (int i = 0; i < s->n_resets; i++)
        wire_put_i32(out, s->resets[i].seq);
    wire_put_i32(out, s->n_maps);
    for (int i = 0; i < s->n_maps; i++) {
        wire_put_i32(out, s->maps[i].seq);
        wire_put_i32(out, s->maps[i].index);
        wire_put_i32(out, s->maps[i].page);
    }
    wire_put_i32(out, s->n_zeros);
    for (int i = 0; i < s->n_zeros; i++)
        wire_put_i32(out, s->zeros[i].page);
    wire_put_i32(out, s->n_copies);
    for (int i = 0; i < s->n_copies; i++) {
        wire_put_i32(out, s->copies[i].from);
        wire_put_i32(out, s->copies[i].to);
    }
    wire_put_i32(out, s->batch.n);
    for (int i = 0; i < s->batch.n; i++) {
        const struct batch_token *t = &s->batch.tokens[i];
        wire_put_i32(out, t->id);
        wire_put_i32(out, t->seq);
        wire_put_i64(out, t->pos);
        wire_put(out,
                 (t->form == MLA_ABSORBED ? FLAG_ABSORBED : 0) | (t->produced ? FLAG_PRODUCED : 0) |
                     (t->want_logits ? FLAG_WANTED : 0) | (t->sampled ? FLAG_SAMPLED : 0),
                 1);
    }
    return out->failed ? err_set(e, ERR_NOMEM, "no memory for a step of %d tokens", s->batch.n)
                       : ERR_OK;
}

/* ---- Decoding ------------------------------------------------------------- */

/* A list of at most `max` items; calloc of one more, so that an empty list is no NULL. */
static enum err_code get_list(struct wire *w, const char *what, int64_t max, size_t item_bytes,
                              size_t item_size, int *n, void *list, struct err *e)
{
    int64_t count = wire_get_count(w, max, item_bytes);

    if (w->failed)
        return err_set(e, ERR_FORMAT,
                       "step: %s: the count is not from 0 to %" PRId64 ", or more than follows",
                       what, max);
    void *items = calloc((size_t)count + 1, item_size);
    if (!items)
        return err_set(e, ERR_NOMEM, "no memory for %" PRId64 " %s of a step", count, what);
    memcpy(list, &items, sizeof items);
    *n = (int)count;
    return ERR_OK;
}

static enum err_code check(int64_t v, int64_t limit, const char *what, struct err *e)
{
    if (v >= 0 && v < limit)
        return ERR_OK;
    return err_set(e, ERR_FORMAT, "step: %s %" PRId64 " is not from 0 to %" PRId64, what, v,
                   limit - 1);
}

static enum err_code get_resets(struct step *s, struct wire *w, const struct step_limits *l,
                                struct err *e)
{
    TRY(get_list(w, "resets", l->n_sequences, RESET_BYTES, sizeof *s->resets, &s->n_resets,
                 &s->resets, e));
    for (int i = 0; i < s->n_resets; i++) {
        s->resets[i].seq = wire_get_i32(w);
        TRY(check(s->resets[i].seq, l->n_sequences, "reset of sequence", e));
    }
    return ERR_OK;
}

/* Pages of one sequence. */
static int64_t sequence_pages(const struct step_limits *l)
{
    return l->n_context / PAGE + (l->n_context % PAGE != 0);
}

static enum err_code get_maps(struct step *s, struct wire *w, const struct step_limits *l,
                              struct err *e)
{
    TRY(get_list(w, "maps", INT32_MAX / MAP_BYTES, MAP_BYTES, sizeof *s->maps, &s->n_maps, &s->maps,
                 e));
    for (int i = 0; i < s->n_maps; i++) {
        struct step_map *m = &s->maps[i];
        m->seq = wire_get_i32(w);
        m->index = wire_get_i32(w);
        m->page = wire_get_i32(w);
        TRY(check(m->seq, l->n_sequences, "map of sequence", e));
        TRY(check(m->index, sequence_pages(l), "map of index", e));
        TRY(check(m->page, l->n_pages, "map to page", e));
    }
    return ERR_OK;
}

static enum err_code get_zeros(struct step *s, struct wire *w, const struct step_limits *l,
                               struct err *e)
{
    TRY(get_list(w, "zeros", l->n_pages, ZERO_BYTES, sizeof *s->zeros, &s->n_zeros, &s->zeros, e));
    for (int i = 0; i < s->n_zeros; i++) {
        s->zeros[i].page = wire_get_i32(w);
        TRY(check(s->zeros[i].page, l->n_pages, "zeros for page", e));
    }
    return ERR_OK;
}

static enum err_code get_copies(struct step *s, struct wire *w, const struct step_limits *l,
                                struct err *e)
{
    TRY(get_list(w, "copies", l->n_pages, COPY_BYTES, sizeof *s->copies, &s->n_copies, &s->copies,
                 e));
    for (int i = 0; i < s->n_copies; i++) {
        s->copies[i].from = wire_get_i32(w);
        s->copies[i].to = wire_get_i32(w);
        TRY(check(s->copies[i].from, l->n_pages, "copy of page", e));
        TRY(check(s->copies[i].to, l->n_pages, "copy to page", e));
    }
    return ERR_OK;
}

/* Tokens of one sequence stand together and follow each other. */
static enum err_code check_order(const struct batch_token *t, const struct batch_token *before,
                                 uint8_t *seen, struct err *e)
{
    if (before && before->seq == t->seq)
        return t->pos == before->pos + 1
                   ? ERR_OK
                   : err_set(e, ERR_FORMAT,
                             "step: position %" PRId64 " of sequence %d follows position %" PRId64,
                             t->pos, t->seq, before->pos);
    if (seen[t->seq])
        return err_set(e, ERR_FORMAT, "step: the tokens of sequence %d do not stand together",
                       t->seq);
    seen[t->seq] = 1;
    return ERR_OK;
}

static enum err_code get_token(struct batch_token *t, struct wire *w, const struct step_limits *l,
                               struct err *e)
{
    const unsigned all = FLAG_ABSORBED | FLAG_PRODUCED | FLAG_WANTED | FLAG_SAMPLED;

    t->id = wire_get_i32(w);
    t->seq = wire_get_i32(w);
    t->pos = wire_get_i64(w);
    unsigned flags = wire_get_u8(w);
    t->form = flags & FLAG_ABSORBED ? MLA_ABSORBED : MLA_EXPANDED;
    t->produced = (flags & FLAG_PRODUCED) != 0;
    t->want_logits = (flags & FLAG_WANTED) != 0;
    t->sampled = (flags & FLAG_SAMPLED) != 0;
    TRY(check(t->id, l->n_vocab, "token", e));
    TRY(check(t->seq, l->n_sequences, "token of sequence", e));
    TRY(check(t->pos, l->n_context, "position", e));
    return flags & ~all ? err_set(e, ERR_FORMAT, "step: unknown flags of a token") : ERR_OK;
}

static enum err_code get_tokens(struct step *s, struct wire *w, const struct step_limits *l,
                                struct err *e)
{
    struct batch *b = &s->batch;
    enum err_code rc = ERR_OK;

    TRY(get_list(w, "tokens", l->max_batch, TOKEN_BYTES, sizeof *b->tokens, &b->n, &b->tokens, e));
    uint8_t *seen = calloc((size_t)l->n_sequences + 1, 1);
    if (!seen)
        return err_set(e, ERR_NOMEM, "no memory for a step");
    for (int i = 0; i < b->n && rc == ERR_OK; i++) {
        rc = get_token(&b->tokens[i], w, l, e);
        if (rc == ERR_OK)
            rc = check_order(&b->tokens[i], i ? &b->tokens[i - 1] : NULL, seen, e);
    }
    free(seen);
    return rc;
}

static enum err_code get_all(struct step *s, struct wire *w, const struct step_limits *l,
                             struct err *e)
{
    s->id = wire_get_i64(w);
    TRY(get_resets(s, w, l, e));
    TRY(get_maps(s, w, l, e));
    TRY(get_zeros(s, w, l, e));
    TRY(get_copies(s, w, l, e));
    TRY(get_tokens(s, w, l, e));
    if (w->failed)
        return err_set(e, ERR_FORMAT, "step: it ends early");
    if (wire_left(w))
        return err_set(e, ERR_FORMAT, "step: %zu bytes are left", wire_left(w));
    return ERR_OK;
}

enum err_code step_decode(struct step *s, const void *bytes, size_t n, const struct step_limits *l,
                          struct err *e)
{
    struct wire w = wire_over(bytes, n);

    *s = (struct step){ 0 };
    enum err_code rc = get_all(s, &w, l, e);
    if (rc != ERR_OK)
        step_free(s);
    return rc;
}

void step_free(struct step *s)
{
    free(s->resets);
    free(s->maps);
    free(s->zeros);
    free(s->copies);
    free(s->batch.tokens);
    *s = (struct step){ 0 };
}
