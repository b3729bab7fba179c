/* SPDX-License-Identifier: MIT */
/* daemon/scheduler_plan.c - builds the next step; see scheduler.h.
 *
 * Reading order: who goes first; changes of pages; who gets a sequence; which tokens run.
 *
 * A request that was admitted may lose its place again before the step is complete.  Its zeros and
 * copies stay in the step: they are made before any token is computed and in the order in which
 * they were decided, so whoever has those pages by then finds what it expects.
 */
#include <stdlib.h>

#include "base/array.h"
#include "daemon/scheduler_parts.h"

enum { MEMORY = 32768 }; /* tokens after which a debt is about a third */

/* ---- Order ---------------------------------------------------------------- */

static int compare(const struct entry *a, const struct entry *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    if (a->client->debt != b->client->debt)
        return a->client->debt < b->client->debt ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static struct entry *first_waiting(const struct scheduler *s)
{
    struct entry *best = NULL;

    for (int i = 0; i < s->n; i++)
        if (s->v[i]->seq < 0 && (!best || compare(s->v[i], best) < 0))
            best = s->v[i];
    return best;
}

/* The last of those that run and are not in the step yet. */
static struct entry *last_running(const struct scheduler *s)
{
    struct entry *worst = NULL;

    for (int i = 0; i < s->opt.limits.n_sequences; i++) {
        struct entry *x = s->by_seq[i];
        if (x && x->n_planned == 0 && (!worst || compare(x, worst) > 0))
            worst = x;
    }
    return worst;
}

/* Who must give its place up to x: one of a lower priority, or of a client that has at least two
 * more running. */
static struct entry *gives_way_to(const struct scheduler *s, const struct entry *x)
{
    struct entry *found = NULL;

    for (int i = 0; i < s->opt.limits.n_sequences; i++) {
        struct entry *r = s->by_seq[i];
        int more = r ? r->client->running - x->client->running : 0;
        if (!r || r->priority > x->priority || (r->priority == x->priority && more < 2))
            continue;
        if (!found || compare(r, found) > 0)
            found = r;
    }
    return found;
}

/* ---- Pages ---------------------------------------------------------------- */

static enum err_code no_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "no memory for the lists of a step");
}

static int64_t pages_for(int64_t positions)
{
    return (positions + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
}

/* Room for one more page of x.  Returns 0, or -1. */
static int grow_pages(struct entry *x)
{
    return array_grow(&x->pages, &x->cap_pages, x->n_pages, sizeof *x->pages);
}

/* Gives x one more page.  ERR_FULL: there is none. */
static enum err_code take_page(struct scheduler *s, struct entry *x, struct err *e)
{
    int must_zero;

    if (grow_pages(x) ||
        array_grow(&s->step.zeros, &s->cap_zeros, s->step.n_zeros, sizeof *s->step.zeros))
        return no_memory(e);
    int32_t page = pages_take(s->pages, &must_zero);
    if (page < 0)
        return ERR_FULL;
    if (must_zero)
        s->step.zeros[s->step.n_zeros++].page = page;
    x->pages[x->n_pages++] = page;
    return ERR_OK;
}

/* The same, at the cost of whoever comes last; ERR_FULL: that is x itself. */
static enum err_code claim_page(struct scheduler *s, struct entry *x, struct err *e)
{
    enum err_code rc;

    while ((rc = take_page(s, x, e)) == ERR_FULL) {
        struct entry *last = last_running(s);
        if (!last || last == x || compare(last, x) < 0)
            break;
        scheduler_preempt(s, last);
        s->counts.preempted++;
    }
    return rc;
}

/* Tells the ranks of the pages of x that they do not know. */
static enum err_code map_pages(struct scheduler *s, struct entry *x, struct err *e)
{
    for (; x->n_mapped < x->n_pages; x->n_mapped++) {
        if (array_grow(&s->step.maps, &s->cap_maps, s->step.n_maps, sizeof *s->step.maps))
            return no_memory(e);
        s->step.maps[s->step.n_maps++] =
            (struct step_map){ .seq = x->seq, .index = x->n_mapped, .page = x->pages[x->n_mapped] };
    }
    return ERR_OK;
}

/* ---- Who gets a sequence -------------------------------------------------- */

/* Of x's tokens, those that may be found computed: never the last one, since somebody must compute
 * what follows it. */
static void next_wanted(const struct scheduler *s, const struct entry *x, struct page_content *want)
{
    scheduler_content(s, x, x->n_pages, x->n_tokens - 1, want);
}

/* Maps the whole pages that others computed already. */
static enum err_code reuse_whole_pages(struct scheduler *s, struct entry *x, struct err *e)
{
    struct page_content want;
    int n = PAGE_POSITIONS;

    for (;;) {
        next_wanted(s, x, &want);
        int32_t parent = x->n_pages ? x->pages[x->n_pages - 1] : -1;
        int32_t page = want.n == PAGE_POSITIONS ? pages_find(s->pages, parent, &want, &n) : -1;
        if (page < 0 || n < PAGE_POSITIONS)
            return ERR_OK;
        if (grow_pages(x))
            return no_memory(e);
        pages_hold(s->pages, page);
        x->pages[x->n_pages++] = page;
        x->n_entered = x->n_pages;
        x->n_computed += PAGE_POSITIONS;
    }
}

/* Copies the page that agrees with the next positions in part. */
static enum err_code reuse_part(struct scheduler *s, struct entry *x, struct err *e)
{
    struct page_content want;
    int n;

    next_wanted(s, x, &want);
    int32_t parent = x->n_pages ? x->pages[x->n_pages - 1] : -1;
    int32_t page = want.n ? pages_find(s->pages, parent, &want, &n) : -1;
    if (page < 0)
        return ERR_OK;
    if (array_grow(&s->step.copies, &s->cap_copies, s->step.n_copies, sizeof *s->step.copies))
        return no_memory(e);
    pages_hold(s->pages, page); /* until it is copied */
    enum err_code rc = take_page(s, x, e);
    if (rc != ERR_OK) {
        pages_drop(s->pages, page);
        return rc == ERR_FULL ? ERR_OK : rc;
    }
    x->copied_from = page;
    x->n_computed += n;
    s->step.copies[s->step.n_copies++] =
        (struct step_copy){ .from = page, .to = x->pages[x->n_pages - 1] };
    return ERR_OK;
}

/* Pages that those who run will still want for the tokens they have. */
static int64_t promised_pages(const struct scheduler *s)
{
    int64_t n = 0;

    for (int i = 0; i < s->opt.limits.n_sequences; i++)
        if (s->by_seq[i])
            n += pages_for(s->by_seq[i]->n_tokens) - s->by_seq[i]->n_pages;
    return n;
}

static int free_sequence(const struct scheduler *s)
{
    int seq = 0;

    while (seq < s->opt.limits.n_sequences && s->by_seq[seq])
        seq++;
    return seq < s->opt.limits.n_sequences ? seq : -1;
}

/* Puts x on a sequence.  ERR_FULL: its tokens find no room now. */
static enum err_code admit(struct scheduler *s, struct entry *x, int seq, struct err *e)
{
    struct step *step = &s->step;

    if (array_grow(&step->resets, &s->cap_resets, step->n_resets, sizeof *step->resets))
        return no_memory(e);
    int64_t promised = promised_pages(s);
    s->by_seq[seq] = x;
    x->seq = seq;
    x->client->running++;
    TRY(reuse_whole_pages(s, x, e));
    if (pages_for(x->n_tokens) - x->n_pages + promised > pages_available(s->pages)) {
        scheduler_preempt(s, x);
        return ERR_FULL;
    }
    TRY(reuse_part(s, x, e));
    step->resets[step->n_resets++].seq = seq;
    if (!x->counted) {
        s->counts.prompt_tokens += x->n_prompt;
        s->counts.cached_tokens += x->n_computed;
        x->counted = 1;
    }
    s->begins[s->n_begins++] = (struct scheduler_begin){ .number = x->number,
                                                         .seq = seq,
                                                         .tokens = x->tokens,
                                                         .n_tokens = x->n_tokens,
                                                         .n_cached = x->n_computed };
    x->begun = 1;
    return ERR_OK;
}

/* Admits those who wait, as long as there is a place and room. */
static enum err_code admit_waiting(struct scheduler *s, struct err *e)
{
    struct entry *x;

    while ((x = first_waiting(s)) != NULL && s->n_begins < s->opt.limits.n_sequences) {
        int seq = free_sequence(s);
        enum err_code rc = seq < 0 ? ERR_FULL : admit(s, x, seq, e);
        if (rc == ERR_FULL) {
            struct entry *r = gives_way_to(s, x);
            if (!r)
                return ERR_OK;
            for (int i = 0; i < s->n_begins; i++)
                if (s->begins[i].seq == r->seq) /* it has just come: let it be */
                    return ERR_OK;
            scheduler_preempt(s, r);
            s->counts.preempted++;
            continue;
        }
        TRY(rc);
    }
    return ERR_OK;
}

/* ---- Tokens --------------------------------------------------------------- */

/* Adds up to `most` of x's next tokens to the step. */
static enum err_code plan_tokens(struct scheduler *s, struct entry *x, int most, struct err *e)
{
    struct batch *b = &s->step.batch;
    int64_t pos = x->n_computed;
    enum err_code rc = ERR_OK;

    for (; most > 0 && pos < x->n_tokens; most--, pos++) {
        if (pos / PAGE_POSITIONS >= x->n_pages && (rc = claim_page(s, x, e)) != ERR_OK)
            break;
        b->tokens[b->n++] = (struct batch_token){ .id = x->tokens[pos],
                                                  .seq = x->seq,
                                                  .pos = pos,
                                                  .form = scheduler_form(s, x, pos),
                                                  .produced = pos >= x->n_prompt,
                                                  .want_logits = pos == x->n_tokens - 1 };
        x->n_planned++;
    }
    if (rc == ERR_FULL && x->n_planned == 0) {
        scheduler_preempt(s, x); /* waits until there is room for all it has */
        s->counts.preempted++;
        return ERR_OK;
    }
    if (rc != ERR_OK && rc != ERR_FULL)
        return rc;
    x->client->debt += (double)x->n_planned;
    return map_pages(s, x, e);
}

/* Those that run and want another token (or, with `prompts`, still have more than one to
 * compute), the first in order that is not in the step yet. */
static struct entry *next_running(const struct scheduler *s, int prompts)
{
    struct entry *best = NULL;

    for (int i = 0; i < s->opt.limits.n_sequences; i++) {
        struct entry *x = s->by_seq[i];
        if (!x || x->n_planned || (x->n_tokens - x->n_computed > 1) != prompts)
            continue;
        if (!best || compare(x, best) < 0)
            best = x;
    }
    return best;
}

/* Of a step's tokens every client should have had the same.  What one had more, or less, is
 * remembered for some ten thousand tokens: those who come and go again and again are new each time,
 * and would starve for ever who stays and once had more. */
static void share_out(struct scheduler *s)
{
    double n = s->step.batch.n, n_clients = 0;

    for (const struct client *c = s->clients; c; c = c->next)
        n_clients++;
    for (struct client *c = s->clients; c; c = c->next)
        c->debt = (c->debt - n / n_clients) * (MEMORY / (MEMORY + n));
}

static enum err_code fill_batch(struct scheduler *s, struct err *e)
{
    const int most = s->opt.limits.max_batch;
    struct entry *x;

    for (int prompts = 0; prompts < 2; prompts++)
        while (s->step.batch.n < most && (x = next_running(s, prompts)) != NULL)
            TRY(plan_tokens(s, x, prompts ? most - s->step.batch.n : 1, e));
    share_out(s);
    return ERR_OK;
}

/* ---- Ahead of a result ---------------------------------------------------- */

/* Whether x has another token after the running step, if that token does not end it. */
static int goes_on(const struct entry *x)
{
    return !x->leaving && x->n_tokens + 1 < x->n_max;
}

/* Whether the running step leaves nothing to decide: everybody runs, has all its known tokens in
 * it, and finds a page for the next one. */
static int is_foreseen(const struct scheduler *s)
{
    int running = 0, pages = 0;

    for (int i = 0; i < s->opt.limits.n_sequences; i++) {
        const struct entry *x = s->by_seq[i];
        if (!x)
            continue;
        running++;
        if (!x->leaving && x->n_computed + x->n_planned < x->n_tokens)
            return 0;
        pages += goes_on(x) && x->n_tokens / PAGE_POSITIONS >= x->n_pages;
    }
    return running == s->n && pages <= pages_available(s->pages);
}

/* The token that is not known yet. */
static enum err_code plan_sampled(struct scheduler *s, struct entry *x, struct err *e)
{
    struct batch *b = &s->step.batch;
    int64_t pos = x->n_tokens;

    if (pos / PAGE_POSITIONS >= x->n_pages)
        TRY(take_page(s, x, e));
    b->tokens[b->n++] = (struct batch_token){ .sampled = 1,
                                              .seq = x->seq,
                                              .pos = pos,
                                              .form = scheduler_form(s, x, pos),
                                              .produced = 1,
                                              .want_logits = 1 };
    x->n_ahead = 1;
    x->client->debt++;
    return map_pages(s, x, e);
}

/* ---- The interface -------------------------------------------------------- */

static void begin_step(struct scheduler *s, int64_t id)
{
    struct step *step = &s->step;

    step->id = id;
    step->n_resets = step->n_maps = step->n_zeros = step->n_copies = step->batch.n = 0;
}

enum err_code scheduler_ahead(struct scheduler *s, int64_t id, struct scheduler_output *out,
                              struct err *e)
{
    *out = (struct scheduler_output){ 0 };
    if (!s->running || s->ahead || !is_foreseen(s))
        return ERR_OK;
    begin_step(s, id);
    for (int i = 0; i < s->opt.limits.n_sequences; i++)
        if (s->by_seq[i] && goes_on(s->by_seq[i]))
            TRY(plan_sampled(s, s->by_seq[i], e));
    share_out(s);
    if (s->step.batch.n) {
        s->ahead = id;
        out->step = &s->step;
    }
    return ERR_OK;
}

/* Ends those that have all they may have, and those that no context could hold. */
static enum err_code end_full(struct scheduler *s, struct err *e)
{
    for (int i = s->n - 1; i >= 0; i--) {
        struct entry *x = s->v[i];
        enum reason reason = x->n_prompt > s->opt.limits.n_context ? REASON_FAILED
                             : x->n_tokens >= x->n_max             ? REASON_LENGTH
                                                                   : REASON_NONE;
        if (reason == REASON_NONE)
            continue;
        TRY(scheduler_push_end(s, x, reason, e));
        scheduler_forget(s, x);
    }
    return ERR_OK;
}

/* Those that have lost their place, be it one that they only got in this plan: twice as many as
 * there are sequences, at most. */
static int note_paused(struct scheduler *s)
{
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        struct entry *x = s->v[i];
        if (!x->begun || x->seq >= 0)
            continue;
        x->begun = 0;
        s->paused[n++] = x->number;
    }
    return n;
}

enum err_code scheduler_plan(struct scheduler *s, int64_t id, struct scheduler_output *out,
                             struct err *e)
{
    struct step *step = &s->step;

    *out = (struct scheduler_output){ 0 };
    begin_step(s, id);
    s->n_begins = s->n_ends = s->n_tokens = 0;
    TRY(end_full(s, e));
    TRY(admit_waiting(s, e));
    TRY(fill_batch(s, e));
    /* Changes of pages that nobody needs any more are carried out too: later steps count on them.
     */
    int changes = step->n_resets + step->n_maps + step->n_zeros + step->n_copies;
    out->step = step->batch.n || changes ? step : NULL;
    s->running = out->step ? id : 0;
    out->begins = s->begins;
    out->n_begins = s->n_begins;
    out->ends = s->ends;
    out->n_ends = s->n_ends;
    out->paused = s->paused;
    out->n_paused = note_paused(s);
    return ERR_OK;
}
