/* SPDX-License-Identifier: MIT */
/* daemon/scheduler.c - requests as they come, produce and go; see scheduler.h. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "daemon/scheduler_parts.h"
#include "rank/attention.h"

/* ---- Contents of pages ---------------------------------------------------- */

enum mla_form scheduler_form(const struct scheduler *s, const struct entry *x, int64_t pos)
{
    return attention_form(s->opt.hp, s->opt.mla, pos, x->n_prompt);
}

void scheduler_content(const struct scheduler *s, const struct entry *x, int index, int64_t known,
                       struct page_content *c)
{
    int64_t first = (int64_t)index * PAGE_POSITIONS, n = known - first;

    c->n = n < 0 ? 0 : n < PAGE_POSITIONS ? (int)n : PAGE_POSITIONS;
    for (int i = 0; i < c->n; i++) {
        int64_t pos = first + i;
        c->tokens[i] = x->tokens[pos];
        /* The order of sums of a produced position is another one. */
        c->forms[i] = (uint8_t)(scheduler_form(s, x, pos) | (pos >= x->n_prompt) << 1);
    }
}

/* Puts page `index`, computed up to `known`, into the tree. */
static void enter_page(struct scheduler *s, struct entry *x, int index, int64_t known)
{
    struct page_content c;

    scheduler_content(s, x, index, known, &c);
    int32_t page = pages_enter(s->pages, x->pages[index], index ? x->pages[index - 1] : -1, &c);
    if (page != x->pages[index] && x->n_mapped > index)
        x->n_mapped = index; /* the ranks must learn of the other one */
    x->pages[index] = page;
}

/* ---- Leaving -------------------------------------------------------------- */

/* Gives the pages back, the deepest first. */
static void release_pages(struct scheduler *s, struct entry *x)
{
    if (x->copied_from >= 0)
        pages_drop(s->pages, x->copied_from);
    x->copied_from = -1;
    if (x->bad_pos >= 0) {
        for (int i = (int)(x->bad_pos / PAGE_POSITIONS); i < x->n_pages; i++)
            pages_spoil(s->pages, x->pages[i]);
    } else if (x->n_entered < x->n_pages &&
               x->n_computed > (int64_t)x->n_entered * PAGE_POSITIONS) {
        enter_page(s, x, x->n_entered, x->n_computed);
    }
    while (x->n_pages > 0)
        pages_drop(s->pages, x->pages[--x->n_pages]);
    x->n_entered = x->n_mapped = 0;
    x->n_computed = x->n_planned = x->n_ahead = 0;
}

void scheduler_preempt(struct scheduler *s, struct entry *x)
{
    release_pages(s, x);
    s->by_seq[x->seq] = NULL;
    x->seq = -1;
    x->client->running--;
}

static void client_leave(struct scheduler *s, struct client *c)
{
    if (--c->live > 0)
        return;
    struct client **at = &s->clients;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    free(c);
}

static void entry_free(struct entry *x)
{
    if (!x)
        return;
    free(x->tokens);
    free(x->pages);
    free(x);
}

void scheduler_forget(struct scheduler *s, struct entry *x)
{
    if (x->seq >= 0)
        scheduler_preempt(s, x);
    client_leave(s, x->client);
    for (int i = 0; i < s->n; i++)
        if (s->v[i] == x)
            s->v[i--] = s->v[--s->n];
    entry_free(x);
}

enum err_code scheduler_push_end(struct scheduler *s, const struct entry *x, enum reason reason,
                                 struct err *e)
{
    if (array_grow(&s->ends, &s->cap_ends, s->n_ends, sizeof *s->ends))
        return err_set(e, ERR_NOMEM, "no memory for the end of a request");
    s->ends[s->n_ends++] = (struct scheduler_end){
        .number = x->number, .reason = reason, .bad_layer = x->bad_layer, .bad_pos = x->bad_pos
    };
    return ERR_OK;
}

static struct entry *find(const struct scheduler *s, int64_t number)
{
    for (int i = 0; i < s->n; i++)
        if (s->v[i]->number == number)
            return s->v[i];
    return NULL;
}

void scheduler_remove(struct scheduler *s, int64_t number)
{
    struct entry *x = find(s, number);

    if (x && x->n_planned > 0)
        x->leaving = 1; /* its pages may turn out to be bad */
    else if (x)
        scheduler_forget(s, x);
}

/* ---- Coming --------------------------------------------------------------- */

enum err_code scheduler_create(struct scheduler **out, const struct scheduler_options *o,
                               struct err *e)
{
    size_t n_seq = (size_t)o->limits.n_sequences;
    struct scheduler *s = calloc(1, sizeof *s);

    if (!s)
        return err_set(e, ERR_NOMEM, "no memory for the scheduler");
    s->opt = *o;
    int64_t held = (int64_t)o->limits.n_pages * PAGE_POSITIONS;
    if (s->opt.limits.n_context > held)
        s->opt.limits.n_context = held;
    s->by_seq = calloc(n_seq, sizeof *s->by_seq);
    s->begins = calloc(n_seq, sizeof *s->begins);
    s->tokens = calloc(n_seq, sizeof *s->tokens);
    s->paused = calloc(2 * n_seq, sizeof *s->paused);
    s->step.batch.tokens = calloc((size_t)o->limits.max_batch, sizeof *s->step.batch.tokens);
    if (!s->by_seq || !s->begins || !s->tokens || !s->paused || !s->step.batch.tokens) {
        scheduler_free(&s);
        return err_set(e, ERR_NOMEM, "no memory for the scheduler");
    }
    enum err_code rc = pages_create(&s->pages, o->limits.n_pages, o->strict_reuse, e);
    if (rc != ERR_OK)
        scheduler_free(&s);
    else
        *out = s;
    return rc;
}

void scheduler_free(struct scheduler **s)
{
    struct scheduler *x = *s;

    if (!x)
        return;
    for (int i = 0; i < x->n; i++)
        entry_free(x->v[i]);
    while (x->clients) {
        struct client *next = x->clients->next;
        free(x->clients);
        x->clients = next;
    }
    pages_free(&x->pages);
    step_free(&x->step);
    free(x->v);
    free(x->by_seq);
    free(x->begins);
    free(x->ends);
    free(x->tokens);
    free(x->paused);
    free(x);
    *s = NULL;
}

/* The client of this name.  One that was not there owes nothing and is owed nothing. */
static struct client *client_join(struct scheduler *s, const char *name)
{
    struct client *c = s->clients;

    while (c && strcmp(c->name, name) != 0)
        c = c->next;
    if (!c) {
        c = calloc(1, sizeof *c);
        if (!c)
            return NULL;
        strncpy(c->name, name, sizeof c->name - 1);
        c->next = s->clients;
        s->clients = c;
    }
    c->live++;
    return c;
}

/* What the request may have in all. */
static int64_t most_tokens(const struct scheduler *s, const struct scheduler_request *r)
{
    /* The last token needs no place in the cache. */
    int64_t context = s->opt.limits.n_context + 1;

    if (r->max_tokens < 0 || r->max_tokens > context - r->n_prompt)
        return context;
    return r->n_prompt + r->max_tokens;
}

enum err_code scheduler_add(struct scheduler *s, const struct scheduler_request *r, struct err *e)
{
    struct entry *x = calloc(1, sizeof *x);

    if (!x || array_grow(&s->v, &s->cap, s->n, sizeof *s->v))
        goto no_memory;
    *x = (struct entry){ .number = r->number,
                         .order = s->next_order++,
                         .priority = r->priority,
                         .n_tokens = r->n_tokens,
                         .cap_tokens = r->n_tokens + 16,
                         .n_prompt = r->n_prompt,
                         .n_max = most_tokens(s, r),
                         .copied_from = -1,
                         .seq = -1,
                         .bad_pos = -1 };
    x->tokens = malloc((size_t)x->cap_tokens * sizeof *x->tokens);
    if (!x->tokens)
        goto no_memory;
    memcpy(x->tokens, r->tokens, (size_t)r->n_tokens * sizeof *x->tokens);
    x->client = client_join(s, r->client);
    if (!x->client)
        goto no_memory;
    s->v[s->n++] = x;
    return ERR_OK;
no_memory:
    entry_free(x);
    return err_set(e, ERR_NOMEM, "no memory for a request of %lld tokens", (long long)r->n_tokens);
}

/* ---- Results -------------------------------------------------------------- */

static enum err_code push_token(struct scheduler *s, struct entry *x, int32_t token, struct err *e)
{
    if (x->n_tokens == x->cap_tokens) {
        int64_t cap = 2 * x->cap_tokens;
        int32_t *grown = realloc(x->tokens, (size_t)cap * sizeof *grown);
        if (!grown)
            return err_set(e, ERR_NOMEM, "no memory for %lld tokens", (long long)cap);
        x->tokens = grown;
        x->cap_tokens = cap;
    }
    s->tokens[s->n_tokens++] = (struct scheduler_token){ .number = x->number,
                                                         .index = x->n_tokens - x->n_prompt,
                                                         .token = token,
                                                         .full = x->n_tokens + 1 >= x->n_max };
    x->tokens[x->n_tokens++] = token;
    s->counts.produced_tokens++;
    return ERR_OK;
}

/* The positions of the step are in the cache now; not that of a token which was sampled when x had
 * left: nobody knows it. */
static void settle(struct scheduler *s, struct entry *x)
{
    x->n_computed += x->n_planned;
    if (x->n_computed > x->n_tokens)
        x->n_computed = x->n_tokens;
    x->n_planned = 0;
    if (x->copied_from >= 0)
        pages_drop(s->pages, x->copied_from);
    x->copied_from = -1;
    if (x->bad_pos >= 0)
        return;
    while ((int64_t)(x->n_entered + 1) * PAGE_POSITIONS <= x->n_computed) {
        enter_page(s, x, x->n_entered, x->n_computed);
        x->n_entered++;
    }
}

static void note_bad(struct scheduler *s, int seq, int64_t pos, int layer)
{
    struct entry *x = s->by_seq[seq];

    if (!x || x->n_planned == 0 || (x->bad_pos >= 0 && x->bad_pos <= pos))
        return;
    x->bad_pos = pos;
    x->bad_layer = layer;
}

static enum err_code take_sample(struct scheduler *s, const struct link_sample *l, struct err *e)
{
    struct entry *x = s->by_seq[l->seq];

    if (!x || x->n_planned == 0 || (!x->leaving && l->pos != x->n_tokens) ||
        l->pos != x->n_computed + x->n_planned)
        return err_set(e, ERR_FORMAT,
                       "ranks: a token for position %lld of sequence %d, which was not asked for",
                       (long long)l->pos, l->seq);
    if (l->bad_layer)
        note_bad(s, l->seq, l->pos - 1, l->bad_layer);
    return x->bad_pos >= 0 || x->leaving ? ERR_OK : push_token(s, x, l->token, e);
}

/* What the step meant for one that was in it. */
static enum err_code take_step(struct scheduler *s, struct entry *x, struct err *e)
{
    settle(s, x);
    if (x->bad_pos >= 0 && !x->leaving)
        TRY(scheduler_push_end(s, x, REASON_NUMERIC_ERROR, e));
    x->leaving = x->leaving || x->bad_pos >= 0;
    x->n_planned = x->n_ahead;
    x->n_ahead = 0;
    if (x->leaving && x->n_planned == 0)
        scheduler_forget(s, x);
    return ERR_OK;
}

enum err_code scheduler_result(struct scheduler *s, const struct link_result *r,
                               struct scheduler_output *out, struct err *e)
{
    *out = (struct scheduler_output){ 0 };
    s->n_ends = s->n_tokens = 0;
    if (r->step != s->running || r->n_samples > s->opt.limits.n_sequences)
        return err_set(e, ERR_FORMAT, "ranks: the result of step %lld came for step %lld",
                       (long long)r->step, (long long)s->running);
    for (int i = 0; i < r->n_bad; i++)
        note_bad(s, r->bad[i].seq, r->bad[i].pos, r->bad[i].bad_layer);
    for (int i = 0; i < r->n_samples; i++)
        TRY(take_sample(s, &r->samples[i], e));
    for (int i = 0; i < s->opt.limits.n_sequences; i++) {
        if (s->by_seq[i] && s->by_seq[i]->n_planned > 0)
            TRY(take_step(s, s->by_seq[i], e));
    }
    s->running = s->ahead;
    s->ahead = 0;
    out->tokens = s->tokens;
    out->n_tokens = s->n_tokens;
    out->ends = s->ends;
    out->n_ends = s->n_ends;
    return ERR_OK;
}

/* ---- Looking -------------------------------------------------------------- */

void scheduler_count(const struct scheduler *s, struct scheduler_counts *out)
{
    *out = s->counts;
    out->waiting = out->running = 0;
    for (int i = 0; i < s->n; i++)
        *(s->v[i]->seq < 0 ? &out->waiting : &out->running) += 1;
    out->pages_total = s->opt.limits.n_pages;
    out->pages_used = pages_used(s->pages);
    out->pages_cached = pages_cached(s->pages);
}
