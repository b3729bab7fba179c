/* SPDX-License-Identifier: MIT */
/* tests/model/tokenizer_golden_test.c - ids in three published vocabularies, which lie in
 * $LATENTD_FIXTURES only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/gguf.h"
#include "model/tokenizer.h"
#include "tests/model/vectors.h"

static void check_vector(void *arg, const json_t *vector)
{
    const json_t *text = json_object_get(vector, "text"), *ids = json_object_get(vector, "ids");
    const char *s = json_string_value(text);
    size_t n = json_string_length(text);
    struct token_list l = { 0 };
    struct str back = { 0 };
    struct err e = { 0 };

    if (tokenizer_encode(arg, s, n, 0, &l, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(l.n, json_array_size(ids));
    for (size_t i = 0; i < l.n; i++) {
        if (l.ids[i] != json_integer_value(json_array_get(ids, i)))
            fail_msg("token %zu of \"%s\" is %d", i, s, l.ids[i]);
        tokenizer_decode(arg, l.ids[i], 0, &back);
    }
    assert_int_equal(back.len, n);
    assert_memory_equal(back.data, s, n);
    str_free(&back);
    token_list_free(&l);
}

static void vocabulary(void **state)
{
    const char *fixtures = getenv("LATENTD_FIXTURES");
    char path[512];
    struct tokenizer *t = NULL;
    struct gguf *g = NULL;
    struct err e = { 0 };

    snprintf(path, sizeof path, "%s/golden/tokenizer/%s.vocab.gguf", fixtures, (char *)*state);
    if (gguf_open(&g, path, 0, &e) || tokenizer_open(&t, g, &e))
        fail_msg("%s: %s", path, e.msg);
    assert_string_equal(tokenizer_pre(t), *state);
    assert_true(tokenizer_is_end(t, tokenizer_find(t, "<｜end▁of▁sentence｜>")));
    snprintf(path, sizeof path, "%s/golden/tokenizer/%s.jsonl", fixtures, (char *)*state);
    assert_int_equal(each_vector(path, check_vector, t), 66);
    tokenizer_close(&t);
    gguf_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"deepseek-llm",    vocabulary, NULL, NULL, "deepseek-llm"  },
        { "deepseek-coder", vocabulary, NULL, NULL, "deepseek-coder"},
        { "deepseek-v3",    vocabulary, NULL, NULL, "deepseek-v3"   },
    };

    if (!getenv("LATENTD_FIXTURES")) {
        printf("skipped: LATENTD_FIXTURES is not set\n");
        return 77;
    }
    return cmocka_run_group_tests_name("model/tokenizer_golden", tests, NULL, NULL);
}
