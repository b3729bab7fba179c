/* SPDX-License-Identifier: MIT */
/* tests/model/hparams_test.c - the numbers of every published model, what is completed where
 * a file is silent, and what is refused where it contradicts itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/hparams.h"
#include "tests/support/edit.h"
#include "tests/support/temp_dir.h"

enum { MAX_EDITS = 6 };
static const char file[] = "head.gguf";

static enum err_code read_sheet(struct hparams *hp, struct gguf **g, const struct sheet *s,
                                struct err *e)
{
    sheet_write_header(s, file);
    if (gguf_open(g, file, GGUF_HEADERS_ONLY, e) != ERR_OK)
        fail_msg("the header itself is refused: %s", e->msg);
    return hparams_read(hp, *g, e);
}

static const struct hparam_note *find_note(const struct hparams *hp, const char *key)
{
    for (int i = 0; i < hp->n_notes; i++)
        if (strcmp(hp->notes[i].key, key) == 0)
            return &hp->notes[i];
    return NULL;
}

static void expect_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-6 * fabs(want)))
        fail_msg("%.9g is not %.9g", got, want);
}

static void expect_shape(const struct hparams *hp, const struct shape *m)
{
    assert_int_equal(hp->n_layers, m->n_layers);
    assert_int_equal(hp->n_vocab, m->n_vocab);
    assert_int_equal(hp->context_length, m->context);
    assert_int_equal(hp->d_model, m->d_model);
    assert_int_equal(hp->n_heads, m->n_heads);
    assert_int_equal(hp->q_lora_rank, m->q_lora);
    assert_int_equal(hp->kv_lora_rank, m->kv_lora);
    assert_int_equal(hp->d_nope, m->d_nope);
    assert_int_equal(hp->d_rope, m->d_rope);
    assert_int_equal(hp->d_v, m->d_v);
    assert_int_equal(hp->n_dense, m->n_dense);
    assert_int_equal(hp->d_ffn, m->d_ffn);
    assert_int_equal(hp->n_experts, m->n_experts);
    assert_int_equal(hp->n_experts_used, m->n_used);
    assert_int_equal(hp->n_shared_experts, m->n_shared);
    assert_int_equal(hp->d_expert, m->d_expert);
    assert_int_equal(hp->gating, m->gating);
    assert_int_equal(hp->weights_norm, m->norm);
    expect_near(hp->weights_scale, m->scale);
    assert_int_equal(hp->n_groups, m->n_groups);
    assert_int_equal(hp->n_groups_used, m->n_groups_used);
    assert_int_equal(hp->group_score_max, !m->has_bias);
    expect_near(hp->rms_eps, m->eps);
    expect_near(hp->rope_theta, m->theta);
    assert_int_equal(hp->rope_yarn, m->yarn_factor != 0);
    expect_near(hp->rope_factor, m->yarn_factor != 0 ? m->yarn_factor : 1);
    assert_int_equal(hp->yarn_context, m->yarn_context);
    expect_near(hp->yarn_log_mul, m->yarn_log_mul);
}

/* ---- Every model, every layout ------------------------------------------ */

static void every_published_model_reads(void **state)
{
    static const enum attn_layout layouts[] = { LAYOUT_LEGACY, LAYOUT_IK, LAYOUT_MAINLINE };
    (void)state;
    for (int id = 0; id < SHAPE_COUNT; id++) {
        for (int l = 0; l < 3; l++) {
            struct hparams hp;
            struct gguf *g = NULL;
            struct sheet s;
            struct err e = { 0 };
            sheet_make(&s, &shapes[id], layouts[l]);
            if (read_sheet(&hp, &g, &s, &e) != ERR_OK)
                fail_msg("%s, %s: %s", shapes[id].name, attn_layout_name(layouts[l]), e.msg);
            expect_shape(&hp, &shapes[id]);
            assert_int_equal(hp.layout, layouts[l]);
            assert_int_equal(hp.n_layers_file, hp.n_layers);
            hparams_free(&hp);
            gguf_close(&g);
            sheet_free(&s);
        }
    }
}

static void betas_are_the_published_ones(void **state)
{
    static const struct {
        enum shape_id id;
        double fast, slow;
    } rows[] = {
        {SHAPE_kimi,     1,  1},
        { SHAPE_v3,      32, 1},
        { SHAPE_v2_lite, 32, 1}
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct hparams hp;
        struct gguf *g = NULL;
        struct sheet s;
        struct err e = { 0 };
        sheet_make(&s, &shapes[rows[i].id], LAYOUT_MAINLINE);
        assert_int_equal(read_sheet(&hp, &g, &s, &e), ERR_OK);
        expect_near(hp.yarn_beta_fast, rows[i].fast);
        expect_near(hp.yarn_beta_slow, rows[i].slow);
        assert_int_equal(find_note(&hp, "rope.scaling.yarn_beta_fast")->source, HPARAM_DEFAULT);
        hparams_free(&hp);
        gguf_close(&g);
        sheet_free(&s);
    }
}

/* ---- What is completed -------------------------------------------------- */

/* A file thinned or bent by edits still reads as its shape, and the note of one key says so. */
static const struct {
    const char *title;
    enum shape_id id;
    enum attn_layout layout;
    struct edit edits[MAX_EDITS];
    const char *key, *value;
    enum hparam_source source;
} completed[] = {
#define MAINLINE LAYOUT_MAINLINE
#define LEGACY   LAYOUT_LEGACY
#define X(...)   { __VA_ARGS__ },
#include "tests/model/hparams_completed.def"
#undef X
};

static void silent_files_are_completed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof completed / sizeof completed[0]; i++) {
        const struct shape *m = &shapes[completed[i].id];
        const struct hparam_note *note;
        struct hparams hp;
        struct gguf *g = NULL;
        struct sheet s;
        struct err e = { 0 };
        sheet_make(&s, m, completed[i].layout);
        edit_apply(&s, completed[i].edits, MAX_EDITS);
        if (read_sheet(&hp, &g, &s, &e) != ERR_OK)
            fail_msg("%s: %s", completed[i].title, e.msg);
        print_message("%s\n", completed[i].title);
        expect_shape(&hp, m);
        note = find_note(&hp, completed[i].key);
        assert_non_null(note);
        assert_string_equal(note->value, completed[i].value);
        assert_int_equal(note->source, completed[i].source);
        assert_true((note->why[0] != '\0') ==
                    (note->source == HPARAM_DERIVED || note->source == HPARAM_DEFAULT));
        hparams_free(&hp);
        gguf_close(&g);
        sheet_free(&s);
    }
}

/* ---- What is refused ---------------------------------------------------- */

static const struct {
    const char *title;
    enum shape_id id;
    enum attn_layout layout;
    struct edit edits[MAX_EDITS];
    const char *says[3];
} refused[] = {
#define X(...) { __VA_ARGS__ },
#include "tests/model/hparams_refused.def"
#undef X
};

static void contradictions_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct hparams hp;
        struct gguf *g = NULL;
        struct sheet s;
        struct err e = { 0 };
        enum err_code rc;
        sheet_make(&s, &shapes[refused[i].id], refused[i].layout);
        edit_apply(&s, refused[i].edits, MAX_EDITS);
        rc = read_sheet(&hp, &g, &s, &e);
        print_message("%s: %s\n", refused[i].title, e.msg);
        assert_true(rc == ERR_FORMAT || rc == ERR_UNSUPPORTED);
        assert_null(hp.notes);
        assert_null(strchr(e.msg, '\n'));
        assert_ptr_equal(strstr(e.msg, file), e.msg);
        for (int w = 0; w < 3 && refused[i].says[w]; w++)
            if (!strstr(e.msg, refused[i].says[w]))
                fail_msg("\"%s\" does not say \"%s\"", e.msg, refused[i].says[w]);
        gguf_close(&g);
        sheet_free(&s);
    }
}

/* ---- Key types, overrides, MTP ------------------------------------------ */

static void keys_may_have_any_fitting_type(void **state)
{
    struct hparams hp;
    struct gguf *g = NULL;
    struct sheet s;
    struct err e = { 0 };
    (void)state;
    sheet_make(&s, &shapes[SHAPE_tiny_v3], LAYOUT_MAINLINE);
    sheet_set_int(&s, "rope.freq_base", 10000);  /* an integer for a float   */
    sheet_set_int(&s, "expert_weights_norm", 1); /* a number for a flag      */
    sheet_set_int(&s, "rope.scaling.factor", 40);
    for (int i = 0; i < s.n_keys; i++)
        if (strcmp(s.keys[i].name, "deepseek2.block_count") == 0)
            s.keys[i].type = GGUF_I32;
    assert_int_equal(read_sheet(&hp, &g, &s, &e), ERR_OK);
    expect_shape(&hp, &shapes[SHAPE_tiny_v3]);
    assert_string_equal(find_note(&hp, "rope.freq_base")->value, "10000");
    assert_string_equal(find_note(&hp, "attention.layer_norm_rms_epsilon")->value, "1e-06");
    assert_string_equal(find_note(&hp, "expert_weights_norm")->value, "true");
    hparams_free(&hp);
    gguf_close(&g);
    sheet_free(&s);
}

/* Some writers give a value for each layer. */
static void arrays_count_if_uniform(void **state)
{
    static const uint32_t same[] = { 4, 4, 4 }, other[] = { 4, 4, 5 };
    for (int uniform = 1; uniform >= 0; uniform--) {
        struct hparams hp;
        struct gguf *g = NULL;
        struct sheet s;
        struct err e = { 0 };
        (void)state;
        sheet_make(&s, &shapes[SHAPE_tiny_v3], LAYOUT_MAINLINE);
        sheet_set_list(&s, "attention.head_count", uniform ? same : other, 3);
        assert_int_equal(read_sheet(&hp, &g, &s, &e), uniform ? ERR_OK : ERR_FORMAT);
        if (uniform)
            expect_shape(&hp, &shapes[SHAPE_tiny_v3]);
        else
            assert_non_null(strstr(e.msg, "attention.head_count: is an array"));
        hparams_free(&hp);
        gguf_close(&g);
        sheet_free(&s);
    }
}

static void families_are_known_by_shape(void **state)
{
    struct hparams hp = { 0 };
    (void)state;
    for (int id = 0; id < SHAPE_COUNT; id++) {
        const struct shape *m = &shapes[id];
        const char *family;
        hp.n_layers = m->n_layers;
        hp.d_model = m->d_model;
        hp.n_heads = m->n_heads;
        hp.n_experts = m->n_experts;
        hp.n_vocab = (int)m->n_vocab;
        family = hparams_family(&hp);
        assert_int_equal(family == NULL, id == SHAPE_tiny_v2 || id == SHAPE_tiny_v3);
        if (id == SHAPE_kimi || id == SHAPE_v2_lite || id == SHAPE_moonlight || id == SHAPE_kanana)
            assert_string_equal(family, m->name);
    }
}

static void overrides_are_marked(void **state)
{
    struct hparams hp;
    struct gguf *g = NULL;
    struct sheet s;
    struct err e = { 0 };
    (void)state;
    sheet_make(&s, &shapes[SHAPE_kimi], LAYOUT_MAINLINE);
    sheet_write_header(&s, file);
    assert_int_equal(gguf_open(&g, file, GGUF_HEADERS_ONLY, &e), ERR_OK);
    assert_int_equal(gguf_override(g, "deepseek2.rope.scaling.yarn_beta_fast=float:32", &e),
                     ERR_OK);
    assert_int_equal(hparams_read(&hp, g, &e), ERR_OK);
    expect_near(hp.yarn_beta_fast, 32);
    assert_int_equal(find_note(&hp, "rope.scaling.yarn_beta_fast")->source, HPARAM_OVERRIDDEN);
    assert_string_equal(hparam_source_name(HPARAM_OVERRIDDEN), "overridden");
    hparams_free(&hp);
    gguf_close(&g);
    sheet_free(&s);
}

/* A 62-block V3 or 48-block GLM: the last block predicts ahead and must not run. */
static void mtp_blocks_do_not_run(void **state)
{
    static const struct {
        int has_key, has_tensor, block_count, n_layers;
    } rows[] = {
        {1,  1, 3, 2}, /* as written                                        */
        { 0, 1, 3, 2}, /* the key is missing, the tensor tells              */
        { 1, 0, 3, 3}, /* the key alone: the converter dropped the block    */
        { 1, 0, 4, 3}, /* counted, but dropped                              */
        { 0, 0, 3, 3},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hparams hp;
        struct gguf *g = NULL;
        struct sheet s;
        struct err e = { 0 };
        sheet_make(&s, &shapes[SHAPE_tiny_v3], LAYOUT_MAINLINE);
        sheet_set_int(&s, "block_count", (uint32_t)rows[i].block_count);
        if (rows[i].has_key)
            sheet_set_int(&s, "nextn_predict_layers", 1);
        if (rows[i].has_tensor)
            sheet_add_tensor(&s, "blk.2.nextn.eh_proj.weight", QUANT_F16, 512, 256, 0);
        assert_int_equal(read_sheet(&hp, &g, &s, &e), ERR_OK);
        assert_int_equal(hp.n_layers, rows[i].n_layers);
        assert_int_equal(hp.n_layers_file, rows[i].block_count);
        hparams_free(&hp);
        gguf_close(&g);
        sheet_free(&s);
    }
}

/* Youtu-LLM's kind: latent attention, no experts. */
static void dense_models_read(void **state)
{
    struct shape dense = shapes[SHAPE_tiny_v2];
    struct hparams hp;
    struct gguf *g = NULL;
    struct sheet s;
    struct err e = { 0 };
    (void)state;
    dense.n_dense = dense.n_layers;
    sheet_make(&s, &dense, LAYOUT_MAINLINE);
    sheet_drop_key(&s, "expert_count");
    sheet_drop_key(&s, "expert_used_count");
    sheet_set_int(&s, "expert_shared_count", 0);
    assert_int_equal(read_sheet(&hp, &g, &s, &e), ERR_OK);
    assert_int_equal(hp.n_dense, dense.n_layers);
    assert_int_equal(hp.n_experts, 0);
    hparams_free(&hp);
    gguf_close(&g);
    sheet_free(&s);
}

static void linear_scaling_and_temperature(void **state)
{
    struct hparams hp;
    struct gguf *g = NULL;
    struct sheet s;
    struct err e = { 0 };
    (void)state;
    sheet_make(&s, &shapes[SHAPE_moonlight], LAYOUT_MAINLINE);
    sheet_set_word(&s, "rope.scaling.type", "linear");
    sheet_set_real(&s, "rope.scaling.factor", 4);
    sheet_set_real(&s, "attention.temperature_scale", 0.1F);
    sheet_set_int(&s, "attention.temperature_length", 8192);
    sheet_set_real(&s, "expert_weights_scale", 0); /* 0 means none */
    assert_int_equal(read_sheet(&hp, &g, &s, &e), ERR_OK);
    assert_int_equal(hp.rope_yarn, 0);
    expect_near(hp.rope_factor, 4);
    expect_near(hp.attn_temp_scale, 0.1F);
    assert_int_equal(hp.attn_temp_length, 8192);
    expect_near(hp.weights_scale, 1);
    hparams_free(&hp);
    gguf_close(&g);
    sheet_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_published_model_reads),
        cmocka_unit_test(betas_are_the_published_ones),
        cmocka_unit_test(silent_files_are_completed),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(keys_may_have_any_fitting_type),
        cmocka_unit_test(arrays_count_if_uniform),
        cmocka_unit_test(families_are_known_by_shape),
        cmocka_unit_test(overrides_are_marked),
        cmocka_unit_test(mtp_blocks_do_not_run),
        cmocka_unit_test(dense_models_read),
        cmocka_unit_test(linear_scaling_and_temperature),
    };
    log_set_quiet(1);
    return cmocka_run_group_tests(tests, temp_dir_enter, temp_dir_remove);
}
