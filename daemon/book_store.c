/* SPDX-License-Identifier: MIT */
/* daemon/book_store.c - requests in memory: made, found, grown, forgotten. */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/book_parts.h"

/* ---- Lists and trees ------------------------------------------------------ */

static size_t request_bytes(const struct request *r)
{
    return sizeof *r + r->blob.cap + r->text.cap +
           (size_t)r->cap * (sizeof *r->tokens + sizeof *r->text_ends) +
           (size_t)r->spec.n_prompt * sizeof *r->spec.prompt;
}

void list_add(struct request_list *l, struct request *r)
{
    r->bytes = request_bytes(r);
    l->bytes += r->bytes;
    r->next = &l->head;
    r->before = l->head.before;
    l->head.before->next = r;
    l->head.before = r;
    l->n++;
}

void list_remove(struct request_list *l, struct request *r)
{
    r->before->next = r->next;
    r->next->before = r->before;
    l->bytes -= r->bytes;
    l->n--;
}

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct request *)a)->view.id, ((const struct request *)b)->view.id);
}

static int by_number(const void *a, const void *b)
{
    int64_t x = ((const struct request *)a)->number, y = ((const struct request *)b)->number;

    return x < y ? -1 : x > y;
}

int book_keep(struct requests *b, struct request *r, int live)
{
    if (!tsearch(r, &b->by_id, by_id))
        return -1;
    if (!tsearch(r, &b->by_number, by_number)) {
        tdelete(r, &b->by_id, by_id);
        return -1;
    }
    list_add(live ? &b->live : &b->ended, r);
    return 0;
}

void book_drop(struct requests *b, struct request *r, int live)
{
    tdelete(r, &b->by_id, by_id);
    tdelete(r, &b->by_number, by_number);
    list_remove(live ? &b->live : &b->ended, r);
    book_wake(&r->waiters, WAKE_ALL);
    request_free(r);
}

void book_forget_cold(struct requests *b)
{
    struct request_list *l = &b->ended;

    for (struct request *r = l->head.next, *after;
         l->n > WARM_REQUESTS || (l->n > 1 && l->bytes > WARM_BYTES); r = after) {
        after = r->next;
        if (after == &l->head)
            break;
        if (!r->waiters)
            book_drop(b, r, 0);
    }
}

static struct request *lookup(void *const *root, const struct request *key,
                              int (*compare)(const void *, const void *))
{
    struct request **found = tfind(key, root, compare);

    return found ? *found : NULL;
}

struct request *book_find(struct requests *b, int64_t number)
{
    struct request key = { .number = number };

    return lookup(&b->by_number, &key, by_number);
}

void book_wake(struct requests_waiter **list, int64_t n)
{
    for (struct requests_waiter *w = *list, *next; w; w = next) {
        next = w->next;
        if (n != WAKE_ALL && w->cursor >= n)
            continue;
        *w->at = next;
        if (next)
            next->at = w->at;
        w->next = NULL;
        w->at = NULL;
        w->wake(w); /* from here on it is no longer ours */
    }
}

/* ---- One request ---------------------------------------------------------- */

static enum err_code make_filter(struct request *r, struct err *e)
{
    char texts[REQUEST_STOPS_MAX][REQUEST_STOP_MAX + 1];
    const char *stops[REQUEST_STOPS_MAX];

    for (int i = 0; i < r->spec.n_stops; i++) {
        memcpy(texts[i], r->spec.stops[i].data, r->spec.stops[i].len);
        texts[i][r->spec.stops[i].len] = 0;
        stops[i] = texts[i];
    }
    return text_filter_create(&r->filter, stops, r->spec.n_stops, e);
}

enum err_code request_create(struct request **out, const struct requests *b, const char *id,
                             const void *spec, size_t n_spec, struct err *e)
{
    struct request *r = calloc(1, sizeof *r);
    enum err_code rc;
    (void)b;

    if (!r)
        return err_set(e, ERR_NOMEM, "no memory for a request");
    str_append(&r->blob, spec, n_spec);
    rc = r->blob.failed ? err_set(e, ERR_NOMEM, "no memory for a request")
                        : request_spec_get(&r->spec, &r->memory, spec, n_spec, e);
    if (rc == ERR_OK)
        rc = make_filter(r, e);
    if (rc != ERR_OK) {
        request_free(r);
        return rc;
    }
    (void)snprintf(r->view.id, sizeof r->view.id, "%s", id);
    (void)snprintf(r->view.client, sizeof r->view.client, "%s", r->spec.client);
    r->spec.id = r->view.id;
    r->view.priority = r->spec.priority;
    r->view.seed = r->spec.sampling.seed;
    r->view.n_prompt = r->spec.n_prompt;
    *out = r;
    return ERR_OK;
}

void request_free(struct request *r)
{
    if (!r)
        return;
    text_filter_free(&r->filter);
    str_free(&r->blob);
    str_free(&r->text);
    free(r->memory);
    free(r->tokens);
    free(r->text_ends);
    free(r);
}

static int grow_tokens(struct request *r)
{
    int64_t cap = r->cap ? 2 * r->cap : 64;

    if (r->n_tokens < r->cap)
        return 0;
    int32_t *tokens = realloc(r->tokens, (size_t)cap * sizeof *tokens);
    if (tokens)
        r->tokens = tokens;
    uint32_t *ends = realloc(r->text_ends, (size_t)cap * sizeof *ends);
    if (ends)
        r->text_ends = ends;
    if (!tokens || !ends)
        return -1;
    r->cap = cap;
    return 0;
}

enum err_code request_push(struct request *r, const struct requests *b, int32_t token, int *stopped,
                           struct err *e)
{
    struct str piece = { 0 };

    if (grow_tokens(r))
        return err_set(e, ERR_NOMEM, "no memory for %lld tokens", (long long)r->n_tokens);
    if (!r->foreign)
        tokenizer_decode(b->opt.tokenizer, token, 0, &piece);
    *stopped = text_filter_push(r->filter, piece.data, piece.len, &r->text);
    if (piece.failed || r->text.failed || r->text.len > UINT32_MAX) {
        str_free(&piece);
        return err_set(e, ERR_NOMEM, "no memory for the text of a request");
    }
    str_free(&piece);
    r->text_ends[r->n_tokens] = (uint32_t)r->text.len;
    r->tokens[r->n_tokens++] = token;
    return ERR_OK;
}

void request_finish_text(struct request *r)
{
    text_filter_flush(r->filter, &r->text);
}

/* ---- From the journal ----------------------------------------------------- */

const char book_other_model[] = "the daemon was started with another model";

struct wanted {
    struct requests *b;
    struct request *found;
};

/* Rebuilds an ended request. */
static int take_row(void *arg, const struct journal_row *row)
{
    struct wanted *w = arg;
    struct request *r = NULL;
    int stopped;

    if (row->reason == REASON_NONE ||
        request_create(&r, w->b, row->id, row->spec, row->n_spec, NULL) != ERR_OK || !r)
        return 1;
    r->number = row->number;
    r->foreign = strcmp(row->message, book_other_model) == 0;
    for (int64_t i = 0; i < row->n_tokens; i++)
        if (request_push(r, w->b, row->tokens[i], &stopped, NULL) != ERR_OK) {
            request_free(r);
            return 1;
        }
    request_finish_text(r);
    r->view.state = REQUEST_ENDED;
    r->view.reason = row->reason;
    (void)snprintf(r->view.message, sizeof r->view.message, "%s", row->message);
    r->view.n_cached = row->n_cached;
    r->view.n_produced = row->n_tokens;
    r->view.accepted_ms = row->accepted_ms;
    r->view.first_token_ms = row->first_token_ms;
    r->view.ended_ms = row->ended_ms;
    w->found = r;
    return 1;
}

struct request *book_find_id(struct requests *b, const char *id)
{
    struct request key = { 0 };
    struct wanted w = { .b = b };

    if (strnlen(id, REQUEST_ID_MAX + 1) > REQUEST_ID_MAX)
        return NULL;
    (void)snprintf(key.view.id, sizeof key.view.id, "%s", id);
    struct request *r = lookup(&b->by_id, &key, by_id);
    if (r || journal_find(b->opt.journal, id, take_row, &w) == 0 || !w.found)
        return r;
    if (book_keep(b, w.found, 0)) {
        request_free(w.found);
        return NULL;
    }
    book_forget_cold(b);
    return w.found;
}
