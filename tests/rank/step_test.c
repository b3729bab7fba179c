/* SPDX-License-Identifier: MIT */
/* tests/rank/step_test.c - steps as bytes and back, and every way of going beyond the limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "rank/step.h"

static const struct step_limits limits = {
    .n_vocab = 100, .n_sequences = 4, .n_pages = 8, .max_batch = 16, .n_context = 256
};

/* One of everything. */
struct sample {
    struct step step;
    struct step_reset reset;
    struct step_map map;
    struct step_zero zero;
    struct step_copy copy;
    struct batch_token tokens[3];
};

static void fill(struct sample *s)
{
    *s = (struct sample){
        .reset = {3 },
          .map = {  3, 2, 7 },
          .zero = { 5},
          .copy = {  6, 7 }
    };
    s->tokens[0] =
        (struct batch_token){ .id = 99, .seq = 3, .pos = 254, .form = MLA_ABSORBED, .produced = 1 };
    s->tokens[1] = (struct batch_token){ .sampled = 1, .seq = 3, .pos = 255, .form = MLA_ABSORBED };
    s->tokens[1].want_logits = 1;
    s->tokens[2] = (struct batch_token){ .id = 7, .form = MLA_EXPANDED };
    s->step = (struct step){
        .id = INT64_MAX,
        .n_resets = 1,
        .n_maps = 1,
        .n_zeros = 1,
        .n_copies = 1,
        .resets = &s->reset,
        .maps = &s->map,
        .zeros = &s->zero,
        .copies = &s->copy,
        .batch = {.n = 3, .tokens = s->tokens}
    };
}

static void a_step_comes_back(void **state)
{
    struct sample s;
    struct step got;
    struct str bytes = { 0 };
    struct err e = { 0 };
    (void)state;

    fill(&s);
    assert_int_equal(step_encode(&s.step, &bytes, &e), ERR_OK);
    if (step_decode(&got, bytes.data, bytes.len, &limits, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(got.id, INT64_MAX);
    assert_memory_equal(got.resets, &s.reset, sizeof s.reset);
    assert_memory_equal(got.maps, &s.map, sizeof s.map);
    assert_memory_equal(got.zeros, &s.zero, sizeof s.zero);
    assert_memory_equal(got.copies, &s.copy, sizeof s.copy);
    assert_int_equal(got.batch.n, 3);
    for (int i = 0; i < 3; i++) {
        const struct batch_token *a = &s.tokens[i], *b = &got.batch.tokens[i];
        assert_int_equal(a->id, b->id);
        assert_int_equal(a->seq, b->seq);
        assert_int_equal(a->pos, b->pos);
        assert_int_equal(a->form, b->form);
        assert_int_equal(a->produced, b->produced);
        assert_int_equal(a->want_logits, b->want_logits);
        assert_int_equal(a->sampled, b->sampled);
        assert_int_equal(b->bad_layer, 0);
    }
    step_free(&got);
    str_free(&bytes);
}

static void a_cut_or_longer_step_is_refused(void **state)
{
    struct sample s;
    struct step got;
    struct str bytes = { 0 };
    (void)state;

    fill(&s);
    assert_int_equal(step_encode(&s.step, &bytes, NULL), ERR_OK);
    for (size_t n = 0; n < bytes.len; n++)
        assert_int_equal(step_decode(&got, bytes.data, n, &limits, NULL), ERR_FORMAT);
    str_append(&bytes, "", 1);
    assert_int_equal(step_decode(&got, bytes.data, bytes.len, &limits, NULL), ERR_FORMAT);
    str_free(&bytes);
}

#define FIELD(member, value, says)                                                         \
    {                                                                                      \
        offsetof(struct sample, member), value, sizeof(((struct sample *)0)->member), says \
    }
/* One change that makes the step wrong, and what the message must name. */
static const struct wrong {
    size_t at;
    int64_t value;
    int size;
    const char *says;
} wrongs[] = {
    FIELD(reset.seq, 4, "reset of sequence 4"),
    FIELD(reset.seq, -1, "reset of sequence -1"),
    FIELD(map.seq, 4, "map of sequence 4"),
    FIELD(map.index, 4, "map of index 4"),
    FIELD(map.page, 8, "map to page 8"),
    FIELD(zero.page, -1, "zeros for page -1"),
    FIELD(copy.from, 8, "copy of page 8"),
    FIELD(copy.to, 8, "copy to page 8"),
    FIELD(tokens[2].id, 100, "token 100"),
    FIELD(tokens[2].id, -1, "token -1"),
    FIELD(tokens[2].seq, 4, "token of sequence 4"),
    FIELD(tokens[2].pos, 256, "position 256"),
    FIELD(tokens[2].pos, -1, "position -1"),
    FIELD(tokens[1].pos, 253, "position 253 of sequence 3 follows position 254"),
    FIELD(tokens[1].seq, 1, ""), /* alone that is no error: two sequences */
    FIELD(tokens[2].seq, 3, "follows position 255"),
};

static void what_goes_beyond_the_limits_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        const struct wrong *w = &wrongs[i];
        struct sample s;
        struct step got;
        struct str bytes = { 0 };
        struct err e = { 0 };

        fill(&s);
        int32_t narrow = (int32_t)w->value;
        memcpy((char *)&s + w->at, w->size == 8 ? (const void *)&w->value : (const void *)&narrow,
               (size_t)w->size);
        assert_int_equal(step_encode(&s.step, &bytes, NULL), ERR_OK);
        enum err_code rc = step_decode(&got, bytes.data, bytes.len, &limits, &e);
        if (*w->says ? rc != ERR_FORMAT || !strstr(e.msg, w->says) : rc != ERR_OK)
            fail_msg("case %zu: %d, '%s', should say '%s'", i, rc, e.msg, w->says);
        if (rc == ERR_OK)
            step_free(&got);
        str_free(&bytes);
    }
}

static void tokens_of_a_sequence_stand_together(void **state)
{
    struct batch_token tokens[] = {
        {.seq = 1,  .pos = 0},
        { .seq = 2, .pos = 5},
        { .seq = 1, .pos = 1}
    };
    struct step s = { .batch = { .n = 3, .tokens = tokens } }, got;
    struct str bytes = { 0 };
    struct err e = { 0 };
    (void)state;

    assert_int_equal(step_encode(&s, &bytes, NULL), ERR_OK);
    assert_int_equal(step_decode(&got, bytes.data, bytes.len, &limits, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "do not stand together"));
    str_free(&bytes);
}

static void a_probe_is_a_step_without_tokens(void **state)
{
    struct step s = { .id = 1 }, got;
    struct str bytes = { 0 };
    (void)state;

    assert_int_equal(step_encode(&s, &bytes, NULL), ERR_OK);
    assert_int_equal(step_decode(&got, bytes.data, bytes.len, &limits, NULL), ERR_OK);
    assert_int_equal(got.batch.n, 0);
    step_free(&got);
    str_free(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_comes_back),
        cmocka_unit_test(a_cut_or_longer_step_is_refused),
        cmocka_unit_test(what_goes_beyond_the_limits_is_named),
        cmocka_unit_test(tokens_of_a_sequence_stand_together),
        cmocka_unit_test(a_probe_is_a_step_without_tokens),
    };
    return cmocka_run_group_tests_name("rank/step", tests, NULL, NULL);
}
