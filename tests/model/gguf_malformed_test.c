/* SPDX-License-Identifier: MIT */
/* tests/model/gguf_malformed_test.c - every way in which one file can be wrong ends with one
 * line that says what and where.  Sets of shards: gguf_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/gguf.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/temp_dir.h"

static const char path[] = "bad.gguf";

static void write_file(const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static const struct row {
    const char *name, *bytes;
    enum err_code code;
    const char *why;
} rows[] = {
#define X(name, bytes, code, why) { name, bytes, ERR_##code, why },
#include "tests/model/gguf_malformed.def"
#undef X
};

static void refused_with_a_line(void **state)
{
    static uint8_t data[70000];
    const struct row *row = *state;
    struct gguf *g = NULL;
    struct err e = { 0 };
    size_t n = gguf_build(row->bytes, data, sizeof data);

    write_file(data, n);
    assert_int_equal(gguf_open(&g, path, 0, &e), row->code);
    assert_int_equal(e.code, row->code);
    assert_null(g);
    if (strncmp(e.msg, path, strlen(path)) != 0)
        fail_msg("\"%s\" does not begin with the file's name", e.msg);
    if (!strstr(e.msg, row->why))
        fail_msg("\"%s\" does not say \"%s\"", e.msg, row->why);
    if (strchr(e.msg, '\n'))
        fail_msg("\"%s\" is more than one line", e.msg);
}

/* ---- What must not be refused ------------------------------------------- */

#define T B_TENSOR("t", 1)
#define U B_TENSOR("u", 1)

static void accepted(const char *bytes, int n_keys, int n_tensors)
{
    static uint8_t data[4096];
    struct gguf *g = NULL;
    struct err e = { 0 };

    write_file(data, gguf_build(bytes, data, sizeof data));
    if (gguf_open(&g, path, 0, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(gguf_kv_count(g), n_keys);
    assert_int_equal(gguf_tensor_count(g), n_tensors);
    gguf_close(&g);
}

static void unusual_files_open(void **state)
{
    (void)state;
    accepted(B_HEAD(0, 0), 0, 0);
    accepted("raw:GGUF u32:2 u64:0 u64:0", 0, 0);
    accepted(B_HEAD(0, 2) B_KEY("split.no", 2) "u16:0 " B_KEY("split.count", 2) "u16:0", 2, 0);
    /* no strings */
    accepted(B_HEAD(0, 1) B_KEY("k", 9) "u32:8 u64:0", 1, 0);
    /* no padding behind the last tensor */
    accepted(B_HEAD(1, 0) T B_DIM(9) B_DATA(0, 0) "pad:32 zero:36", 0, 1);
    /* a gap */
    accepted(B_HEAD(1, 0) T B_DIM(8) B_DATA(0, 64) "pad:32 zero:96", 0, 1);
    /* shared bytes; not in order */
    accepted(B_HEAD(2, 0) T B_DIM(8) B_DATA(0, 0) U B_DIM(8) B_DATA(0, 0) "pad:32 zero:32", 0, 2);
    accepted(B_HEAD(2, 0) T B_DIM(8) B_DATA(0, 32) U B_DIM(8) B_DATA(0, 0) "pad:32 zero:64", 0, 2);
    /* another alignment */
    accepted(B_HEAD(1, 1) B_KEY("general.alignment", 4) "u32:8 " T B_DIM(2)
                 B_DATA(0, 8) "pad:8 zero:16",
             1, 1);
}

/* ---- Truncation --------------------------------------------------------- */

static void copy_file(const char *from)
{
    static char buffer[1 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(path, "wb");
    size_t n;

    assert_non_null(in);
    assert_non_null(out);
    while ((n = fread(buffer, 1, sizeof buffer, in)) > 0)
        assert_int_equal(fwrite(buffer, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void cut_at_every_1000th_byte(void **state)
{
    (void)state;
    copy_file(TEST_DATA "/models/tiny-v3-legacy-iq4_ks.gguf");
    struct gguf *g = NULL;
    assert_int_equal(gguf_open(&g, path, 0, NULL), ERR_OK);
    long data = (long)gguf_tensor_at(g, 0)->offset, size = (long)gguf_total_bytes(g);
    gguf_close(&g);

    for (long cut = (size - 1) / 1000 * 1000; cut >= 0; cut -= 1000) {
        struct err e = { 0 };
        assert_int_equal(truncate(path, cut), 0);
        assert_int_equal(gguf_open(&g, path, 0, &e), ERR_FORMAT);
        if (!strstr(e.msg, "cut off"))
            fail_msg("cut at %ld: \"%s\"", cut, e.msg);
        if (cut > data + 2000) /* one of them is as good as another */
            continue;
        enum err_code rc = gguf_open(&g, path, GGUF_HEADERS_ONLY, &e);
        assert_int_equal(rc, cut >= data ? ERR_OK : ERR_FORMAT);
        gguf_close(&g);
    }
}

/* ---- Size and speed ----------------------------------------------------- */

/* A sparse file whose counts are as large as its size allows must not be taken at its word. */
static void large_claims_take_no_memory(void **state)
{
    static const char *const claims[] = {
        B_HEAD(0, 1) "s:a u32:8 u64:0x10000000000",       /* a string of 1 TiB */
        B_HEAD(0, 1) "s:a u32:9 u32:0 u64:0x10000000000", /* an array of 1 TiB */
        B_HEAD(0x800000000, 0),                           /* 2^35 tensors      */
        B_HEAD(0, 0x800000000),                           /* 2^35 keys         */
    };
    uint8_t data[128];
    (void)state;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        struct gguf *g = NULL;
        struct err e = { 0 };
        write_file(data, gguf_build(claims[i], data, sizeof data));
        assert_int_equal(truncate(path, (off_t)1 << 41), 0);
        assert_int_not_equal(gguf_open(&g, path, 0, &e), ERR_OK);
        if (!strstr(e.msg, "header larger than 256 MiB") && !strstr(e.msg, "fit into"))
            fail_msg("claim %zu: \"%s\"", i, e.msg);
    }
}

static int enter(void **state)
{
    log_set_quiet(1);
    return temp_dir_enter(state);
}

int main(void)
{
    enum { N_ROWS = sizeof rows / sizeof *rows, N_OTHER = 3 };
    const struct CMUnitTest other[N_OTHER] = {
        cmocka_unit_test(unusual_files_open),
        cmocka_unit_test(cut_at_every_1000th_byte),
        cmocka_unit_test(large_claims_take_no_memory),
    };
    struct CMUnitTest tests[N_ROWS + N_OTHER];

    for (size_t i = 0; i < N_ROWS; i++)
        tests[i] =
            (struct CMUnitTest){ rows[i].name, refused_with_a_line, NULL, NULL, (void *)&rows[i] };
    memcpy(tests + N_ROWS, other, sizeof other);
    return cmocka_run_group_tests_name("model/gguf_malformed", tests, enter, temp_dir_remove);
}
