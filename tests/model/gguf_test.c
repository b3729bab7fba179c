/* SPDX-License-Identifier: MIT */
/* tests/model/gguf_test.c - what the writer writes the reader reads; values, shards,
 * overrides, files without their data.  Malformed files: gguf_malformed_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/gguf_write.h"
#include "tests/support/temp_dir.h"

static const char sample[] = "sample.gguf";

static struct gguf *open_ok(const char *path, unsigned flags)
{
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (gguf_open(&g, path, flags, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return g;
}

static void open_fails(const char *path, unsigned flags, const char *why)
{
    struct gguf *g = NULL;
    struct err e = { 0 };

    assert_int_not_equal(gguf_open(&g, path, flags, &e), ERR_OK);
    assert_null(g);
    if (!strstr(e.msg, why))
        fail_msg("\"%s\" does not say \"%s\"", e.msg, why);
}

/* ---- Files -------------------------------------------------------------- */

static void small_models_open(void **state)
{
    static const struct {
        const char *path;
        int n_tensors;
        enum quant embedding;
    } files[] = {
        {TEST_DATA "/models/tiny-v2-f16.gguf",            29, QUANT_F16   },
        { TEST_DATA "/models/tiny-v3-q4_k_m.gguf",        52, QUANT_Q4_K  },
        { TEST_DATA "/models/tiny-v3-legacy-iq4_ks.gguf", 49, QUANT_IQ4_KS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct gguf *g = open_ok(files[i].path, 0);
        int64_t layers;
        assert_string_equal(gguf_architecture(g), "deepseek2");
        assert_int_equal(gguf_tensor_count(g), files[i].n_tensors);
        assert_int_equal(gguf_tensor_find(g, "token_embd.weight")->type, files[i].embedding);
        assert_int_equal(gguf_as_i64(&gguf_find_arch(g, "block_count")->value, &layers), 0);
        assert_int_equal(layers, i == 0 ? 2 : 3);
        assert_int_equal(gguf_find(g, "tokenizer.ggml.tokens")->value.count, 4096);
        for (int t = 0; t < gguf_tensor_count(g); t++) {
            const struct gguf_tensor *tensor = gguf_tensor_at(g, t);
            assert_ptr_equal(gguf_tensor_find(g, tensor->name), tensor);
        }
        gguf_close(&g);
        assert_null(g);
    }
}

/* One of every kind of record, three tensors. */
static void write_sample(const char *path)
{
    static const struct gguf_string words[] = {
        {"a",     1},
        { "",     0},
        { "b\0c", 3}
    };
    static const uint16_t halves[] = { 1, 2, 65535 };
    struct gguf_writer *w = NULL;
    uint8_t data[34 * 4];

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7);
    assert_int_equal(gguf_writer_create(&w, path, NULL), ERR_OK);
    gguf_write_string(w, "general.architecture", "sample", 6);
    gguf_write_u32(w, "sample.u32", 4000000000u);
    gguf_write_i32(w, "sample.i32", -5);
    gguf_write_u16(w, "sample.u16", 65535);
    gguf_write_f32(w, "sample.f32", 0.5f);
    gguf_write_bool(w, "sample.bool", 1);
    gguf_write_strings(w, "words", words, 3);
    gguf_write_array(w, "halves", GGUF_U16, halves, 3);
    gguf_write_tensor(w, "one", QUANT_F32, 1, (int64_t[]){ 3 });
    gguf_write_tensor(w, "two", QUANT_Q8_0, 2, (int64_t[]){ 64, 2 });
    gguf_write_tensor(w, "three", QUANT_F16, 3, (int64_t[]){ 1, 2, 3 });
    gguf_write_data(w, data, 12);
    gguf_write_data(w, data, 100); /* in two pieces */
    gguf_write_data(w, data + 100, 36);
    gguf_write_data(w, data + 1, 12);
    assert_int_equal(gguf_writer_finish(&w, NULL), ERR_OK);
    assert_null(w);
}

static void writer_and_reader_agree(void **state)
{
    uint8_t data[136];
    (void)state;
    write_sample(sample);
    struct gguf *g = open_ok(sample, 0);
    assert_int_equal(gguf_kv_count(g), 8);
    assert_int_equal(gguf_part_count(g), 1);
    assert_string_equal(gguf_part_path(g, 0), sample);
    assert_int_equal(gguf_total_bytes(g) % 32, 0);

    const struct gguf_tensor *t = gguf_tensor_find(g, "two");
    assert_int_equal(t->type, QUANT_Q8_0);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dim[0], 64);
    assert_int_equal(t->dim[1], 2);
    assert_int_equal(t->dim[2], 1);
    assert_int_equal(t->bytes, 136);
    assert_int_equal(t->offset % 32, 0);
    assert_int_equal(gguf_read(g, t, 0, data, 136, NULL), ERR_OK);
    for (size_t i = 0; i < sizeof data; i++)
        assert_int_equal(data[i], (uint8_t)(i * 7));
    assert_int_equal(gguf_read(g, t, 130, data, 6, NULL), ERR_OK);
    assert_int_equal(data[5], (uint8_t)(135 * 7));
    assert_int_equal(gguf_read(g, t, 130, data, 7, NULL), ERR_IO);
    assert_int_equal(gguf_read(g, t, UINT64_MAX, data, 2, NULL), ERR_IO);
    assert_null(gguf_tensor_find(g, "four"));
    assert_null(gguf_tensor_find(g, ""));
    gguf_close(&g);
}

/* Copies keys with gguf_write_kv and tensors as they stand; the file must not change. */
static void copying_changes_nothing(void **state)
{
    const char *from = "from.gguf", *to = "to.gguf";
    struct gguf_writer *w = NULL;
    uint8_t data[136], a[1024], b[1024];
    (void)state;
    write_sample(from);
    struct gguf *g = open_ok(from, 0);
    assert_int_equal(gguf_writer_create(&w, to, NULL), ERR_OK);
    for (int i = 0; i < gguf_kv_count(g); i++)
        gguf_write_kv(w, gguf_kv_at(g, i));
    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_write_tensor(w, t->name, t->type, t->n_dims, t->dim);
    }
    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        assert_int_equal(gguf_read(g, t, 0, data, t->bytes, NULL), ERR_OK);
        gguf_write_data(w, data, t->bytes);
    }
    assert_int_equal(gguf_writer_finish(&w, NULL), ERR_OK);
    gguf_close(&g);

    FILE *fa = fopen(from, "rb"), *fb = fopen(to, "rb");
    assert_non_null(fa);
    assert_non_null(fb);
    size_t na = fread(a, 1, sizeof a, fa), nb = fread(b, 1, sizeof b, fb);
    assert_true(na > 0 && na < sizeof a);
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    fclose(fa);
    fclose(fb);
}

static void writer_reports_its_first_failure(void **state)
{
    const char *path = "bad.gguf";
    struct gguf_writer *w = NULL;
    struct err e = { 0 };
    (void)state;

    assert_int_equal(gguf_writer_create(&w, "no/such/place", &e), ERR_IO);
    assert_null(w);

    gguf_writer_create(&w, path, NULL);
    gguf_write_tensor(w, "t", QUANT_F32, 1, (int64_t[]){ 4 });
    gguf_write_data(w, "1234", 4);
    assert_int_equal(gguf_writer_finish(&w, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "less data"));
    assert_int_equal(access(path, F_OK), -1);

    gguf_writer_create(&w, path, NULL);
    gguf_write_tensor(w, "t", QUANT_F32, 1, (int64_t[]){ 1 });
    gguf_write_data(w, "12345", 5);
    assert_int_equal(gguf_writer_finish(&w, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "more data"));

    gguf_writer_create(&w, path, NULL);
    gguf_write_tensor(w, "odd", QUANT_Q8_0, 1, (int64_t[]){ 33 });
    assert_int_equal(gguf_writer_finish(&w, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "odd"));

    gguf_writer_create(&w, path, NULL);
    gguf_writer_abandon(&w);
    gguf_writer_abandon(&w);
    assert_int_equal(access(path, F_OK), -1);
}

/* ---- Values ------------------------------------------------------------- */

static void scalars_convert_when_they_fit(void **state)
{
    struct gguf_string s;
    int64_t i;
    double f;
    int b;
    (void)state;
    write_sample(sample);
    struct gguf *g = open_ok(sample, 0);
    assert_int_equal(gguf_as_i64(&gguf_find_arch(g, "u32")->value, &i), 0);
    assert_int_equal(i, 4000000000);
    assert_int_equal(gguf_as_i64(&gguf_find_arch(g, "i32")->value, &i), 0);
    assert_int_equal(i, -5);
    assert_int_equal(gguf_as_f64(&gguf_find_arch(g, "i32")->value, &f), 0);
    assert_true(f == -5);
    assert_int_equal(gguf_as_f64(&gguf_find_arch(g, "f32")->value, &f), 0);
    assert_true(f == 0.5);
    assert_int_equal(gguf_as_bool(&gguf_find_arch(g, "bool")->value, &b), 0);
    assert_int_equal(b, 1);
    assert_int_equal(gguf_as_string(&gguf_find(g, "general.architecture")->value, &s), 0);
    assert_int_equal(s.len, 6);
    assert_memory_equal(s.data, "sample", 6);

    assert_int_equal(gguf_as_i64(&gguf_find_arch(g, "f32")->value, &i), -1);
    assert_int_equal(gguf_as_i64(&gguf_find(g, "halves")->value, &i), -1);
    assert_int_equal(gguf_as_bool(&gguf_find_arch(g, "i32")->value, &b), -1);
    assert_int_equal(gguf_as_f64(&gguf_find(g, "general.architecture")->value, &f), -1);
    assert_int_equal(gguf_as_string(&gguf_find_arch(g, "u32")->value, &s), -1);
    assert_null(gguf_find(g, "sample"));
    assert_null(gguf_find_arch(g, "nothing"));
    gguf_close(&g);
}

static void large_integers_are_not_bent(void **state)
{
    static const struct {
        uint64_t v;
        int i64, f64;
    } rows[] = {
        {1ull << 53,        0,  0 },
        { (1ull << 53) + 1, 0,  -1},
        { 1ull << 63,       -1, -1}
    };
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct gguf_value v = { .type = GGUF_U64, .data = (const uint8_t *)&rows[k].v };
        int64_t i;
        double f;
        assert_int_equal(gguf_as_i64(&v, &i), rows[k].i64);
        assert_int_equal(gguf_as_f64(&v, &f), rows[k].f64);
    }
}

static void arrays_yield_their_elements(void **state)
{
    struct gguf_value v;
    struct gguf_string s;
    int64_t i;
    (void)state;
    write_sample(sample);
    struct gguf *g = open_ok(sample, 0);
    const struct gguf_value *words = &gguf_find(g, "words")->value;
    const struct gguf_value *halves = &gguf_find(g, "halves")->value;
    const uint8_t *at = words->data;

    assert_int_equal(gguf_next_string(&at).len, 1);
    assert_int_equal(gguf_next_string(&at).len, 0);
    s = gguf_next_string(&at);
    assert_int_equal(s.len, 3);
    assert_memory_equal(s.data, "b\0c", 3);
    assert_int_equal(gguf_element(words, 2, &v), 0);
    assert_int_equal(gguf_as_string(&v, &s), 0);
    assert_memory_equal(s.data, "b\0c", 3);
    assert_int_equal(gguf_element(words, 3, &v), -1);
    assert_int_equal(gguf_element(halves, 2, &v), 0);
    assert_int_equal(gguf_as_i64(&v, &i), 0);
    assert_int_equal(i, 65535);
    assert_int_equal(gguf_element(&v, 0, &v), -1);
    gguf_close(&g);
}

/* ---- Overrides ---------------------------------------------------------- */

static void overrides_replace_and_add(void **state)
{
    struct gguf_string s;
    int64_t i;
    double f;
    int b;
    (void)state;
    write_sample(sample);
    struct gguf *g = open_ok(sample, 0);
    int n = gguf_kv_count(g);
    assert_int_equal(gguf_override(g, "sample.u32=int:-7", NULL), ERR_OK);
    assert_int_equal(gguf_override(g, "a.new=float:1.5e3", NULL), ERR_OK);
    assert_int_equal(gguf_override(g, "z.new=bool:true", NULL), ERR_OK);
    assert_int_equal(gguf_override(g, "sample.i32=str:a=b:c", NULL), ERR_OK);
    assert_int_equal(gguf_override(g, "sample.u16=str:", NULL), ERR_OK);
    assert_int_equal(gguf_kv_count(g), n + 2);

    const struct gguf_kv *kv = gguf_find_arch(g, "u32");
    assert_int_equal(kv->overridden, 1);
    assert_int_equal(gguf_as_i64(&kv->value, &i), 0);
    assert_int_equal(i, -7);
    assert_int_equal(gguf_as_f64(&gguf_find(g, "a.new")->value, &f), 0);
    assert_true(f == 1500);
    assert_int_equal(gguf_as_bool(&gguf_find(g, "z.new")->value, &b), 0);
    assert_int_equal(b, 1);
    assert_int_equal(gguf_as_string(&gguf_find_arch(g, "i32")->value, &s), 0);
    assert_int_equal(s.len, 5);
    assert_memory_equal(s.data, "a=b:c", 5);
    assert_int_equal(gguf_as_string(&gguf_find_arch(g, "u16")->value, &s), 0);
    assert_int_equal(s.len, 0);
    assert_int_equal(gguf_find_arch(g, "f32")->overridden, 0);

    assert_int_equal(gguf_override(g, "general.architecture=str:other", NULL), ERR_OK);
    assert_string_equal(gguf_architecture(g), "other");
    assert_null(gguf_find_arch(g, "u32"));
    gguf_close(&g);
}

static void bad_overrides_are_refused(void **state)
{
    static const struct {
        const char *spec, *why;
    } rows[] = {
        {"",                              "want KEY=TYPE:VALUE" },
        { "key",                          "want KEY=TYPE:VALUE" },
        { "key=5",                        "want KEY=TYPE:VALUE" },
        { "=int:5",                       "want KEY=TYPE:VALUE" },
        { "key=u32:5",                    "unknown type \"u32\""},
        { "key=:5",                       "unknown type"        },
        { "key=INT:5",                    "unknown type"        },
        { "key=int:",                     "not a whole number"  },
        { "key=int: 5",                   "not a whole number"  },
        { "key=int:5.5",                  "not a whole number"  },
        { "key=int:99999999999999999999", "not a whole number"  },
        { "key=float:x",                  "not a number"        },
        { "key=float:nan",                "not a number"        },
        { "key=float:1e999",              "not a number"        },
        { "key=bool:1",                   "not true or false"   },
        { "general.alignment=int:64",     "describes the file"  },
        { "split.count=int:2",            "describes the file"  },
        { "general.architecture=int:2",   "not the name"        },
    };
    (void)state;
    write_sample(sample);
    struct gguf *g = open_ok(sample, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = { 0 };
        assert_int_equal(gguf_override(g, rows[i].spec, &e), ERR_USAGE);
        if (!strstr(e.msg, rows[i].why))
            fail_msg("%s: \"%s\" does not say \"%s\"", rows[i].spec, e.msg, rows[i].why);
    }
    gguf_close(&g);
}

/* ---- Shards ------------------------------------------------------------- */

/* Tensors t0, t1, t2, one a shard, each with its number as data. */
struct shard {
    const char *name;
    int no, count, tensors;
    const char *tensor;
};

static const struct shard good_set[3] = {
    {"m-00001-of-00003.gguf",  0, 3, 3, "t0"},
    { "m-00002-of-00003.gguf", 1, 3, 3, "t1"},
    { "m-00003-of-00003.gguf", 2, 3, 3, "t2"},
};

static void write_shard(const struct shard *s)
{
    struct gguf_writer *w = NULL;
    float value = (float)s->no;

    assert_int_equal(gguf_writer_create(&w, s->name, NULL), ERR_OK);
    if (s->no == 0)
        gguf_write_string(w, "general.architecture", "sample", 6);
    gguf_write_u16(w, "split.no", (uint16_t)s->no);
    if (s->no == 1) /* writers differ */
        gguf_write_u32(w, "split.count", (uint32_t)s->count);
    else
        gguf_write_u16(w, "split.count", (uint16_t)s->count);
    gguf_write_i32(w, "split.tensors.count", s->tensors);
    gguf_write_tensor(w, s->tensor, QUANT_F32, 1, (int64_t[]){ 1 });
    gguf_write_data(w, &value, sizeof value);
    assert_int_equal(gguf_writer_finish(&w, NULL), ERR_OK);
}

static void write_set(const struct shard *set)
{
    for (int i = 0; i < 3; i++)
        write_shard(&set[i]);
}

static void check_set(const char *entry)
{
    struct gguf *g = open_ok(entry, 0);

    assert_int_equal(gguf_part_count(g), 3);
    assert_int_equal(gguf_tensor_count(g), 3);
    assert_string_equal(gguf_architecture(g), "sample");
    for (int i = 0; i < 3; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        float value = -1;
        assert_int_equal(t->part, i);
        assert_int_equal(t->name[1], '0' + i);
        assert_int_equal(gguf_read(g, t, 0, &value, sizeof value, NULL), ERR_OK);
        assert_true(value == (float)i);
    }
    gguf_close(&g);
}

static void any_shard_opens_the_set(void **state)
{
    (void)state;
    write_set(good_set);
    for (int i = 0; i < 3; i++)
        check_set(good_set[i].name);
}

/* Names say 1, 2, 3 but the files are 0, 2, 1. */
static void split_no_counts_more_than_the_name(void **state)
{
    struct shard set[3];
    (void)state;
    memcpy(set, good_set, sizeof set);
    set[1].name = good_set[2].name;
    set[2].name = good_set[1].name;
    write_set(set);
    for (int i = 0; i < 3; i++)
        check_set(good_set[i].name);
}

static void bad_sets_are_refused(void **state)
{
    static const struct {
        struct shard with; /* replaces the good one of this name */
        const char *why;
    } rows[] = {
        {{ "m-00002-of-00003.gguf", 0, 3, 3, "t1" },
         "split.no is 0, which m-00001-of-00003.gguf has"                               },
        { { "m-00002-of-00003.gguf", 1, 4, 3, "t1" },  "they belong to different models"},
        { { "m-00002-of-00003.gguf", 1, 2, 3, "t1" },  "they belong to different models"},
        { { "m-00002-of-00003.gguf", 1, 1, 3, "t1" },  "split.no is 1, expected 0 to 0" },
        { { "m-00002-of-00003.gguf", 1, 0, 3, "t1" },  "they belong to different models"},
        { { "m-00003-of-00003.gguf", 2, 3, 4, "t2" },  "they belong to different models"},
        { { "m-00003-of-00003.gguf", 3, 3, 3, "t2" },  "split.no is 3, expected 0 to 2" },
        { { "m-00003-of-00003.gguf", 2, 3, 3, "t1" },  "tensor \"t1\" at offset"        },
        { { "m-00003-of-00003.gguf", 2, 3, -3, "t2" },
         "split.tensors.count is missing or negative"                                   },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = { 0 };
        struct gguf *g = NULL;
        write_set(good_set);
        write_shard(&rows[i].with);
        assert_int_equal(gguf_open(&g, good_set[0].name, 0, &e), ERR_FORMAT);
        if (!strstr(e.msg, rows[i].why))
            fail_msg("row %zu: \"%s\" does not say \"%s\"", i, e.msg, rows[i].why);
    }
}

static void missing_shards_are_named(void **state)
{
    (void)state;
    write_set(good_set);
    unlink(good_set[0].name);
    open_fails(good_set[2].name, 0,
               "1 of the model's 3 shards are not beside it: m-00001-of-00003.gguf");
    open_fails(good_set[2].name, GGUF_HEADERS_ONLY, "m-00001-of-00003.gguf");
    unlink(good_set[1].name);
    open_fails(good_set[2].name, 0, "m-00001-of-00003.gguf, m-00002-of-00003.gguf");
}

static void shards_need_their_names(void **state)
{
    static const char *const names[] = {
        "m.gguf",        "-00002-of-00003.gguf.bak", "m-00002-of-00004.gguf",
        "m-2-of-3.gguf", "m-00000-of-00003.gguf",    "00002-of-00003.gguf"
    };
    (void)state;
    write_set(good_set);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct shard s = good_set[1];
        s.name = names[i];
        write_shard(&s);
        open_fails(names[i], 0, "name them NAME-00001-of-00003.gguf");
    }
}

static void tensor_total_must_agree(void **state)
{
    struct shard set[3];
    (void)state;
    memcpy(set, good_set, sizeof set);
    for (int i = 0; i < 3; i++)
        set[i].tensors = 5;
    write_set(set);
    open_fails(set[0].name, 0, "split.tensors.count is 5, but the 3 shards have 3 tensors");
}

/* ---- Files without their data ------------------------------------------- */

static void headers_do_for_a_plan(void **state)
{
    uint8_t byte;
    struct err e = { 0 };
    (void)state;
    write_sample(sample);
    struct gguf *g = open_ok(sample, 0);
    uint64_t data = gguf_tensor_at(g, 0)->offset;
    gguf_close(&g);

    assert_int_equal(truncate(sample, (off_t)data), 0);
    open_fails(sample, 0, "cut off");
    g = open_ok(sample, GGUF_HEADERS_ONLY);
    assert_int_equal(gguf_tensor_count(g), 3);
    assert_int_equal(gguf_read(g, gguf_tensor_at(g, 0), 0, &byte, 1, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "the file ends at"));
    gguf_close(&g);

    assert_int_equal(truncate(sample, (off_t)data - 64), 0);
    open_fails(sample, GGUF_HEADERS_ONLY, "cut off");
}

static void a_file_that_shrinks_is_an_error(void **state)
{
    uint8_t data[136];
    (void)state;
    write_sample(sample);
    struct gguf *g = open_ok(sample, 0);
    const struct gguf_tensor *t = gguf_tensor_find(g, "two");
    assert_int_equal(truncate(sample, (off_t)t->offset + 100), 0);
    assert_int_equal(gguf_read(g, t, 0, data, 100, NULL), ERR_OK);
    assert_int_equal(gguf_read(g, t, 0, data, 101, NULL), ERR_IO);
    gguf_close(&g);
}

static void only_files_are_opened(void **state)
{
    (void)state;
    open_fails("nothing", 0, "cannot open");
    open_fails(temp_dir, 0, "is a directory");
    open_fails("/dev/null", 0, "device or pipe");
}

static int enter(void **state)
{
    log_set_quiet(1);
    return temp_dir_enter(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_models_open),
        cmocka_unit_test(writer_and_reader_agree),
        cmocka_unit_test(copying_changes_nothing),
        cmocka_unit_test(writer_reports_its_first_failure),
        cmocka_unit_test(scalars_convert_when_they_fit),
        cmocka_unit_test(large_integers_are_not_bent),
        cmocka_unit_test(arrays_yield_their_elements),
        cmocka_unit_test(overrides_replace_and_add),
        cmocka_unit_test(bad_overrides_are_refused),
        cmocka_unit_test(any_shard_opens_the_set),
        cmocka_unit_test(split_no_counts_more_than_the_name),
        cmocka_unit_test(bad_sets_are_refused),
        cmocka_unit_test(missing_shards_are_named),
        cmocka_unit_test(shards_need_their_names),
        cmocka_unit_test(tensor_total_must_agree),
        cmocka_unit_test(headers_do_for_a_plan),
        cmocka_unit_test(a_file_that_shrinks_is_an_error),
        cmocka_unit_test(only_files_are_opened),
    };
    return cmocka_run_group_tests_name("model/gguf", tests, enter, temp_dir_remove);
}
