/* SPDX-License-Identifier: MIT */
/* tests/rank/pages_test.c - pages of the latent cache: references, and steps that move them.
 *
 * A driver's steps are built here by hand: what is mapped, shared, copied and zeroed must be
 * what attention then reads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "rank/engine.h"
#include "rank/pager.h"

enum { N_PROMPT = 100, VOCAB_MAX = 4096 };

static struct model *model;

static void references_are_counted(void **state)
{
    struct pager *p = NULL;
    struct err e = { 0 };

    (void)state;
    assert_int_equal(pager_create(&p, 3, &e), ERR_OK);
    int32_t a = pager_take(p), b = pager_take(p), c = pager_take(p);
    assert_true(a != b && b != c && a != c);
    assert_int_equal(pager_take(p), -1);
    pager_share(p, b);
    pager_release(p, b);
    assert_int_equal(pager_count_free(p), 0);
    assert_int_equal(pager_references(p, b), 1);
    pager_release(p, b);
    assert_int_equal(pager_count_free(p), 1);
    assert_int_equal(pager_take(p), b);
    pager_free(&p);
    assert_null(p);
}

static struct engine *open_engine(void)
{
    struct engine_options o;
    struct engine *engine = NULL;
    struct err e = { 0 };

    engine_options_default(&o);
    o.n_threads = 2;
    o.n_sequences = 2;
    o.n_context = 512;
    if (engine_create(&engine, model, &o, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return engine;
}

/* Positions [from, to) of a sequence as prompt tokens; the last one's logits are wanted. */
static struct batch tokens_of(struct batch_token *t, int seq, int from, int to)
{
    for (int i = from; i < to; i++)
        t[i - from] = (struct batch_token){ .id = 3 + i * 7 % 100,
                                            .seq = seq,
                                            .pos = i,
                                            .form = MLA_ABSORBED,
                                            .want_logits = i + 1 == to };
    return (struct batch){ .n = to - from, .tokens = t };
}

static void run(struct engine *engine, struct step *s, float *logits)
{
    struct err e = { 0 };

    if (engine_run_step(engine, s, logits, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (int i = 0; i < s->batch.n; i++)
        assert_int_equal(s->batch.tokens[i].bad_layer, 0);
}

static void pages_are_obeyed(void **state)
{
    struct engine *engine = open_engine();
    struct batch_token t[N_PROMPT];
    static float want[VOCAB_MAX], got[VOCAB_MAX];
    size_t bytes = (size_t)model->hp.n_vocab * sizeof *want;
    struct step_map first[] = {
        {0,  0, 5},
        { 0, 1, 2}
    };
    struct step_map shared[] = {
        {1,  0, 5},
        { 1, 1, 7}
    };
    struct step_copy copy = { 2, 7 };
    struct step_zero zero = { 2 };
    struct step_reset reset = { 1 };
    struct err e = { 0 };

    (void)state;
    assert_true(model->hp.n_vocab <= VOCAB_MAX);
    assert_int_equal(engine_limits(engine)->n_pages, 8);
    struct step s = { .n_maps = 2, .maps = first, .batch = tokens_of(t, 0, 0, N_PROMPT) };
    run(engine, &s, want);

    /* The second sequence shares the first page and has a copy of the other. */
    s = (struct step){ .n_maps = 2,
                       .maps = shared,
                       .n_copies = 1,
                       .copies = &copy,
                       .batch = tokens_of(t, 1, N_PROMPT - 1, N_PROMPT) };
    run(engine, &s, got);
    assert_memory_equal(got, want, bytes);

    /* What happens to the page that was copied is nothing to it; to its owner it is. */
    s = (struct step){ .n_zeros = 1, .zeros = &zero };
    run(engine, &s, NULL);
    s = (struct step){ .batch = tokens_of(t, 1, N_PROMPT - 1, N_PROMPT) };
    run(engine, &s, got);
    assert_memory_equal(got, want, bytes);
    s = (struct step){ .batch = tokens_of(t, 0, N_PROMPT - 1, N_PROMPT) };
    run(engine, &s, got);
    assert_memory_not_equal(got, want, bytes);

    /* A table that was reset holds nothing. */
    s = (struct step){ .n_resets = 1,
                       .resets = &reset,
                       .batch = tokens_of(t, 1, N_PROMPT - 1, N_PROMPT) };
    assert_int_equal(engine_run_step(engine, &s, got, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "sequence 1 has no page"));
    engine_free(&engine);
}

int main(void)
{
    struct err e = { 0 };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(references_are_counted),
        cmocka_unit_test(pages_are_obeyed),
    };

    if (model_open(&model, TEST_DATA "/models/tiny-v3-q4_k_m.gguf", 0, NULL, 0, &e) != ERR_OK) {
        print_error("%s\n", e.msg);
        return 1;
    }
    int failed = cmocka_run_group_tests_name("rank/pages", tests, NULL, NULL);
    model_close(&model);
    return failed;
}
