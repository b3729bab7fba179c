/* SPDX-License-Identifier: MIT */
/* tests/rank/bits_test.c - the same logits, bit for bit, however the work is cut.
 *
 * Chunks of the prompt, neighbours in the batch, threads and instruction sets must not
 * change a bit (docs/design.md, section 8).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "rank/engine.h"
#include "tests/support/golden.h"

enum { PRODUCED = 5 }; /* tokens fed after the prompt */

/* Tokens and threads, at most.  A sanitizer makes all ten times as long, and sees no more of more.
 */
#ifdef __SANITIZE_ADDRESS__
enum { FEW = 27, SOME = 115, MANY = 170, THREADS = 3, SHORT = 20, LONG = 511, STRIDE = 300 };
#else
enum { FEW = 70, SOME = 150, MANY = 300, THREADS = 5, SHORT = 70, LONG = 500, STRIDE = 13 };
#endif

static struct model *model;
static int32_t *prompt;
static int64_t prompt_len;

static struct engine *engine_of(const struct engine_options *o)
{
    struct engine *e = NULL;
    struct err err = { 0 };

    if (engine_create(&e, model, o, &err) != ERR_OK)
        fail_msg("%s", err.msg);
    return e;
}

static struct engine_options options(int threads, int max_batch)
{
    struct engine_options o;

    engine_options_default(&o);
    o.n_threads = threads;
    o.max_batch = max_batch;
    o.n_sequences = 3;
    o.n_context = 4096;
    return o;
}

static struct engine *engine_with(int threads, const char *isa, int max_batch, int mla)
{
    struct engine_options o = options(threads, max_batch);

    o.cpu_isa = isa;
    o.mla = mla;
    return engine_of(&o);
}

static void keep(void *arg, int64_t pos, const float *logits)
{
    (void)pos;
    memcpy(arg, logits, (size_t)model->hp.n_vocab * sizeof *logits);
}

/* The logits after n prompt tokens and PRODUCED produced ones, fed in pieces of `piece`. */
static float *last_logits(struct engine *e, int seq, int64_t n, int64_t piece)
{
    struct err err = { 0 };
    float *out = malloc((size_t)model->hp.n_vocab * sizeof *out);

    assert_non_null(out);
    engine_begin(e, seq, n);
    for (int64_t i = 0; i < n; i += piece)
        if (engine_feed(e, seq, prompt + i, n - i < piece ? n - i : piece, ENGINE_NONE, NULL, NULL,
                        &err) != ERR_OK)
            fail_msg("%s", err.msg);
    for (int i = 0; i < PRODUCED; i++)
        if (engine_feed(e, seq, prompt + i, 1, ENGINE_LAST, keep, out, &err) != ERR_OK)
            fail_msg("%s", err.msg);
    return out;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static void assert_same(const float *a, const float *b, const char *what)
{
    for (int i = 0; i < model->hp.n_vocab; i++)
        if (bits_of(a[i]) != bits_of(b[i]))
            fail_msg("%s: logit %d is %.9g, not %.9g", what, i, (double)a[i], (double)b[i]);
}

static void pieces_do_not_matter(void **state)
{
    static const struct {
        int64_t n, piece; /* of 13 tokens a step at most */
        int mla;
    } cuts[] = {
        {FEW,   1,   0},
        { FEW,  1,   1},
        { FEW,  1,   3},
        { SOME, 100, 0},
        { SOME, 100, 1},
        { MANY, 64,  3},
        { MANY, 100, 3},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct engine *whole = engine_with(2, NULL, 512, cuts[i].mla);
        struct engine *small = engine_with(2, NULL, 13, cuts[i].mla);
        float *want = last_logits(whole, 0, cuts[i].n, cuts[i].n);
        float *got = last_logits(small, 0, cuts[i].n, cuts[i].piece);
        assert_same(got, want, "pieces");
        free(want);
        free(got);
        engine_free(&whole);
        engine_free(&small);
    }
}

static void threads_do_not_matter(void **state)
{
    struct engine *one = engine_with(1, NULL, 512, 3);
    float *want = last_logits(one, 0, prompt_len, prompt_len);

    (void)state;
    for (int threads = 2; threads <= THREADS; threads++) {
        struct engine *e = engine_with(threads, NULL, 512, 3);
        float *got = last_logits(e, 0, prompt_len, 90);
        assert_same(got, want, "threads");
        free(got);
        engine_free(&e);
    }
    free(want);
    engine_free(&one);
}

static void instruction_sets_do_not_matter(void **state)
{
    struct engine *portable = engine_with(2, "portable", 512, 3);
    float *want = last_logits(portable, 0, 40, 40);

    (void)state;
    for (const struct cpu_kernels *const *k = cpu_kernels_all; *k; k++) {
        if (!cpu_kernels_by_name((*k)->isa))
            continue;
        struct engine *e = engine_with(2, (*k)->isa, 512, 3);
        float *got = last_logits(e, 0, 40, 40);
        assert_same(got, want, (*k)->isa);
        free(got);
        engine_free(&e);
    }
    free(want);
    engine_free(&portable);
}

/* Three sequences of different lengths share every step; each must be as if alone. */
static void neighbours_do_not_matter(void **state)
{
    static const int64_t lengths[3] = { 30, 45, 61 };
    struct engine *e = engine_with(2, NULL, 16, 3);
    int64_t vocab = model->hp.n_vocab, fed[3] = { 0 };
    float *rows = malloc((size_t)(16 * vocab) * sizeof *rows), *got[3] = { NULL };
    struct batch_token tokens[16];
    struct err err = { 0 };

    (void)state;
    assert_non_null(rows);
    for (int s = 0; s < 3; s++) {
        got[s] = malloc((size_t)vocab * sizeof **got);
        assert_non_null(got[s]);
        engine_begin(e, s, lengths[s]);
    }
    for (int step = 0;; step++) {
        struct batch b = { .tokens = tokens };
        int owner[16], n_rows = 0;
        for (int s = 0; s < 3; s++) {
            for (int i = 0; i < 1 + (step + s) % 5 && fed[s] < lengths[s] + PRODUCED; i++) {
                int64_t at = fed[s]++;
                int last = fed[s] == lengths[s] + PRODUCED;
                tokens[b.n++] = (struct batch_token){
                    .id = at < lengths[s] ? prompt[at] : prompt[at - lengths[s]],
                    .seq = s,
                    .want_logits = last,
                };
                if (last)
                    owner[n_rows++] = s;
            }
        }
        if (b.n == 0)
            break;
        assert_int_equal(engine_step(e, &b, rows, &err), ERR_OK);
        for (int r = 0; r < n_rows; r++)
            memcpy(got[owner[r]], rows + r * vocab, (size_t)vocab * sizeof *rows);
    }
    for (int s = 0; s < 3; s++) {
        float *want = last_logits(e, 0, lengths[s], lengths[s]);
        assert_same(got[s], want, "neighbours");
        free(want);
        free(got[s]);
    }
    free(rows);
    engine_free(&e);
}

/* Every length would take a minute: all of the short ones, those about the end of a piece of 512,
 * and some between, which the tiles of the kernels do not divide. */
static void every_prompt_length_works(void **state)
{
    struct engine *e = engine_with(2, NULL, 512, 3);
    int32_t *tokens = malloc(513 * sizeof *tokens);
    float *out = malloc((size_t)model->hp.n_vocab * sizeof *out);
    struct err err = { 0 };

    (void)state;
    assert_non_null(tokens);
    assert_non_null(out);
    for (int i = 0; i < 513; i++)
        tokens[i] = prompt[i % prompt_len];
    for (int64_t n = 1; n <= 513; n += n < SHORT || n >= LONG ? 1
                                       : n + STRIDE > LONG    ? LONG - n
                                                              : STRIDE) {
        engine_begin(e, 0, n);
        if (engine_feed(e, 0, tokens, n, ENGINE_LAST, keep, out, &err) != ERR_OK)
            fail_msg("length %lld: %s", (long long)n, err.msg);
        for (int i = 0; i < model->hp.n_vocab; i++)
            if (!(fabsf(out[i]) < 1e6f))
                fail_msg("length %lld: logit %d is %g", (long long)n, i, (double)out[i]);
    }
    free(out);
    free(tokens);
    engine_free(&e);
}

/* A cache that is full answers, feeds nothing, and serves again once there is room. */
static void full_cache_refuses(void **state)
{
    struct engine_options o = options(1, 64);
    struct err err = { 0 };
    int64_t n = 0;

    o.n_context = 768;
    struct engine *e = engine_of(&o);

    (void)state;
    engine_begin(e, 0, 1 << 20);
    while (engine_feed(e, 0, prompt, 256, ENGINE_NONE, NULL, NULL, &err) == ERR_OK)
        n += 256;
    assert_int_equal(err.code, ERR_FULL);
    assert_int_equal(n, engine_context(e));
    assert_int_equal(engine_length(e, 0), n);
    engine_begin(e, 0, 256);
    assert_int_equal(engine_feed(e, 0, prompt, 256, ENGINE_NONE, NULL, NULL, &err), ERR_OK);
    engine_free(&e);
}

static void foreign_token_is_refused(void **state)
{
    struct engine *e = engine_with(1, NULL, 64, 3);
    int32_t bad[2] = { 1, model->hp.n_vocab };
    struct err err = { 0 };

    (void)state;
    engine_begin(e, 0, 2);
    assert_int_equal(engine_feed(e, 0, bad, 2, ENGINE_NONE, NULL, NULL, &err), ERR_USAGE);
    assert_int_equal(engine_length(e, 0), 0);
    engine_free(&e);
}

int main(void)
{
    struct err err = { 0 };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_do_not_matter),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(instruction_sets_do_not_matter),
        cmocka_unit_test(neighbours_do_not_matter),
        cmocka_unit_test(every_prompt_length_works),
        cmocka_unit_test(full_cache_refuses),
        cmocka_unit_test(foreign_token_is_refused),
    };

    prompt = prompt_read("p300", &prompt_len);
    if (!prompt ||
        model_open(&model, TEST_DATA "/models/tiny-v3-q4_k_m.gguf", 0, NULL, 0, &err) != ERR_OK) {
        print_error("%s\n", err.msg);
        return 1;
    }
    int failed = cmocka_run_group_tests_name("rank/bits", tests, NULL, NULL);
    model_close(&model);
    free(prompt);
    return failed;
}
