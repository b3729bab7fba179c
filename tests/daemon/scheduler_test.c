/* SPDX-License-Identifier: MIT */
/* tests/daemon/scheduler_test.c - the scheduler against ranks that remember what they hold.
 *
 * The model of these ranks is a hash: what position p leaves in the cache is a hash of all tokens
 * up to p and of their forms, and the token that follows is a function of it.  So a page that is
 * mapped, copied, zeroed or reused wrongly gives another text than the request alone would.
 */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/scheduler.h"
#include "rank/attention.h"

enum { MAX_SEQ = 8, MAX_PAGES = 64, SEQ_PAGES = 64, N_VOCAB = 50, MAX_REQUESTS = 400 };

static const struct hparams hp = { .kv_lora_rank = 512, .d_rope = 64, .d_nope = 128, .d_v = 128 };

/* ---- Ranks ---------------------------------------------------------------- */

struct ranks {
    uint64_t held[MAX_PAGES][64];
    int32_t table[MAX_SEQ][SEQ_PAGES];
    int32_t last[MAX_SEQ]; /* chosen last; -1: nothing could be */
    int32_t poison;        /* a token whose sums fail; -1: none */
    int zeroed;
};

/* The result of a step that the scheduler has not seen yet. */
struct pending {
    struct link_result result;
    struct link_sample samples[MAX_SEQ];
    struct link_bad bad[1024];
};

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t hash_position(uint64_t before, const struct batch_token *t, int forms)
{
    return mix(before, (uint64_t)(uint32_t)t->id | (forms ? (uint64_t)t->form << 32 : 0) |
                           (forms ? (uint64_t)t->produced << 34 : 0) | (uint64_t)t->pos << 40);
}

static int32_t follows(uint64_t h)
{
    return (int32_t)(h % (N_VOCAB - 1));
}

/* Carries the step out as rank/step.h says. */
static void run_step(struct ranks *r, const struct step *s, struct pending *p, int forms)
{
    struct link_result *out = &p->result;

    *out = (struct link_result){ .step = s->id, .samples = p->samples, .bad = p->bad };
    for (int i = 0; i < s->n_resets; i++)
        for (int k = 0; k < SEQ_PAGES; k++)
            r->table[s->resets[i].seq][k] = -1;
    for (int i = 0; i < s->n_maps; i++)
        r->table[s->maps[i].seq][s->maps[i].index] = s->maps[i].page;
    for (int i = 0; i < s->n_zeros; i++) {
        memset(r->held[s->zeros[i].page], 0, sizeof r->held[0]);
        r->zeroed++;
    }
    for (int i = 0; i < s->n_copies; i++)
        memcpy(r->held[s->copies[i].to], r->held[s->copies[i].from], sizeof r->held[0]);
    for (int i = 0; i < s->batch.n; i++) {
        struct batch_token *t = &s->batch.tokens[i];
        uint64_t before = 0;
        if (t->sampled)
            t->id = r->last[t->seq];
        if (t->pos > 0) {
            int32_t page = r->table[t->seq][(t->pos - 1) / 64];
            assert_true(page >= 0);
            before = r->held[page][(t->pos - 1) % 64];
        }
        int32_t page = r->table[t->seq][t->pos / 64];
        assert_true(page >= 0);
        uint64_t h = r->held[page][t->pos % 64] = hash_position(before, t, forms);
        int failed = t->id == r->poison || t->id < 0;
        if (failed)
            p->bad[out->n_bad++] = (struct link_bad){ t->seq, t->pos, 3 };
        if (!t->want_logits)
            continue;
        r->last[t->seq] = failed ? -1 : follows(h);
        assert_true(out->n_samples < MAX_SEQ);
        p->samples[out->n_samples++] =
            (struct link_sample){ t->seq, t->pos + 1, r->last[t->seq], failed ? 3 : 0 };
    }
}

/* ---- Requests ------------------------------------------------------------- */

struct wish {
    int32_t prompt[2048];
    int n_prompt, max_tokens, given; /* given: of the produced ones, known when it was added */
    int32_t got[512];
    int n_got, ended, runs; /* runs: as the scheduler has said */
    enum reason reason;
};

/* What the request gives alone. */
static int32_t solo(const struct wish *w, int n_produced, int forms)
{
    uint64_t h = 0;

    for (int pos = 0; pos < w->n_prompt + n_produced; pos++) {
        struct batch_token t = { .pos = pos,
                                 .produced = pos >= w->n_prompt,
                                 .form = attention_form(&hp, 3, pos, w->n_prompt) };
        t.id = pos < w->n_prompt ? w->prompt[pos] : w->got[pos - w->n_prompt];
        h = hash_position(h, &t, forms);
    }
    return follows(h);
}

struct world {
    struct scheduler *s;
    struct ranks ranks;
    struct wish wishes[MAX_REQUESTS];
    int n, live, strict, moody, n_seq, n_pages, max_batch;
    int64_t steps;
    struct pending sent[2];
    int n_sent, n_ahead; /* steps whose results the scheduler waits for; steps sent ahead, in all */
};

static void world_init(struct world *w)
{
    struct scheduler_options o = {
        .limits = {.n_vocab = N_VOCAB,
                   .n_sequences = w->n_seq,
                   .n_pages = w->n_pages,
                   .max_batch = w->max_batch,
                   .n_context = (int64_t)w->n_pages * 64},
        .hp = &hp,
        .mla = 3,
        .strict_reuse = w->strict
    };

    w->ranks.poison = -1;
    assert_int_equal(scheduler_create(&w->s, &o, NULL), ERR_OK);
}

static void add(struct world *w, const char *client, int priority)
{
    struct wish *x = &w->wishes[w->n];
    int32_t tokens[4096];

    memcpy(tokens, x->prompt, sizeof(int32_t) * (size_t)x->n_prompt);
    memcpy(tokens + x->n_prompt, x->got, sizeof(int32_t) * (size_t)x->n_got);
    struct scheduler_request r = { .number = w->n++,
                                   .client = client,
                                   .priority = priority,
                                   .tokens = tokens,
                                   .n_tokens = x->n_prompt + x->n_got,
                                   .n_prompt = x->n_prompt,
                                   .max_tokens = x->max_tokens };
    assert_int_equal(scheduler_add(w->s, &r, NULL), ERR_OK);
    w->live++;
}

static void note_end(struct world *w, int64_t number, enum reason reason)
{
    struct wish *x = &w->wishes[number];

    assert_int_equal(x->ended, 0);
    x->ended = 1;
    x->runs = 0;
    x->reason = reason;
    w->live--;
}

/* What is told of begins and pauses comes to the number that run. */
static void note_running(struct world *w, const struct scheduler_output *out)
{
    struct scheduler_counts c;
    int running = 0;

    for (int i = 0; i < out->n_begins; i++)
        w->wishes[out->begins[i].number].runs = 1;
    for (int i = 0; i < out->n_paused; i++) {
        assert_int_equal(w->wishes[out->paused[i]].runs, 1);
        w->wishes[out->paused[i]].runs = 0;
    }
    for (int i = 0; i < w->n; i++)
        running += w->wishes[i].runs;
    scheduler_count(w->s, &c);
    assert_int_equal(c.running, running);
}

/* A client may give up. */
static void give_up(struct world *w)
{
    if (!w->moody || rand() % 40 || !w->n)
        return;
    int k = rand() % w->n;
    if (!w->wishes[k].ended) {
        scheduler_remove(w->s, k);
        note_end(w, k, REASON_CANCELLED);
    }
}

static void send(struct world *w, const struct step *step)
{
    assert_true(w->n_sent < 2 && step->batch.n <= w->max_batch);
    run_step(&w->ranks, step, &w->sent[w->n_sent++], w->strict);
}

/* Plans a step if none runs; returns 0 when there is nothing to do. */
static int plan(struct world *w)
{
    struct scheduler_output out;
    struct err e = { 0 };

    if (w->n_sent)
        return 1;
    if (scheduler_plan(w->s, ++w->steps, &out, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (int i = 0; i < out.n_ends; i++)
        note_end(w, out.ends[i].number, out.ends[i].reason);
    note_running(w, &out);
    if (out.step)
        send(w, out.step);
    return out.step != NULL;
}

static void plan_ahead(struct world *w)
{
    struct scheduler_output out;
    struct err e = { 0 };

    if (scheduler_ahead(w->s, w->steps + 1, &out, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    if (!out.step)
        return;
    w->steps++;
    w->n_ahead++;
    send(w, out.step);
}

/* One result; returns 0 when there was nothing to do. */
static int turn(struct world *w)
{
    struct scheduler_output out;
    struct err e = { 0 };

    if (!plan(w))
        return 0;
    if (!w->moody || rand() % 8)
        plan_ahead(w);
    give_up(w);
    if (scheduler_result(w->s, &w->sent[0].result, &out, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    memmove(&w->sent[0], &w->sent[1], sizeof w->sent[0]);
    w->sent[0].result.samples = w->sent[0].samples;
    w->sent[0].result.bad = w->sent[0].bad;
    w->n_sent--;
    for (int i = 0; i < out.n_tokens; i++) {
        const struct scheduler_token *t = &out.tokens[i];
        struct wish *x = &w->wishes[t->number];
        assert_int_equal(t->index, x->n_got);
        assert_int_equal(t->token, solo(x, x->n_got, w->strict));
        x->got[x->n_got++] = t->token;
        if (t->full) {
            scheduler_remove(w->s, t->number);
            note_end(w, t->number, REASON_LENGTH);
        }
    }
    for (int i = 0; i < out.n_ends; i++)
        note_end(w, out.ends[i].number, out.ends[i].reason);
    return 1;
}

static void run_out(struct world *w)
{
    int64_t last = w->steps + 100000;

    while (w->live > 0 || w->n_sent > 0) {
        turn(w);
        assert_true(w->steps < last);
    }
}

static void nothing_is_lost(struct world *w)
{
    struct scheduler_counts c;

    scheduler_count(w->s, &c);
    assert_int_equal(c.waiting + c.running, 0);
    assert_int_equal(c.pages_used, 0);
    scheduler_free(&w->s);
}

/* A prompt that shares its beginning with others. */
static void fill(struct wish *x, int family, int shared, int n)
{
    x->n_prompt = n;
    for (int i = 0; i < n; i++)
        x->prompt[i] = i < shared ? (family * 31 + i * 7) % (N_VOCAB - 1) : rand() % (N_VOCAB - 1);
}

/* ---- Tests ---------------------------------------------------------------- */

static struct world *new_world(int strict, int n_seq, int n_pages, int max_batch)
{
    struct world *w = calloc(1, sizeof *w);

    assert_non_null(w);
    *w = (struct world){
        .strict = strict, .n_seq = n_seq, .n_pages = n_pages, .max_batch = max_batch
    };
    world_init(w);
    return w;
}

static void every_text_is_that_of_the_request_alone(void **state)
{
    int ahead = 0;

    (void)state;
    for (int round = 0; round < 60; round++) {
        srand((unsigned)round);
        struct world *w =
            new_world(round & 1, 1 + rand() % MAX_SEQ, 6 + rand() % 40, 1 + rand() % 96);
        w->moody = 1;
        int total = 30 + rand() % 60;
        while (w->n < total || w->live > 0 || w->n_sent > 0) {
            if (w->n < total && rand() % 3 == 0) {
                struct wish *x = &w->wishes[w->n];
                int most = (w->n_pages * 64 < 700 ? w->n_pages * 64 : 700);
                int n = 1 + rand() % most;
                fill(x, rand() % 3, rand() % (n + 1), n);
                x->max_tokens = 1 + rand() % 100;
                add(w, rand() % 2 ? "a" : "b", rand() % 3 - 1);
            }
            turn(w);
            give_up(w);
        }
        nothing_is_lost(w);
        ahead += w->n_ahead;
        free(w);
    }
    assert_true(ahead > 100);
}

static void the_second_turn_of_a_chat_is_cached(void **state)
{
    struct world *w = new_world(0, 4, 32, 64);
    struct scheduler_output out;
    (void)state;

    for (int k = 0; k < 3; k++) { /* the same prompt: all but its last position is there */
        fill(&w->wishes[w->n], 1, 200, 200);
        w->wishes[w->n].max_tokens = 5;
        add(w, "", 0);
        assert_int_equal(scheduler_plan(w->s, ++w->steps, &out, NULL), ERR_OK);
        assert_int_equal(out.n_begins, 1);
        assert_int_equal(out.begins[0].n_cached, k ? 199 : 0);
        note_running(w, &out);
        run_step(&w->ranks, out.step, &w->sent[0], 0);
        assert_int_equal(scheduler_result(w->s, &w->sent[0].result, &out, NULL), ERR_OK);
        for (int i = 0; i < out.n_tokens; i++)
            w->wishes[k].got[w->wishes[k].n_got++] = out.tokens[i].token;
        run_out(w);
    }
    assert_memory_equal(w->wishes[0].got, w->wishes[2].got, 5 * sizeof(int32_t));
    nothing_is_lost(w);
    free(w);
}

static void a_request_goes_on_where_it_was(void **state)
{
    struct world *w = new_world(1, 4, 32, 64);
    (void)state;

    fill(&w->wishes[0], 1, 100, 100);
    w->wishes[0].max_tokens = 40;
    add(w, "", 0);
    run_out(w);
    w->wishes[1] = w->wishes[0]; /* as after a restart: 13 tokens are known */
    w->wishes[1].n_got = 13;
    w->wishes[1].ended = w->wishes[1].runs = 0;
    scheduler_free(&w->s);
    world_init(w);
    add(w, "", 0);
    run_out(w);
    assert_int_equal(w->wishes[1].n_got, 40);
    assert_memory_equal(w->wishes[0].got, w->wishes[1].got, 40 * sizeof(int32_t));
    nothing_is_lost(w);
    free(w);
}

static void a_failed_sum_ends_one_request_and_zeroes_its_pages(void **state)
{
    struct world *w = new_world(1, 4, 8, 64);
    (void)state;

    w->ranks.poison = N_VOCAB - 1;
    fill(&w->wishes[0], 1, 90, 90);
    w->wishes[0].prompt[80] = N_VOCAB - 1;
    w->wishes[0].max_tokens = 10;
    add(w, "", 0);
    fill(&w->wishes[1], 1, 90, 90);
    w->wishes[1].max_tokens = 10;
    add(w, "", 0);
    run_out(w);
    assert_int_equal(w->wishes[0].reason, REASON_NUMERIC_ERROR);
    assert_int_equal(w->wishes[1].reason, REASON_LENGTH);
    assert_int_equal(w->wishes[1].n_got, 10);
    fill(&w->wishes[2], 2, 500, 500); /* takes every page */
    w->wishes[2].max_tokens = 10;
    add(w, "", 0);
    run_out(w);
    assert_true(w->ranks.zeroed > 0);
    nothing_is_lost(w);
    free(w);
}

/* The step that was sent ahead of a failure is of no consequence. */
static void a_failure_while_a_step_is_ahead(void **state)
{
    struct world *w = new_world(1, 4, 8, 64);
    (void)state;

    for (int k = 0; k < 2; k++) {
        fill(&w->wishes[k], k, 30, 30);
        w->wishes[k].max_tokens = 20;
        add(w, "", 0);
    }
    for (int i = 0; i < 5; i++)
        turn(w);
    assert_int_equal(w->n_sent, 1);
    w->ranks.poison = w->ranks.last[0];
    run_out(w);
    assert_int_equal(w->wishes[0].reason, REASON_NUMERIC_ERROR);
    assert_int_equal(w->wishes[0].n_got, 6);
    nothing_is_lost(w);
    free(w);
}

/* A request is cancelled while a position of it is computed whose token nobody will be told. */
static void what_is_not_known_is_not_kept(void **state)
{
    struct world *w = new_world(0, 2, 32, 512);
    struct scheduler_output out;
    (void)state;

    (void)mallopt(M_PERTURB, 0xfe); /* memory that is not written holds 0x01010101 */
    fill(&w->wishes[0], 1, 319, 319);
    w->wishes[0].max_tokens = 20;
    add(w, "", 0);
    assert_true(plan(w));
    plan_ahead(w);
    assert_int_equal(w->n_ahead, 1);
    scheduler_remove(w->s, 0);
    note_end(w, 0, REASON_CANCELLED);
    run_out(w);
    w->wishes[1] = w->wishes[0];
    w->wishes[1].ended = 0;
    w->wishes[1].prompt[319] = 0x01010101;
    w->wishes[1].n_prompt = 321;
    add(w, "", 0);
    assert_int_equal(scheduler_plan(w->s, ++w->steps, &out, NULL), ERR_OK);
    assert_int_equal(out.n_begins, 1);
    assert_int_equal(out.begins[0].n_cached, 319);
    (void)mallopt(M_PERTURB, 0);
    scheduler_free(&w->s);
    free(w);
}

static void lengths_end_requests(void **state)
{
    struct world *w = new_world(0, 2, 4, 64); /* 256 positions */
    (void)state;

    fill(&w->wishes[0], 1, 250, 250);
    w->wishes[0].max_tokens = -1;
    add(w, "", 0);
    run_out(w);
    assert_int_equal(w->wishes[0].reason, REASON_LENGTH);
    assert_int_equal(w->wishes[0].n_got, 7); /* the last one needs no place */
    fill(&w->wishes[1], 1, 300, 300);
    w->wishes[1].max_tokens = 5;
    add(w, "", 0);
    run_out(w);
    assert_int_equal(w->wishes[1].reason, REASON_FAILED); /* the context was larger once */
    assert_int_equal(w->wishes[1].n_got, 0);
    nothing_is_lost(w);
    free(w);
}

static void one_client_with_many_requests_has_half(void **state)
{
    struct world *w = new_world(0, 4, 64, 64);
    int a = 0, b = 0;
    (void)state;

    for (int k = 0; k < 60; k++) {
        int second = k >= 40; /* the other client comes later, with fewer */
        fill(&w->wishes[w->n], k, 0, 30);
        w->wishes[w->n].max_tokens = 20;
        add(w, second ? "b" : "a", 0);
        if (k == 39)
            for (int i = 0; i < 10; i++)
                turn(w);
    }
    for (int k = 0; k < 40; k++)
        a -= w->wishes[k].n_got;
    for (int i = 0; i < 100; i++)
        turn(w);
    for (int k = 0; k < 60; k++)
        *(k < 40 ? &a : &b) += w->wishes[k].n_got;
    if (!(b > a * 8 / 10 && a > b * 8 / 10))
        fail_msg("client a got %d tokens, b %d", a, b);
    run_out(w);
    nothing_is_lost(w);
    free(w);
}

/* Eight clients with one request after the other, more than two sequences can serve, and one with
 * ten at once: it has a ninth of the tokens, and none of the others can count as new each time. */
static void who_comes_and_goes_starves_nobody(void **state)
{
    enum { OTHERS = 8, TEN = 10 };
    struct world *w = new_world(0, 2, 64, 64);
    int of[OTHERS] = { 0 }, ended = 0; /* of: the request of each, 0: none */
    (void)state;

    for (int k = 0; k < TEN; k++) {
        fill(&w->wishes[w->n], k, 0, 30);
        w->wishes[w->n].max_tokens = 20;
        add(w, "ten", 0);
    }
    while (w->n < 200) {
        for (int i = 0; i < OTHERS; i++) {
            char name[2] = { (char)('a' + i), 0 };
            if (of[i] && !w->wishes[of[i]].ended)
                continue;
            fill(&w->wishes[w->n], i, 0, 30);
            w->wishes[w->n].max_tokens = 20;
            of[i] = w->n;
            add(w, name, 0);
        }
        turn(w);
    }
    for (int k = 0; k < TEN; k++)
        ended += w->wishes[k].ended;
    assert_int_equal(ended, TEN);
    run_out(w);
    nothing_is_lost(w);
    free(w);
}

static void a_higher_priority_goes_first(void **state)
{
    struct world *w = new_world(0, 2, 64, 64);
    (void)state;

    for (int k = 0; k < 6; k++) {
        fill(&w->wishes[w->n], k, 0, 30);
        w->wishes[w->n].max_tokens = 50;
        add(w, "a", 0);
    }
    for (int i = 0; i < 10; i++)
        turn(w);
    fill(&w->wishes[w->n], 9, 0, 30);
    w->wishes[w->n].max_tokens = 20;
    add(w, "a", 5);
    for (int i = 0; i < 20; i++)
        turn(w);
    assert_int_equal(w->wishes[6].n_got, 20);
    run_out(w);
    nothing_is_lost(w);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_text_is_that_of_the_request_alone),
        cmocka_unit_test(the_second_turn_of_a_chat_is_cached),
        cmocka_unit_test(a_request_goes_on_where_it_was),
        cmocka_unit_test(a_failed_sum_ends_one_request_and_zeroes_its_pages),
        cmocka_unit_test(a_failure_while_a_step_is_ahead),
        cmocka_unit_test(what_is_not_known_is_not_kept),
        cmocka_unit_test(lengths_end_requests),
        cmocka_unit_test(one_client_with_many_requests_has_half),
        cmocka_unit_test(who_comes_and_goes_starves_nobody),
        cmocka_unit_test(a_higher_priority_goes_first),
    };
    return cmocka_run_group_tests_name("daemon/scheduler", tests, NULL, NULL);
}
