/* SPDX-License-Identifier: MIT */
/* tests/rank/shapes_test.c MKMODEL - shapes that no small model has, held against themselves.
 *
 * Models of every family's proportions with random weights are written to a temporary
 * folder.  For each: both forms of attention agree, all layouts give the same logits, and
 * no bit depends on pieces of the prompt, threads or instruction set.  What the logits
 * should be is another question: tests/tools/reference_test.sh.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "model/layout_convert.h"
#include "rank/engine.h"
#include "tests/support/golden.h"
#include "tests/support/make_model.h"
#include "tests/support/temp_dir.h"

#ifdef __SANITIZE_ADDRESS__ /* ten times as slow */
enum { N_TOKENS = 36, VOCAB = 333 };
#else
enum { N_TOKENS = 70, VOCAB = 333 };
#endif

/* What all have: few layers, a vocabulary that 16 does not divide. */
#define SMALL "--layers 2 --dense 1 --vocab 333 "

static const struct row {
    const char *name, *options;
    int is_float; /* all weights, so that layouts can be exact */
} rows[] = {
    {"glm",
     SMALL "--preset glm-flash --d-model 128 --d-ffn 192 --q-lora 96 --kv-lora 128 --heads 5 "
            "--experts 8 --d-expert 64 --type F16",                                 1},
    { "kimi",
     SMALL "--preset kimi --d-model 128 --d-ffn 256 --q-lora 128 --kv-lora 64 --heads 8 "
            "--d-nope 32 --d-v 32 --d-expert 32 --type Q8_0",                       0},
    { "v2-lite",
     SMALL "--preset v2-lite --d-model 256 --d-ffn 480 --kv-lora 256 --heads 2 --experts 8 "
            "--d-expert 352 --type Q4_K --small-type Q5_0",                         0},
    { "v2",
     SMALL "--preset v2 --d-model 64 --d-ffn 96 --q-lora 64 --kv-lora 64 --heads 3 --d-nope 32 "
            "--d-v 64 --d-expert 32 --type BF16 --small-type BF16",                 1},
    { "mistral",
     SMALL "--preset mistral --dense 0 --d-model 256 --q-lora 256 --kv-lora 256 --heads 2 "
            "--experts 8 --d-expert 256 --type IQ4_XS",                             0},
    { "odd widths",
     SMALL "--preset tiny-v3 --d-model 100 --d-ffn 200 --q-lora 60 --kv-lora 72 --heads 3 "
            "--d-nope 24 --d-rope 12 --d-v 40 --shared 0 --d-expert 56 --type F32", 1},
};

static char path[] = "model.gguf", converted[] = "converted.gguf";
static char *mkmodel;
static int32_t tokens[N_TOKENS];

static void keep_row(void *arg, int64_t pos, const float *logits)
{
    memcpy((float *)arg + pos * VOCAB, logits, VOCAB * sizeof *logits);
}

/* Logits of all positions, fed in pieces; the caller frees them. */
static float *logits_of(const char *file, const struct engine_options *o, int64_t piece)
{
    float *out = malloc(sizeof *out * N_TOKENS * VOCAB);
    struct engine *engine = NULL;
    struct model *m = NULL;
    struct err e = { 0 };

    assert_non_null(out);
    if (model_open(&m, file, 0, NULL, 0, &e) != ERR_OK ||
        engine_create(&engine, m, o, &e) != ERR_OK)
        fail_msg("%s: %s", file, e.msg);
    assert_int_equal(m->hp.n_vocab, VOCAB);
    engine_begin(engine, 0, N_TOKENS);
    for (int64_t i = 0; i < N_TOKENS; i += piece)
        if (engine_feed(engine, 0, tokens + i, N_TOKENS - i < piece ? N_TOKENS - i : piece,
                        ENGINE_ALL, keep_row, out, &e) != ERR_OK)
            fail_msg("%s: %s", file, e.msg);
    engine_free(&engine);
    model_close(&m);
    return out;
}

static struct engine_options options(int exact, int mla)
{
    struct engine_options o;

    engine_options_default(&o);
    o.n_threads = 2;
    o.n_context = 128;
    o.cache_type = CACHE_F32;
    o.exact_math = exact;
    o.mla = mla;
    return o;
}

static void assert_near(const struct row *r, const char *what, const float *got, const float *want,
                        double limit)
{
    double error = relative_error(got, want, (int64_t)N_TOKENS * VOCAB);

    if (!(error <= limit))
        fail_msg("%s: %s differs by %.2e, at most %.0e", r->name, what, error, limit);
}

static int same_bits(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

static void check_bits(const struct row *r, int exact)
{
    static const struct {
        int threads, batch;
        const char *isa;
        int64_t piece;
    } cuts[] = {
        {1,  512, NULL,       1       },
        { 3, 7,   NULL,       N_TOKENS},
        { 2, 64,  "portable", 33      },
    };
    struct engine_options o = options(exact, 3);
    float *want = logits_of(path, &o, N_TOKENS);

    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        o.n_threads = cuts[i].threads;
        o.max_batch = cuts[i].batch;
        o.cpu_isa = cuts[i].isa;
        float *got = logits_of(path, &o, cuts[i].piece);
        if (!same_bits(got, want, sizeof *got * N_TOKENS * VOCAB))
            fail_msg("%s: other bits with cut %zu", r->name, i);
        free(got);
    }
    free(want);
}

static void check_forms_and_layouts(const struct row *r)
{
    struct engine_options expanded = options(1, 0), absorbed = options(1, 1);
    float *want = logits_of(path, &expanded, N_TOKENS), *got = logits_of(path, &absorbed, N_TOKENS);
    struct err e = { 0 };

    assert_near(r, "absorbed", got, want, 1e-4);
    free(got);
    for (int l = LAYOUT_LEGACY; r->is_float && l <= LAYOUT_MAINLINE; l++) {
        if (layout_convert(path, converted, (enum attn_layout)l, LAYOUT_OVERWRITE, &e) != ERR_OK)
            fail_msg("%s: %s", r->name, e.msg);
        got = logits_of(converted, &expanded, N_TOKENS);
        assert_near(r, attn_layout_name((enum attn_layout)l), got, want, 1e-6);
        free(got);
    }
    free(want);
}

static void shape_holds(void **state)
{
    const struct row *r = *state;

    assert_int_equal(make_model(mkmodel, r->options, path), 0);
    check_bits(r, 0);
    check_bits(r, 1);
    check_forms_and_layouts(r);
}

int main(int argc, char **argv)
{
    enum { N_ROWS = sizeof rows / sizeof rows[0] };
    struct CMUnitTest tests[N_ROWS];

    if (argc != 2)
        return 2;
    mkmodel = argv[1];
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 97 + 11) % VOCAB;
    for (int i = 0; i < N_ROWS; i++)
        tests[i] = (struct CMUnitTest){ .name = rows[i].name,
                                        .test_func = shape_holds,
                                        .initial_state = (void *)&rows[i] };
    return cmocka_run_group_tests(tests, temp_dir_enter, temp_dir_remove);
}
