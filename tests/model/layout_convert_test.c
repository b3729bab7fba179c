/* SPDX-License-Identifier: MIT */
/* tests/model/layout_convert_test.c - the three layouts of one model, made from each other.
 *
 * What must hold: a float model comes back byte for byte; every element of attn_kv_b is where
 * the layouts say; quantised V rows are moved untouched; the keys tell the new layout, so that
 * the model opens again; nothing half-written stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/gguf_write.h"
#include "model/layout_convert.h"
#include "model/model.h"
#include "tests/support/temp_dir.h"

static const char v2[] = TEST_DATA "/models/tiny-v2-f16.gguf";
static const char v3[] = TEST_DATA "/models/tiny-v3-q4_k_m.gguf";
static const char v3_legacy[] = TEST_DATA "/models/tiny-v3-legacy-iq4_ks.gguf";

/* Heads and widths of the small models. */
enum { H = 4, D_C = 512, D_N = 128, D_R = 64, D_V = 128 };

static void convert(const char *in, const char *out, enum attn_layout to)
{
    struct err e = { 0 };

    if (layout_convert(in, out, to, LAYOUT_OVERWRITE, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(access("out.gguf.part", F_OK), -1);
}

static struct gguf *open_file(const char *path)
{
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (gguf_open(&g, path, 0, &e))
        fail_msg("%s", e.msg);
    return g;
}

/* All bytes of a tensor; the caller frees. */
static uint8_t *read_all(const struct gguf *g, const struct gguf_tensor *t)
{
    uint8_t *data = malloc(t->bytes);

    assert_non_null(data);
    assert_int_equal(gguf_read(g, t, 0, data, t->bytes, NULL), ERR_OK);
    return data;
}

static uint8_t *read_named(const struct gguf *g, const char *name, enum quant type)
{
    const struct gguf_tensor *t = gguf_tensor_find(g, name);

    if (!t) {
        fail_msg("%s is missing", name);
        return NULL;
    }
    assert_string_equal(quant_info[t->type].name, quant_info[type].name);
    return read_all(g, t);
}

/* ---- Round trips -------------------------------------------------------- */

static void same_tensors(const char *a_path, const char *b_path)
{
    struct gguf *a = open_file(a_path), *b = open_file(b_path);

    assert_int_equal(gguf_tensor_count(a), gguf_tensor_count(b));
    for (int i = 0; i < gguf_tensor_count(a); i++) {
        const struct gguf_tensor *x = gguf_tensor_at(a, i), *y = gguf_tensor_find(b, x->name);
        if (!y || x->type != y->type || x->n_dims != y->n_dims ||
            memcmp(x->dim, y->dim, sizeof x->dim) != 0) {
            fail_msg("%s is missing or has another type or shape", x->name);
            return;
        }
        uint8_t *p = read_all(a, x), *q = read_all(b, y);
        if (memcmp(p, q, x->bytes) != 0)
            fail_msg("%s has other bytes", x->name);
        free(p);
        free(q);
    }
    gguf_close(&a);
    gguf_close(&b);
}

static void same_file(const char *a_path, const char *b_path)
{
    static char a[1 << 16], b[1 << 16];
    FILE *f = fopen(a_path, "rb"), *g = fopen(b_path, "rb");
    size_t n, m;

    assert_non_null(f);
    assert_non_null(g);
    do {
        n = fread(a, 1, sizeof a, f);
        m = fread(b, 1, sizeof b, g);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n);
    } while (n > 0);
    fclose(f);
    fclose(g);
}

static void float_models_come_back(void **state)
{
    (void)state;
    convert(v2, "legacy.gguf", LAYOUT_LEGACY);
    convert("legacy.gguf", "out.gguf", LAYOUT_MAINLINE);
    same_tensors(v2, "out.gguf");
    same_file(v2, "out.gguf"); /* the keys too */

    convert(v2, "ik.gguf", LAYOUT_IK);
    convert("ik.gguf", "out.gguf", LAYOUT_MAINLINE);
    same_tensors(v2, "out.gguf");

    convert("ik.gguf", "out.gguf", LAYOUT_LEGACY);
    same_tensors("legacy.gguf", "out.gguf");
    convert("legacy.gguf", "out.gguf", LAYOUT_IK);
    same_tensors("ik.gguf", "out.gguf");
}

static void same_layout_copies(void **state)
{
    static const enum attn_layout layouts[] = { LAYOUT_LEGACY, LAYOUT_IK, LAYOUT_MAINLINE };
    (void)state;
    for (int i = 0; i < 3; i++) {
        convert(v2, "a.gguf", layouts[i]);
        convert("a.gguf", "out.gguf", layouts[i]);
        same_tensors("a.gguf", "out.gguf");
    }
}

static void in_place_works(void **state)
{
    (void)state;
    convert(v2, "out.gguf", LAYOUT_LEGACY);
    convert("out.gguf", "out.gguf", LAYOUT_MAINLINE);
    same_tensors(v2, "out.gguf");
}

/* ---- Elements ----------------------------------------------------------- */

/* The other end of the algebra: every element of kv_b against k_b and v_b. */
static void every_element_is_in_its_place(void **state)
{
    (void)state;
    convert(v2, "out.gguf", LAYOUT_LEGACY);
    struct gguf *a = open_file(v2), *b = open_file("out.gguf");
    uint16_t *k = (uint16_t *)read_named(a, "blk.1.attn_k_b.weight", QUANT_F16);
    uint16_t *v = (uint16_t *)read_named(a, "blk.1.attn_v_b.weight", QUANT_F16);
    uint16_t *kv = (uint16_t *)read_named(b, "blk.1.attn_kv_b.weight", QUANT_F16);
    const struct gguf_tensor *t = gguf_tensor_find(b, "blk.1.attn_kv_b.weight");

    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dim[0], D_C);
    assert_int_equal(t->dim[1], H * (D_N + D_V));
    assert_null(gguf_tensor_find(b, "blk.1.attn_k_b.weight"));
    assert_null(gguf_tensor_find(b, "blk.1.attn_v_b.weight"));
    for (int h = 0; h < H; h++)
        for (int c = 0; c < D_C; c++) {
            for (int n = 0; n < D_N; n++)
                assert_int_equal(kv[(h * (D_N + D_V) + n) * D_C + c], k[(h * D_C + c) * D_N + n]);
            for (int n = 0; n < D_V; n++)
                assert_int_equal(kv[(h * (D_N + D_V) + D_N + n) * D_C + c],
                                 v[(h * D_V + n) * D_C + c]);
        }
    free(k);
    free(v);
    free(kv);
    gguf_close(&a);
    gguf_close(&b);
}

/* Block n of v3_legacy, in whatever type its attn_kv_b has: V rows are moved, K becomes the
 * nearest halves. */
static void check_quantised(const struct gguf *from, const struct gguf *to, int block)
{
    char name[64];
    float weights[D_C];

    snprintf(name, sizeof name, "blk.%d.attn_kv_b.weight", block);
    enum quant type = gguf_tensor_find(from, name)->type;
    size_t row = quant_row_bytes(type, D_C);
    uint8_t *kv = read_named(from, name, type);
    snprintf(name, sizeof name, "blk.%d.attn_v_b.weight", block);
    uint8_t *v = read_named(to, name, type);
    snprintf(name, sizeof name, "blk.%d.attn_k_b.weight", block);
    uint16_t *k = (uint16_t *)read_named(to, name, QUANT_F16);
    const struct gguf_tensor *t = gguf_tensor_find(to, name);

    assert_int_not_equal(quant_info[type].program, QUANT_FLOAT);
    assert_int_equal(t->n_dims, 3);
    assert_int_equal(t->dim[0], D_N);
    assert_int_equal(t->dim[1], D_C);
    assert_int_equal(t->dim[2], H);
    for (int h = 0; h < H; h++) {
        const uint8_t *head = kv + (size_t)h * (D_N + D_V) * row;
        assert_memory_equal(v + (size_t)h * D_V * row, head + D_N * row, D_V * row);
        for (int n = 0; n < D_N; n++) {
            quant_dequantize_row(type, head + (size_t)n * row, D_C, weights);
            for (int c = 0; c < D_C; c++)
                assert_int_equal(k[(h * D_C + c) * D_N + n], half_from_float(weights[c]));
        }
    }
    free(kv);
    free(k);
    free(v);
}

static void quantised_rows_are_moved(void **state)
{
    (void)state;
    convert(v3_legacy, "out.gguf", LAYOUT_MAINLINE);
    struct gguf *a = open_file(v3_legacy), *b = open_file("out.gguf");
    for (int block = 0; block < 3; block++)
        check_quantised(a, b, block);
    gguf_close(&a);
    gguf_close(&b);
}

/* Q8_0 and Q4_K meet in F16, which may round. */
static void quantised_pairs_become_f16(void **state)
{
    static float k[D_N], v[D_C], kv[D_C];
    (void)state;
    convert(v3, "out.gguf", LAYOUT_LEGACY);
    struct gguf *a = open_file(v3), *b = open_file("out.gguf");
    const struct gguf_tensor *tk = gguf_tensor_find(a, "blk.1.attn_k_b.weight");
    const struct gguf_tensor *tv = gguf_tensor_find(a, "blk.1.attn_v_b.weight");
    uint8_t *dk = read_all(a, tk), *dv = read_all(a, tv);
    uint8_t *dkv = read_named(b, "blk.1.attn_kv_b.weight", QUANT_F16);
    const int h = 2, c = 77, n = 5; /* one of each will do: places were checked above */

    quant_dequantize_row(tk->type, dk + (h * D_C + c) * quant_row_bytes(tk->type, D_N), D_N, k);
    quant_dequantize_row(QUANT_F16, dkv + (size_t)(h * (D_N + D_V) + n) * D_C * 2, D_C, kv);
    assert_true(kv[c] == half_to_float(half_from_float(k[n])));
    quant_dequantize_row(tv->type, dv + (h * D_V + n) * quant_row_bytes(tv->type, D_C), D_C, v);
    quant_dequantize_row(QUANT_F16, dkv + (size_t)(h * (D_N + D_V) + D_N + n) * D_C * 2, D_C, kv);
    assert_true(kv[c] == half_to_float(half_from_float(v[c])));
    free(dk);
    free(dv);
    free(dkv);
    gguf_close(&a);
    gguf_close(&b);
}

/* ---- Types that differ -------------------------------------------------- */

static enum quant new_type(const struct gguf_tensor *t, enum quant k_type, enum quant v_type)
{
    if (strstr(t->name, "attn_k_b"))
        return k_type;
    return strstr(t->name, "attn_v_b") ? v_type : t->type;
}

static void write_as(struct gguf_writer *w, enum quant type, const uint16_t *halves, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float f = half_to_float(halves[i]);
        uint16_t b = bf16_from_float(f);
        if (type == QUANT_F32)
            gguf_write_data(w, &f, sizeof f);
        else
            gguf_write_data(w, &b, sizeof b);
    }
}

/* Writes v2 with attn_k_b and attn_v_b in other float types. */
static void retype(const char *to, enum quant k_type, enum quant v_type)
{
    struct gguf *g = open_file(v2);
    struct gguf_writer *w = NULL;

    assert_int_equal(gguf_writer_create(&w, to, NULL), ERR_OK);
    for (int i = 0; i < gguf_kv_count(g); i++)
        gguf_write_kv(w, gguf_kv_at(g, i));
    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_write_tensor(w, t->name, new_type(t, k_type, v_type), t->n_dims, t->dim);
    }
    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        uint8_t *data = read_all(g, t);
        enum quant type = new_type(t, k_type, v_type);
        if (type == t->type)
            gguf_write_data(w, data, t->bytes);
        else
            write_as(w, type, (const uint16_t *)data, t->bytes / 2);
        free(data);
    }
    assert_int_equal(gguf_writer_finish(&w, NULL), ERR_OK);
    gguf_close(&g);
}

/* The values of a tensor, whatever its type, are those of the other file. */
static void same_values(const char *a_path, const char *b_path, const char *name)
{
    static float x[D_N * D_C * H], y[D_N * D_C * H];
    struct gguf *a = open_file(a_path), *b = open_file(b_path);
    const struct gguf_tensor *s = gguf_tensor_find(a, name), *t = gguf_tensor_find(b, name);
    uint8_t *p = read_all(a, s), *q = read_all(b, t);

    quant_dequantize_row(s->type, p, D_N * D_C * H, x);
    quant_dequantize_row(t->type, q, D_N * D_C * H, y);
    assert_memory_equal(x, y, sizeof x);
    free(p);
    free(q);
    gguf_close(&a);
    gguf_close(&b);
}

static void two_float_types_meet_in_one_that_holds_both(void **state)
{
    static const struct {
        enum quant k, v, kv;
    } rows[] = {
        {QUANT_F32,   QUANT_F32,  QUANT_F32 },
        { QUANT_BF16, QUANT_BF16, QUANT_BF16},
        { QUANT_F32,  QUANT_F16,  QUANT_F32 },
        { QUANT_F16,  QUANT_BF16, QUANT_F32 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        retype("in.gguf", rows[i].k, rows[i].v);
        convert("in.gguf", "legacy.gguf", LAYOUT_LEGACY);
        struct gguf *g = open_file("legacy.gguf");
        assert_int_equal(gguf_tensor_find(g, "blk.0.attn_kv_b.weight")->type, rows[i].kv);
        gguf_close(&g);
        convert("legacy.gguf", "out.gguf", LAYOUT_MAINLINE);
        same_values("in.gguf", "out.gguf", "blk.0.attn_k_b.weight");
        same_values("in.gguf", "out.gguf", "blk.0.attn_v_b.weight");
    }
}

static void copy_file(const char *from, const char *to)
{
    static char buffer[1 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t n;

    assert_non_null(in);
    assert_non_null(out);
    while ((n = fread(buffer, 1, sizeof buffer, in)) > 0)
        assert_int_equal(fwrite(buffer, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* A Q8_0 block of attn_k_b with the largest scale that a half can be. */
static void too_large_for_f16_is_refused(void **state)
{
    static const uint8_t block[] = { 0xff, 0x7b, 127 };
    struct err e = { 0 };
    (void)state;
    copy_file(v3, "in.gguf");
    struct gguf *g = open_file("in.gguf");
    const struct gguf_tensor *t = gguf_tensor_find(g, "blk.1.attn_k_b.weight");
    FILE *f = fopen("in.gguf", "r+b");
    assert_int_equal(t->type, QUANT_Q8_0);
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)t->offset, SEEK_SET), 0);
    assert_int_equal(fwrite(block, 1, sizeof block, f), sizeof block);
    assert_int_equal(fclose(f), 0);
    gguf_close(&g);

    unlink("out.gguf");
    assert_int_equal(layout_convert("in.gguf", "out.gguf", LAYOUT_LEGACY, 0, &e), ERR_NUMERIC);
    assert_non_null(strstr(e.msg, "blk.1.attn_k_b.weight is 8.31901e+06, too large for F16"));
    assert_int_equal(access("out.gguf", F_OK), -1);
    assert_int_equal(access("out.gguf.part", F_OK), -1);
}

/* ---- Incomplete blocks -------------------------------------------------- */

/* v2 without the tensors whose name holds `left_out`. */
static void write_without(const char *to, const char *left_out)
{
    struct gguf *g = open_file(v2);
    struct gguf_writer *w = NULL;

    assert_int_equal(gguf_writer_create(&w, to, NULL), ERR_OK);
    for (int i = 0; i < gguf_kv_count(g); i++)
        gguf_write_kv(w, gguf_kv_at(g, i));
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < gguf_tensor_count(g); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            if (strstr(t->name, left_out))
                continue;
            if (pass == 0) {
                gguf_write_tensor(w, t->name, t->type, t->n_dims, t->dim);
                continue;
            }
            uint8_t *data = read_all(g, t);
            gguf_write_data(w, data, t->bytes);
            free(data);
        }
    assert_int_equal(gguf_writer_finish(&w, NULL), ERR_OK);
    gguf_close(&g);
}

static void incomplete_blocks_are_refused(void **state)
{
    struct err e = { 0 };
    (void)state;
    unlink("out.gguf");
    write_without("in.gguf", "blk.1.attn_v_b");
    assert_int_equal(layout_convert("in.gguf", "out.gguf", LAYOUT_LEGACY, 0, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "blk.1 has neither attn_kv_b nor both"));
    assert_int_equal(access("out.gguf", F_OK), -1);
}

/* ---- Keys --------------------------------------------------------------- */

static int64_t key(const struct gguf *g, const char *name)
{
    const struct gguf_kv *kv = gguf_find_arch(g, name);
    int64_t v = -1;

    if (kv)
        assert_int_equal(gguf_as_i64(&kv->value, &v), 0);
    return v;
}

static void keys_tell_the_layout(void **state)
{
    static const struct {
        enum attn_layout to;
        int64_t heads, k, v, k_mla, v_mla;
    } rows[] = {
        {LAYOUT_MAINLINE,  1, D_C + D_R, D_C, D_N + D_R, D_V},
        { LAYOUT_IK,       H, D_N + D_R, D_V, -1,        -1 },
        { LAYOUT_LEGACY,   H, D_N + D_R, D_V, -1,        -1 },
        { LAYOUT_MAINLINE, 1, D_C + D_R, D_C, D_N + D_R, D_V},
    };
    const char *from = v2;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        convert(from, "out.gguf", rows[i].to);
        from = "out.gguf"; /* each from the one before */

        struct gguf *g = open_file("out.gguf"), *original = open_file(v2);
        assert_int_equal(key(g, "attention.head_count_kv"), rows[i].heads);
        assert_int_equal(key(g, "attention.key_length"), rows[i].k);
        assert_int_equal(key(g, "attention.value_length"), rows[i].v);
        assert_int_equal(key(g, "attention.key_length_mla"), rows[i].k_mla);
        assert_int_equal(key(g, "attention.value_length_mla"), rows[i].v_mla);
        assert_int_equal(gguf_kv_count(g), gguf_kv_count(original) - (rows[i].k_mla < 0 ? 2 : 0));
        gguf_close(&g);
        gguf_close(&original);

        struct model *m = NULL;
        struct err e = { 0 };
        if (model_open(&m, "out.gguf", 0, NULL, 0, &e))
            fail_msg("%s", e.msg);
        assert_int_equal(m->hp.layout, rows[i].to);
        model_close(&m);
    }
}

/* ---- Files -------------------------------------------------------------- */

/* tiny-v2 in two shards, every other tensor in each. */
static void write_shards(void)
{
    struct gguf *g = open_file(v2);

    for (int shard = 0; shard < 2; shard++) {
        struct gguf_writer *w = NULL;
        char path[32];
        snprintf(path, sizeof path, "s-%05d-of-00002.gguf", shard + 1);
        assert_int_equal(gguf_writer_create(&w, path, NULL), ERR_OK);
        for (int i = 0; shard == 0 && i < gguf_kv_count(g); i++)
            gguf_write_kv(w, gguf_kv_at(g, i));
        gguf_write_u16(w, "split.no", (uint16_t)shard);
        gguf_write_u16(w, "split.count", 2);
        gguf_write_i32(w, "split.tensors.count", gguf_tensor_count(g));
        for (int i = shard; i < gguf_tensor_count(g); i += 2) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            gguf_write_tensor(w, t->name, t->type, t->n_dims, t->dim);
        }
        for (int i = shard; i < gguf_tensor_count(g); i += 2) {
            uint8_t *data = read_all(g, gguf_tensor_at(g, i));
            gguf_write_data(w, data, gguf_tensor_at(g, i)->bytes);
            free(data);
        }
        assert_int_equal(gguf_writer_finish(&w, NULL), ERR_OK);
    }
    gguf_close(&g);
}

static void shards_become_one_file(void **state)
{
    (void)state;
    write_shards();
    convert("s-00002-of-00002.gguf", "out.gguf", LAYOUT_MAINLINE);
    same_tensors(v2, "out.gguf");
    struct gguf *g = open_file("out.gguf");
    assert_int_equal(gguf_part_count(g), 1);
    assert_null(gguf_find(g, "split.count"));
    gguf_close(&g);
}

static void nothing_is_overwritten_unasked(void **state)
{
    struct err e = { 0 };
    (void)state;
    convert(v2, "out.gguf", LAYOUT_LEGACY);
    assert_int_equal(layout_convert(v2, "out.gguf", LAYOUT_IK, 0, &e), ERR_USAGE);
    assert_non_null(strstr(e.msg, "out.gguf: exists already"));
    unlink("out.gguf");
    assert_int_equal(layout_convert(v2, "out.gguf", LAYOUT_IK, 0, &e), ERR_OK);
}

/* A file that takes a device's name would do away with the device. */
static void only_files_are_replaced(void **state)
{
    struct err e = { 0 };
    struct stat st;
    (void)state;
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(layout_convert(v2, "pipe", LAYOUT_IK, LAYOUT_OVERWRITE, &e), ERR_USAGE);
    assert_non_null(strstr(e.msg, "pipe: is not a regular file"));
    assert_int_equal(stat("pipe", &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
}

static void failures_leave_nothing(void **state)
{
    struct err e = { 0 };
    (void)state;
    unlink("out.gguf");
    assert_int_equal(layout_convert("missing.gguf", "out.gguf", LAYOUT_IK, 0, &e), ERR_IO);
    assert_int_equal(layout_convert(v2, "no/such/out.gguf", LAYOUT_IK, 0, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "no/such/out.gguf"));
    assert_int_equal(mkdir("folder", 0700), 0);
    assert_int_equal(layout_convert(v2, "folder", LAYOUT_IK, LAYOUT_OVERWRITE, &e), ERR_USAGE);
    assert_int_equal(access("folder.part", F_OK), -1);
    assert_int_equal(access("out.gguf", F_OK), -1);
    assert_int_equal(access("out.gguf.part", F_OK), -1);
}

static int enter(void **state)
{
    log_set_quiet(1);
    return temp_dir_enter(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float_models_come_back),
        cmocka_unit_test(same_layout_copies),
        cmocka_unit_test(in_place_works),
        cmocka_unit_test(every_element_is_in_its_place),
        cmocka_unit_test(quantised_rows_are_moved),
        cmocka_unit_test(quantised_pairs_become_f16),
        cmocka_unit_test(two_float_types_meet_in_one_that_holds_both),
        cmocka_unit_test(too_large_for_f16_is_refused),
        cmocka_unit_test(incomplete_blocks_are_refused),
        cmocka_unit_test(keys_tell_the_layout),
        cmocka_unit_test(shards_become_one_file),
        cmocka_unit_test(nothing_is_overwritten_unasked),
        cmocka_unit_test(only_files_are_replaced),
        cmocka_unit_test(failures_leave_nothing),
    };
    return cmocka_run_group_tests_name("model/layout_convert", tests, enter, temp_dir_remove);
}
