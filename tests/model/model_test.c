/* SPDX-License-Identifier: MIT */
/* tests/model/model_test.c - which tensors a model is made of, which files are refused for
 * their tensors, and reading rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/gguf_write.h"
#include "model/model.h"
#include "tests/support/edit.h"
#include "tests/support/temp_dir.h"

enum { MAX_EDITS = 6 };
static const char file[] = "head.gguf";

/* Opens the header of a shape with edits. */
static enum err_code open_edited(struct model **m, enum shape_id id, enum attn_layout layout,
                                 const struct edit *edits, struct err *e)
{
    struct sheet s;

    sheet_make(&s, &shapes[id], layout);
    edit_apply(&s, edits, MAX_EDITS);
    sheet_write_header(&s, file);
    sheet_free(&s);
    return model_open(m, file, GGUF_HEADERS_ONLY, NULL, 0, e);
}

static struct model *must_open(const char *path, unsigned flags)
{
    struct model *m = NULL;
    struct err e = { 0 };

    if (model_open(&m, path, flags, NULL, 0, &e) != ERR_OK)
        fail_msg("%s: %s", path, e.msg);
    return m;
}

/* ---- Roles -------------------------------------------------------------- */

static int has(const struct model *m, int layer, enum tensor_role role)
{
    return model_tensor(m, layer, role) != NULL;
}

static void roles_are_those_of_the_block(void **state)
{
    static const enum attn_layout layouts[] = { LAYOUT_LEGACY, LAYOUT_IK, LAYOUT_MAINLINE };
    static const struct edit none[MAX_EDITS];
    (void)state;
    for (int id = 0; id < SHAPE_COUNT; id++) {
        for (int l = 0; l < 3; l++) {
            struct model *m = NULL;
            struct err e = { 0 };
            if (open_edited(&m, (enum shape_id)id, layouts[l], none, &e) != ERR_OK)
                fail_msg("%s: %s", shapes[id].name, e.msg);
            assert_string_equal(model_tensor(m, -1, ROLE_TOKEN_EMBD)->name, "token_embd.weight");
            assert_true(has(m, -1, ROLE_OUTPUT_NORM) && has(m, -1, ROLE_OUTPUT));
            for (int n = 0; n < m->hp.n_layers; n++) {
                int moe = n >= shapes[id].n_dense;
                assert_true(has(m, n, ROLE_ATTN_NORM) && has(m, n, ROLE_ATTN_OUTPUT));
                assert_int_equal(has(m, n, ROLE_ATTN_Q), shapes[id].q_lora == 0);
                assert_int_equal(has(m, n, ROLE_ATTN_Q_B), shapes[id].q_lora != 0);
                assert_int_equal(has(m, n, ROLE_ATTN_KV_B), layouts[l] != LAYOUT_MAINLINE);
                assert_int_equal(has(m, n, ROLE_ATTN_K_B), layouts[l] != LAYOUT_LEGACY);
                assert_int_equal(has(m, n, ROLE_ATTN_V_B), layouts[l] != LAYOUT_LEGACY);
                assert_int_equal(has(m, n, ROLE_FFN_DOWN), !moe);
                assert_int_equal(has(m, n, ROLE_DOWN_EXPS), moe);
                assert_int_equal(has(m, n, ROLE_GATE_SHEXP), moe);
                assert_int_equal(has(m, n, ROLE_ROUTER_BIAS), moe && shapes[id].has_bias);
                assert_false(has(m, n, ROLE_TOKEN_EMBD) || has(m, n, ROLE_GATE_UP_EXPS));
            }
            model_close(&m);
            assert_null(m);
        }
    }
}

#define GATE "blk.2.ffn_gate_exps.weight"
#define UP   "blk.2.ffn_up_exps.weight"
#define BOTH "blk.2.ffn_gate_up_exps.weight"
#define BIAS "blk.1.exp_probs_b.bias"

/* Other forms of the same model; `role` of `layer` is the tensor called `name`, or none. */
static void other_forms_open(void **state)
{
    static const struct {
        struct edit edits[MAX_EDITS];
        int layer;
        enum tensor_role role;
        const char *name;
    } rows[] = {
        {{ DROP("output.weight") },                                                                 -1, ROLE_OUTPUT,       NULL                    },
        { { DROP(GATE), DROP(UP), MORE3(BOTH, 256, 512, 16) },                                      2,  ROLE_GATE_UP_EXPS, BOTH                    },
        { { DROP(GATE), DROP(UP), MORE3(BOTH, 256, 512, 16) },                                      2,  ROLE_GATE_EXPS,    NULL                    },
        { { MORE3(BOTH, 256, 512, 16) },                                                            2,  ROLE_GATE_EXPS,    GATE                    },
        { { MORE3(BOTH, 256, 512, 16) },                                                            2,  ROLE_GATE_UP_EXPS, NULL                    },
        { { RENAME(BIAS, "blk.1.exp_probs_b.weight") },
         1,                                                                                             ROLE_ROUTER_BIAS,
         "blk.1.exp_probs_b.weight"                                                                                                                },
        { { RENAME(BIAS, "blk.1.exp_probs_b") },                                                    1,  ROLE_ROUTER_BIAS,  "blk.1.exp_probs_b"     },
        { { FORM("blk.1.attn_k_b.weight", 128, 2048), FORM("blk.1.attn_v_b.weight", 512, 512) },
         1,                                                                                             ROLE_ATTN_K_B,
         "blk.1.attn_k_b.weight"                                                                                                                   },
        { { TYPE("blk.0.attn_norm.weight", F16) },                                                  0,  ROLE_ATTN_NORM,    "blk.0.attn_norm.weight"},
        { { TYPE("blk.0.ffn_down.weight", Q4_0_R8) },                                               0,  ROLE_FFN_DOWN,     "blk.0.ffn_down.weight" },
        { { MORE("blk.3.attn_norm.weight", 256, 0), MORE("blk.3.nextn.eh_proj.weight", 512, 256) },
         2,                                                                                             ROLE_ATTN_NORM,
         "blk.2.attn_norm.weight"                                                                                                                  },
        { { MORE("blk.2.nextn.eh_proj.weight", 512, 256) },
         1,                                                                                             ROLE_ATTN_NORM,
         "blk.1.attn_norm.weight"                                                                                                                  },
        { { MORE("blk.1.indexer.attn_k.weight", 256, 128) },                                        1,  ROLE_FFN_GATE,     NULL                    },
        { { MORE("blk.1.ffn_gate.weight", 256, 512) },                                              1,  ROLE_FFN_GATE,     NULL                    },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model *m = NULL;
        struct err e = { 0 };
        const struct gguf_tensor *t;
        if (open_edited(&m, SHAPE_tiny_v3, LAYOUT_MAINLINE, rows[i].edits, &e) != ERR_OK)
            fail_msg("row %zu: %s", i, e.msg);
        t = model_tensor(m, rows[i].layer, rows[i].role);
        assert_int_equal(t != NULL, rows[i].name != NULL);
        if (t)
            assert_string_equal(t->name, rows[i].name);
        model_close(&m);
    }
}

/* ---- Refusals ----------------------------------------------------------- */

static void wrong_tensors_are_refused(void **state)
{
    static const struct {
        struct edit edits[MAX_EDITS];
        enum err_code code;
        const char *says[3];
    } rows[] = {
#define BAD(...)    \
    ERR_FORMAT,     \
    {               \
        __VA_ARGS__ \
    }
#define NOT(...)     \
    ERR_UNSUPPORTED, \
    {                \
        __VA_ARGS__  \
    }
#define X(edit, ...) { { edit }, __VA_ARGS__ },
#include "tests/model/model_refused.def"
#undef X
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model *m = NULL;
        struct err e = { 0 };
        enum err_code rc = open_edited(&m, SHAPE_tiny_v3, LAYOUT_MAINLINE, rows[i].edits, &e);
        print_message("%s\n", e.msg);
        assert_null(m);
        assert_int_equal(rc, rows[i].code);
        assert_ptr_equal(strstr(e.msg, file), e.msg);
        for (int w = 0; w < 3 && rows[i].says[w]; w++)
            if (!strstr(e.msg, rows[i].says[w]))
                fail_msg("\"%s\" does not say \"%s\"", e.msg, rows[i].says[w]);
    }
}

static void overrides_come_first(void **state)
{
    static const char *const good[] = { "deepseek2.expert_used_count=int:2" };
    static const char *const bad[] = { "deepseek2.expert_used_count=int:2", "nonsense" };
    static const struct edit edits[MAX_EDITS] = { LOSE("expert_used_count") };
    struct model *m = NULL;
    struct err e = { 0 };
    (void)state;
    assert_int_equal(open_edited(&m, SHAPE_tiny_v3, LAYOUT_MAINLINE, edits, &e), ERR_FORMAT);
    assert_int_equal(model_open(&m, file, GGUF_HEADERS_ONLY, good, 1, &e), ERR_OK);
    assert_int_equal(m->hp.n_experts_used, 2);
    model_close(&m);
    assert_int_equal(model_open(&m, file, GGUF_HEADERS_ONLY, bad, 2, &e), ERR_USAGE);
    assert_int_equal(model_open(&m, "absent.gguf", 0, NULL, 0, &e), ERR_IO);
    assert_null(m);
}

/* ---- Rows --------------------------------------------------------------- */

static void rows_are_the_files_own(void **state)
{
    struct model *m = must_open(TEST_DATA "/models/tiny-v3-q4_k_m.gguf", 0);
    const struct gguf_tensor *t = model_tensor(m, 1, ROLE_GATE_EXPS);
    size_t row_bytes = quant_row_bytes(t->type, (size_t)t->dim[0]);
    uint8_t *rows = malloc(3 * row_bytes), *raw = malloc(3 * row_bytes);
    float *floats = malloc(2 * (size_t)t->dim[0] * sizeof *floats);
    float *row = malloc((size_t)t->dim[0] * sizeof *row);
    struct err e = { 0 };
    (void)state;
    assert_int_equal(tensor_rows(t), t->dim[1] * t->dim[2]);
    /* three rows over the border of two experts */
    assert_int_equal(model_read_rows(m, t, t->dim[1] - 1, 3, 1, rows, &e), ERR_OK);
    assert_int_equal(
        gguf_read(m->gguf, t, (uint64_t)(t->dim[1] - 1) * row_bytes, raw, 3 * row_bytes, &e),
        ERR_OK);
    assert_memory_equal(rows, raw, 3 * row_bytes);
    assert_int_equal(model_read_floats(m, t, t->dim[1], 2, floats, &e), ERR_OK);
    quant_dequantize_row(t->type, raw + 2 * row_bytes, t->dim[0], row);
    assert_memory_equal(floats + t->dim[0], row, (size_t)t->dim[0] * sizeof *row);
    assert_int_equal(model_read_rows(m, t, tensor_rows(t), 0, 1, rows, &e), ERR_OK);
    assert_int_equal(model_read_rows(m, t, tensor_rows(t) - 1, 2, 1, rows, &e), ERR_USAGE);
    assert_int_equal(model_read_rows(m, t, -1, 1, 1, rows, &e), ERR_USAGE);
    free(rows);
    free(raw);
    free(floats);
    free(row);
    model_close(&m);
}

/* Writes a file of one tensor [64, 8] and wraps it as a model, for reading only. */
static struct model *wrap_tensor(enum quant type, const void *data, size_t bytes)
{
    const int64_t dim[] = { 64, 8 };
    struct gguf_writer *w = NULL;
    struct model *m = calloc(1, sizeof *m);

    assert_int_equal(gguf_writer_create(&w, "one.gguf", NULL), ERR_OK);
    gguf_write_string(w, "general.architecture", "deepseek2", 9);
    gguf_write_tensor(w, "blk.7.attn_q.weight", type, 2, dim);
    gguf_write_data(w, data, bytes);
    assert_int_equal(gguf_writer_finish(&w, NULL), ERR_OK);
    assert_int_equal(gguf_open(&m->gguf, "one.gguf", 0, NULL), ERR_OK);
    return m;
}

static void nan_and_infinity_are_found(void **state)
{
    float weights[8][64] = { { 0 } };
    uint16_t halves[8][64] = { { 0 } };
    uint8_t out[sizeof weights];
    struct model *m;
    struct err e = { 0 };
    (void)state;
    weights[5][17] = __builtin_nanf("");
    halves[2][63] = 0x7c00; /* infinity */
    m = wrap_tensor(QUANT_F32, weights, sizeof weights);
    assert_int_equal(model_read_rows(m, gguf_tensor_at(m->gguf, 0), 0, 8, 0, out, &e), ERR_OK);
    assert_int_equal(model_read_rows(m, gguf_tensor_at(m->gguf, 0), 0, 5, 1, out, &e), ERR_OK);
    assert_int_equal(model_read_rows(m, gguf_tensor_at(m->gguf, 0), 4, 4, 1, out, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "blk.7.attn_q.weight"));
    assert_non_null(strstr(e.msg, "row 5, column 17"));
    model_close(&m);
    m = wrap_tensor(QUANT_F16, halves, sizeof halves);
    assert_int_equal(model_read_rows(m, gguf_tensor_at(m->gguf, 0), 0, 8, 1, out, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "row 2, column 63"));
    model_close(&m);
}

static void interleaved_rows_come_apart(void **state)
{
    enum { ROW = 64 / 32 * 18, GROUP = 8 };
    uint8_t data[8 * ROW], rows[8 * ROW], want[8 * ROW];
    struct model *m;
    struct err e = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 37 % 61); /* small halves, any codes */
    m = wrap_tensor(QUANT_Q4_0_R8, data, sizeof data);
    quant_deinterleave(QUANT_Q4_0_R8, data, 64, want);
    assert_int_equal(model_read_rows(m, gguf_tensor_at(m->gguf, 0), 0, 8, 1, rows, &e), ERR_OK);
    assert_memory_equal(rows, want, sizeof want);
    assert_memory_not_equal(rows, data, sizeof data);
    assert_int_equal(model_read_rows(m, gguf_tensor_at(m->gguf, 0), 0, 4, 1, rows, &e), ERR_USAGE);
    model_close(&m);
}

/* The second block of each row with the row's header, of every type with blocks of 32, interleaved
 * ones too. */
static void columns_are_cut_out(void **state)
{
    uint8_t data[8 * 512], rows[8 * 512], some[8 * 512];
    struct err e = { 0 };
    int n_types = 0;

    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 37 % 61);
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant_info *info = &quant_info[t], *plain = &quant_info[info->plain];
        if (info->values != 32 || info->interleave > 8 || info->gguf_id == QUANT_NO_ID ||
            quant_refusal((enum quant)t))
            continue;
        size_t whole = quant_row_bytes(info->plain, 64), part = quant_row_bytes(info->plain, 32);
        struct model *m = wrap_tensor((enum quant)t, data, 8 * quant_row_bytes((enum quant)t, 64));
        const struct gguf_tensor *x = gguf_tensor_at(m->gguf, 0);
        assert_int_equal(model_read_rows(m, x, 0, 8, 0, rows, &e), ERR_OK);
        assert_int_equal(model_read_columns(m, x, 0, 8, 32, 32, 0, some, &e), ERR_OK);
        for (size_t r = 0; r < 8; r++) {
            /* Q8_KV also keeps a sum of the row's codes, which nobody reads */
            size_t header = plain->header < 4 ? plain->header : 4;
            assert_memory_equal(some + r * part, rows + r * whole, header);
            assert_memory_equal(some + r * part + plain->header,
                                rows + r * whole + plain->header + plain->bytes, plain->bytes);
        }
        assert_int_equal(model_read_columns(m, x, 0, 8, 16, 32, 0, some, &e), ERR_USAGE);
        assert_int_equal(model_read_columns(m, x, 0, 8, 32, 64, 0, some, &e), ERR_USAGE);
        model_close(&m);
        n_types++;
    }
    assert_true(n_types >= 12);
}

/* ---- Real files --------------------------------------------------------- */

static void shipped_files_open(void **state)
{
    static const struct {
        const char *path;
        int n_layers;
        enum attn_layout layout;
    } rows[] = {
        {TEST_DATA "/models/tiny-v2-f16.gguf",            2, LAYOUT_MAINLINE},
        { TEST_DATA "/models/tiny-v3-q4_k_m.gguf",        3, LAYOUT_MAINLINE},
        { TEST_DATA "/models/tiny-v3-legacy-iq4_ks.gguf", 3, LAYOUT_LEGACY  },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model *m = must_open(rows[i].path, 0);
        assert_int_equal(m->hp.n_layers, rows[i].n_layers);
        assert_int_equal(m->hp.layout, rows[i].layout);
        assert_int_equal(m->hp.d_nope, 128);
        assert_int_equal(m->hp.d_rope, 64);
        model_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roles_are_those_of_the_block),
        cmocka_unit_test(other_forms_open),
        cmocka_unit_test(wrong_tensors_are_refused),
        cmocka_unit_test(overrides_come_first),
        cmocka_unit_test(rows_are_the_files_own),
        cmocka_unit_test(nan_and_infinity_are_found),
        cmocka_unit_test(interleaved_rows_come_apart),
        cmocka_unit_test(columns_are_cut_out),
        cmocka_unit_test(shipped_files_open),
    };
    log_set_quiet(1);
    return cmocka_run_group_tests(tests, temp_dir_enter, temp_dir_remove);
}
