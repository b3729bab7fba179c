/* SPDX-License-Identifier: MIT */
/* tests/model/digest_test.c - what tells model files apart: metadata, and the weights of every
 * tensor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "model/digest.h"
#include "tests/support/temp_dir.h"

static const char fixture[] = TEST_DATA "/models/tiny-v3-q4_k_m.gguf";

static void digest_of(const char *path, const char *override, char hex[MODEL_DIGEST_SIZE])
{
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (gguf_open(&g, path, 0, &e) != ERR_OK ||
        (override && gguf_override(g, override, &e) != ERR_OK) ||
        model_digest(g, hex, &e) != ERR_OK)
        fail_msg("%s: %s", path, e.msg);
    gguf_close(&g);
}

static void *read_fixture(size_t *n)
{
    FILE *f = fopen(fixture, "rb");

    assert_true(f && fseek(f, 0, SEEK_END) == 0);
    *n = (size_t)ftell(f);
    void *bytes = malloc(*n);
    rewind(f);
    assert_true(bytes && fread(bytes, 1, *n, f) == *n);
    assert_int_equal(fclose(f), 0);
    return bytes;
}

static void write_copy(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_true(f && fwrite(bytes, 1, n, f) == n);
    assert_int_equal(fclose(f), 0);
}

/* Makes every byte of the tensor another one, or again what it was. */
static void flip(uint8_t *bytes, const struct gguf_tensor *t)
{
    for (uint64_t i = 0; i < t->bytes; i++)
        bytes[t->offset + i] ^= 1;
}

static void a_copy_is_the_same(void **state)
{
    char a[MODEL_DIGEST_SIZE], b[MODEL_DIGEST_SIZE];
    size_t n;
    void *bytes = read_fixture(&n);

    (void)state;
    write_copy("copy", bytes, n);
    free(bytes);
    digest_of(fixture, NULL, a);
    digest_of("copy", NULL, b);
    assert_string_equal(a, b);
    assert_int_equal(strlen(a), MODEL_DIGEST_SIZE - 1);
}

static void another_value_shows(void **state)
{
    char a[MODEL_DIGEST_SIZE], b[MODEL_DIGEST_SIZE];

    (void)state;
    digest_of(fixture, NULL, a);
    digest_of(fixture, "deepseek2.expert_used_count=int:3", b);
    assert_string_not_equal(a, b);
}

static void other_weights_of_any_tensor_show(void **state)
{
    char a[MODEL_DIGEST_SIZE], b[MODEL_DIGEST_SIZE];
    struct gguf *g = NULL;
    size_t n;
    uint8_t *bytes = read_fixture(&n);

    (void)state;
    digest_of(fixture, NULL, a);
    assert_int_equal(gguf_open(&g, fixture, 0, NULL), ERR_OK);
    for (int i = 0; i < gguf_tensor_count(g); i++) {
        flip(bytes, gguf_tensor_at(g, i));
        write_copy("other", bytes, n);
        flip(bytes, gguf_tensor_at(g, i));
        digest_of("other", NULL, b);
        if (strcmp(a, b) == 0)
            fail_msg("%s: its weights do not show", gguf_tensor_at(g, i)->name);
    }
    gguf_close(&g);
    free(bytes);
}

static void a_file_that_became_shorter_is_an_error(void **state)
{
    char hex[MODEL_DIGEST_SIZE];
    struct gguf *g = NULL;
    struct err e = { 0 };
    size_t n;
    void *bytes = read_fixture(&n);

    (void)state;
    write_copy("short", bytes, n);
    free(bytes);
    assert_int_equal(gguf_open(&g, "short", 0, NULL), ERR_OK);
    assert_int_equal(truncate("short", (off_t)n / 2), 0);
    assert_int_equal(model_digest(g, hex, &e), ERR_IO);
    gguf_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_is_the_same),
        cmocka_unit_test(another_value_shows),
        cmocka_unit_test(other_weights_of_any_tensor_show),
        cmocka_unit_test(a_file_that_became_shorter_is_an_error),
    };

    return cmocka_run_group_tests_name("model/digest", tests, temp_dir_enter, temp_dir_remove);
}
