/* SPDX-License-Identifier: MIT */
/* tests/tools/mkmodel_test.c - random weights have the size they promise, and the files that
 * mkmodel writes open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/random_weights.h"

static const char *mkmodel; /* the program */

/* ---- Weights ------------------------------------------------------------ */

static void weights_have_their_size(void **state)
{
    enum { N = 1024, ROWS = 64 };
    static uint8_t rows[ROWS * N * sizeof(float)];
    static float w[N];
    (void)state;
    for (int t = 0; t < QUANT_COUNT; t++) {
        struct random_weights r;
        size_t row_bytes = quant_row_bytes((enum quant)t, N);
        double sum = 0, squares = 0, rms;
        if (!random_weights_knows((enum quant)t))
            continue;
        random_weights_start(&r, 7, "blk.0.attn_q.weight", (enum quant)t, N);
        random_weights_fill(&r, ROWS, rows);
        for (int i = 0; i < ROWS; i++) {
            const uint8_t *row = rows + (size_t)i * row_bytes;
            assert_int_equal(quant_find_nonfinite((enum quant)t, row, N), -1);
            quant_dequantize_row((enum quant)t, row, N, w);
            for (int c = 0; c < N; c++) {
                sum += (double)w[c];
                squares += (double)w[c] * (double)w[c];
            }
        }
        rms = sqrt(squares / (ROWS * N));
        if (!(rms * sqrt(N) > 0.65 && rms * sqrt(N) < 1.5))
            fail_msg("%s: rms %g of rows of %d", quant_info[t].name, rms, N);
        if (!(fabs(sum) / (ROWS * N) < 0.25 * rms))
            fail_msg("%s: mean %g", quant_info[t].name, sum / (ROWS * N));
    }
}

static void seeds_and_names_decide(void **state)
{
    struct random_weights r;
    uint8_t a[144], b[144];
    (void)state;
    random_weights_start(&r, 1, "x", QUANT_Q4_K, 256);
    random_weights_fill(&r, 1, a);
    random_weights_start(&r, 1, "x", QUANT_Q4_K, 256);
    random_weights_fill(&r, 1, b);
    assert_memory_equal(a, b, sizeof a);
    random_weights_fill(&r, 1, b);
    assert_memory_not_equal(a, b, sizeof a);
    random_weights_start(&r, 2, "x", QUANT_Q4_K, 256);
    random_weights_fill(&r, 1, b);
    assert_memory_not_equal(a, b, sizeof a);
    random_weights_start(&r, 1, "y", QUANT_Q4_K, 256);
    random_weights_fill(&r, 1, b);
    assert_memory_not_equal(a, b, sizeof a);
}

/* ---- Files -------------------------------------------------------------- */

enum { MAX_ARGS = 24 };

/* Runs mkmodel with blank-separated options; returns its exit status. */
static int run(const char *options)
{
    char words[1024], *args[MAX_ARGS + 1] = { 0 }, *rest = words;
    int n = 0, status;
    pid_t pid;

    (void)snprintf(words, sizeof words, "%s %s", mkmodel, options);
    while (n < MAX_ARGS && (args[n] = strtok_r(rest, " ", &rest)))
        n++;
    assert_int_equal(posix_spawn(&pid, mkmodel, NULL, NULL, args, NULL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The vocabulary takes any bytes and gives them back. */
static void expect_tokenizer(const struct gguf *g)
{
    static const char text[] = "the  rain\n\xc3\xa4\xff\0 1";
    struct token_list ids = { 0 };
    struct tokenizer *t = NULL;
    struct str back = { 0 };
    struct err e = { 0 };

    if (tokenizer_open(&t, g, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(tokenizer_encode(t, text, sizeof text, TOKENIZE_BOS, &ids, &e), ERR_OK);
    assert_int_equal(ids.ids[0], 0);
    assert_true(ids.n < 1 + sizeof text); /* "he" and others are one token */
    for (size_t i = 0; i < ids.n; i++)
        tokenizer_decode(t, ids.ids[i], 0, &back);
    assert_int_equal(back.len, sizeof text);
    assert_memory_equal(back.data, text, sizeof text);
    str_free(&back);
    token_list_free(&ids);
    tokenizer_close(&t);
}

/* Opens a file and reads every tensor with the check for NaN. */
static void expect_sound(const char *path, int n_layers, enum attn_layout layout)
{
    struct model *m = NULL;
    struct err e = { 0 };

    if (model_open(&m, path, 0, NULL, 0, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(m->hp.n_layers, n_layers);
    assert_int_equal(m->hp.layout, layout);
    for (int i = 0; i < gguf_tensor_count(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        uint8_t *rows = malloc(t->bytes);
        if (model_read_rows(m, t, 0, tensor_rows(t), 1, rows, &e) != ERR_OK)
            fail_msg("%s", e.msg);
        free(rows);
    }
    assert_int_equal(gguf_find(m->gguf, "tokenizer.ggml.tokens")->value.count, m->hp.n_vocab);
    expect_tokenizer(m->gguf);
    model_close(&m);
}

static void files_open(void **state)
{
    static const struct {
        const char *options;
        int n_layers;
        enum attn_layout layout;
    } rows[] = {
        {"",                                                          3, LAYOUT_MAINLINE},
        { "--layout legacy --type Q8_0 --layers 2",                   2, LAYOUT_LEGACY  },
        { "--layout ik --type iq4_ks --small-type q6_0",              3, LAYOUT_IK      },
        { "--preset tiny-v2 --type F16 --d-expert 96 --shared 1",     2, LAYOUT_MAINLINE},
        { "--type F32 --layers 1",                                    1, LAYOUT_MAINLINE}, /* dense only */
        { "--preset v3 --layers 2 --dense 1 --d-model 256 --heads 4 --d-ffn 352 --d-expert 32 "
          "--vocab 512 --experts 32 --tensor *_exps*=MXFP4", 2, LAYOUT_MAINLINE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char options[512];
        (void)snprintf(options, sizeof options, "%s made.gguf", rows[i].options);
        assert_int_equal(run(options), 0);
        expect_sound("made.gguf", rows[i].n_layers, rows[i].layout);
    }
}

/* Full-size models as headers: what `latent plan` gets. */
static void headers_open(void **state)
{
    static const char *const presets[] = { "v2-lite", "v3", "kimi", "glm-flash", "mistral" };
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct model *m = NULL;
        struct err e = { 0 };
        char options[128];
        (void)snprintf(options, sizeof options, "--header --preset %s head.gguf", presets[i]);
        assert_int_equal(run(options), 0);
        if (model_open(&m, "head.gguf", GGUF_HEADERS_ONLY, NULL, 0, &e) != ERR_OK)
            fail_msg("%s", e.msg);
        model_close(&m);
    }
}

static void types_follow_the_rules(void **state)
{
    static const struct {
        const char *name;
        enum quant type;
    } rows[] = {
        {"token_embd.weight",           QUANT_Q8_0 },
        { "output.weight",              QUANT_Q6_K },
        { "blk.0.attn_norm.weight",     QUANT_F32  },
        { "blk.1.ffn_gate_inp.weight",  QUANT_F32  },
        { "blk.1.attn_k_b.weight",      QUANT_Q5_0 },
        { "blk.1.attn_q_b.weight",      QUANT_Q4_K },
        { "blk.1.ffn_up_exps.weight",   QUANT_Q2_K },
        { "blk.2.ffn_down_exps.weight", QUANT_IQ3_S},
    };
    struct gguf *g = NULL;
    (void)state;
    assert_int_equal(
        run("--small-type q5_0 --tensor *_exps.*=q2_k --tensor *_down_exps*=iq3_s made.gguf"), 0);
    assert_int_equal(gguf_open(&g, "made.gguf", 0, NULL), ERR_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(gguf_tensor_find(g, rows[i].name)->type, rows[i].type);
    gguf_close(&g);
}

static void wrong_options_are_usage_errors(void **state)
{
    (void)state;
    assert_int_equal(run(""), 2);
    assert_int_equal(run("--preset nothing x.gguf"), 2);
    assert_int_equal(run("--type nothing x.gguf"), 2);
    assert_int_equal(run("--layers 0 x.gguf"), 2);
    assert_int_equal(run("--layers x x.gguf"), 2);
    assert_int_equal(run("--vocab 10 x.gguf"), 2);
    assert_int_equal(run("--tensor rule x.gguf"), 2);
    assert_int_equal(run("--layout none x.gguf"), 2);
    assert_int_equal(run("--seed 3 absent/x.gguf"), 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_have_their_size),
        cmocka_unit_test(seeds_and_names_decide),
        cmocka_unit_test(files_open),
        cmocka_unit_test(headers_open),
        cmocka_unit_test(types_follow_the_rules),
        cmocka_unit_test(wrong_options_are_usage_errors),
    };
    if (argc != 2)
        return 2;
    mkmodel = argv[1];
    log_set_quiet(1);
    return cmocka_run_group_tests(tests, temp_dir_enter, temp_dir_remove);
}
