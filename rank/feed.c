/* SPDX-License-Identifier: MIT */
/* rank/feed.c - the engine's own sequences: engine_begin, engine_feed, engine_step.
 *
 * Pages are taken when tokens are fed and told to the ranks with the step that needs them
 * first; a sequence that is begun anew gives its pages back at once, and the ranks hear of it
 * with the next step.
 *
 * Reading order: pages of a sequence; one step; feeding; life.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rank/attention.h"
#include "rank/engine_parts.h"
#include "rank/pager.h"

struct sequence_state {
    int64_t length, n_prompt;
    int32_t *pages; /* [cap], n_pages taken, of which the ranks know n_mapped */
    int64_t cap, n_pages, n_mapped;
    int reset; /* the ranks are to forget its table */
    int bad;   /* a sum failed: its pages become zeros before anybody gets them */
};

struct feed {
    struct pager *pager;
    int n_seqs;
    struct sequence_state *seqs; /* [n_seqs] */
    struct step step;            /* arrays as long as they can become */
    struct batch_token *tokens;  /* [max_batch] */
};

/* ---- Pages of a sequence ------------------------------------------------ */

void engine_begin(struct engine *e, int seq, int64_t n_prompt)
{
    struct feed *f = e->feed;
    struct sequence_state *s = &f->seqs[seq];

    for (int64_t i = 0; i < s->n_pages; i++) {
        if (s->bad && i < s->n_mapped)
            f->step.zeros[f->step.n_zeros++].page = s->pages[i];
        pager_release(f->pager, s->pages[i]);
    }
    *s = (struct sequence_state){
        .n_prompt = n_prompt, .pages = s->pages, .cap = s->cap, .reset = 1
    };
}

void engine_extend(struct engine *e, int seq, int64_t n_prompt)
{
    e->feed->seqs[seq].n_prompt = n_prompt;
}

int64_t engine_length(const struct engine *e, int seq)
{
    return e->feed->seqs[seq].length;
}

/* Takes pages for `more` further positions: all of them or none. */
static enum err_code reserve(struct engine *e, int seq, int64_t more, struct err *err)
{
    struct feed *f = e->feed;
    struct sequence_state *s = &f->seqs[seq];
    int64_t want = s->length + more, pages = cache_pages(want);

    if (want > e->limits.n_context)
        return err_set(err, ERR_FULL,
                       "a sequence holds at most %lld positions, %lld are wanted; use a larger -c, "
                       "up to the model's context",
                       (long long)e->limits.n_context, (long long)want);
    if (pages - s->n_pages > pager_count_free(f->pager))
        return err_set(err, ERR_FULL,
                       "the latent cache holds %lld positions of all sequences, and one wants "
                       "%lld; use a larger -c",
                       (long long)e->limits.n_pages * CACHE_PAGE, (long long)want);
    if (pages > s->cap) {
        int64_t cap = pages + pages / 2;
        int32_t *grown = realloc(s->pages, (size_t)cap * sizeof *grown);
        if (!grown)
            return err_set(err, ERR_NOMEM, "no memory for the list of a sequence's pages");
        s->pages = grown;
        s->cap = cap;
    }
    while (s->n_pages < pages)
        s->pages[s->n_pages++] = pager_take(f->pager);
    return ERR_OK;
}

/* ---- One step ----------------------------------------------------------- */

static enum err_code place_token(struct engine *e, struct batch_token *t, struct err *err)
{
    struct sequence_state *s = &e->feed->seqs[t->seq];

    if (t->id < 0 || t->id >= e->limits.n_vocab)
        return err_set(err, ERR_USAGE, "token %d is not in the vocabulary of %d", t->id,
                       e->limits.n_vocab);
    TRY(reserve(e, t->seq, 1, err));
    t->pos = s->length++;
    t->produced = t->pos >= s->n_prompt;
    t->form = attention_form(&e->model->hp, e->opt.mla, t->pos, s->n_prompt);
    return ERR_OK;
}

/* What the ranks do not know yet about the tables. */
static void add_page_changes(struct feed *f)
{
    struct step *step = &f->step;

    for (int i = 0; i < f->n_seqs; i++) {
        struct sequence_state *s = &f->seqs[i];
        if (s->reset)
            step->resets[step->n_resets++].seq = i;
        s->reset = 0;
        for (; s->n_mapped < s->n_pages; s->n_mapped++)
            step->maps[step->n_maps++] =
                (struct step_map){ i, (int32_t)s->n_mapped, s->pages[s->n_mapped] };
    }
}

enum err_code engine_step(struct engine *e, struct batch *b, float *logits, struct err *err)
{
    struct feed *f = e->feed;
    struct step *step = &f->step;

    for (int i = 0; i < b->n; i++) {
        enum err_code rc = place_token(e, &b->tokens[i], err);
        if (rc != ERR_OK) {
            while (i-- > 0) /* nothing was fed */
                f->seqs[b->tokens[i].seq].length--;
            return rc;
        }
    }
    add_page_changes(f);
    step->batch = *b;
    enum err_code rc = engine_run_step(e, step, logits, err);
    step->id++;
    step->n_resets = step->n_maps = step->n_zeros = 0;
    for (int i = 0; i < b->n; i++)
        f->seqs[b->tokens[i].seq].bad |= b->tokens[i].bad_layer != 0;
    return rc;
}

/* ---- Feeding ------------------------------------------------------------ */

static enum err_code check_numeric(const struct engine *e, const struct batch *b, struct err *err)
{
    for (int i = 0; i < b->n; i++) {
        int layer = b->tokens[i].bad_layer - 1;
        char where[32] = "the output";
        if (layer < 0)
            continue;
        if (layer < e->model->hp.n_layers)
            (void)snprintf(where, sizeof where, "layer %d", layer);
        return err_set(err, ERR_NUMERIC,
                       "numeric_error: a sum in %s is not a number or out of range at position "
                       "%lld; run with --check-tensors to look for bad weights",
                       where, (long long)b->tokens[i].pos);
    }
    return ERR_OK;
}

enum err_code engine_feed(struct engine *e, int seq, const int32_t *tokens, int64_t n,
                          enum engine_want want, engine_logits_fn *on_logits, void *arg,
                          struct err *err)
{
    struct feed *f = e->feed;
    float *logits = engine_logits(e);

    TRY(reserve(e, seq, n, err));
    for (int64_t done = 0; done < n;) {
        struct batch b = { .tokens = f->tokens };
        int rows = 0;
        for (; b.n < e->limits.max_batch && rows < e->limits.max_logits && done + b.n < n; b.n++) {
            int last = done + b.n == n - 1;
            int wants = want == ENGINE_ALL || (want == ENGINE_LAST && last);
            b.tokens[b.n] =
                (struct batch_token){ .id = tokens[done + b.n], .seq = seq, .want_logits = wants };
            rows += wants;
        }
        TRY(engine_step(e, &b, logits, err));
        TRY(check_numeric(e, &b, err));
        for (int i = 0, row = 0; i < b.n; i++)
            if (b.tokens[i].want_logits)
                on_logits(arg, b.tokens[i].pos, logits + (int64_t)row++ * e->limits.n_vocab);
        done += b.n;
    }
    return ERR_OK;
}

/* ---- Life --------------------------------------------------------------- */

enum err_code feed_create(struct feed **out, const struct step_limits *l, struct err *e)
{
    struct feed *f = calloc(1, sizeof *f);
    size_t seqs = (size_t)l->n_sequences, pages = (size_t)l->n_pages + 1;
    enum err_code rc = ERR_NOMEM;

    if (!f)
        goto out;
    f->n_seqs = l->n_sequences;
    f->seqs = calloc(seqs, sizeof *f->seqs);
    f->tokens = calloc((size_t)l->max_batch, sizeof *f->tokens);
    f->step.resets = calloc(seqs, sizeof *f->step.resets);
    f->step.maps = calloc(pages, sizeof *f->step.maps);
    f->step.zeros = calloc(pages, sizeof *f->step.zeros);
    if (!f->seqs || !f->tokens || !f->step.resets || !f->step.maps || !f->step.zeros)
        goto out;
    if ((rc = pager_create(&f->pager, l->n_pages, e)) != ERR_OK)
        goto out;
    *out = f;
    return ERR_OK;
out:
    feed_free(&f);
    return rc == ERR_NOMEM ? err_set(e, rc, "no memory for the list of sequences") : rc;
}

void feed_free(struct feed **f)
{
    if (!*f)
        return;
    pager_free(&(*f)->pager);
    for (int i = 0; (*f)->seqs && i < (*f)->n_seqs; i++)
        free((*f)->seqs[i].pages);
    free((*f)->seqs);
    free((*f)->tokens);
    free((*f)->step.resets);
    free((*f)->step.maps);
    free((*f)->step.zeros);
    free(*f);
    *f = NULL;
}
