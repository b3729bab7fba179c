/* SPDX-License-Identifier: MIT */
/* tests/model/chat_golden_test.c - what the templates of real files render.
 *
 * The templates belong to others and are no part of the project: they are read from
 * $LATENTD_FIXTURES, and the test is skipped without it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "model/chat.h"
#include "model/gguf.h"

enum { MAX_MESSAGES = 8 };

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    if (!text)
        fail_msg("no %s", key);
    return text;
}

static int read_messages(struct chat_message *m, const json_t *list)
{
    int n = (int)json_array_size(list);

    assert_in_range(n, 1, MAX_MESSAGES);
    for (int i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, (size_t)i);
        const char *role = text_of(one, "role");
        m[i].role = *role == 's' ? CHAT_SYSTEM : *role == 'u' ? CHAT_USER : CHAT_ASSISTANT;
        m[i].text = text_of(one, "content");
        m[i].len = strlen(m[i].text);
    }
    return n;
}

static void check_case(const json_t *golden, const json_t *one)
{
    const char *chat_template = text_of(golden, "template"), *want = text_of(one, "expect");
    const struct chat_format *f = chat_format_detect(chat_template, strlen(chat_template));
    struct chat_message m[MAX_MESSAGES];
    int n = read_messages(m, json_object_get(one, "messages"));
    struct chat_options opt = {
        .thinking = -1,
        .history_only = !json_is_true(json_object_get(one, "add_generation_prompt")),
    };
    struct str got = { 0 };
    struct err e = { 0 };

    if (chat_render_text(f, chat_template, text_of(golden, "bos_token"),
                         text_of(golden, "eos_token"), m, n, &opt, &got, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    if (strcmp(got.data, want) != 0)
        fail_msg("%s, case %s: got\n%s\nwant\n%s", chat_format_name(f), text_of(one, "case"),
                 got.data, want);
    str_free(&got);
}

/* file and format, parted by a blank */
static void renders_as_the_template_does(void **state)
{
    char file[64], format[64], path[4096];
    json_error_t why;

    assert_int_equal(sscanf(*state, "%63s %63s", file, format), 2);
    snprintf(path, sizeof path, "%s/golden/chat/%s.json", getenv("LATENTD_FIXTURES"), file);
    json_t *golden = json_load_file(path, 0, &why);
    if (!golden)
        fail_msg("%s: %s", path, why.text);
    const char *text = text_of(golden, "template");
    const struct chat_format *f = chat_format_detect(text, strlen(text));
    assert_non_null(f);
    assert_string_equal(chat_format_name(f), format);
    const json_t *cases = json_object_get(golden, "cases");
    assert_true(json_array_size(cases) >= 12);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(golden, json_array_get(cases, i));
    json_decref(golden);
}

/* With a real vocabulary: the ids are those of the template's text tokenised as a whole with its
 * special tokens, which is how the model was fed. */
static void ids_are_those_of_the_whole_text(void **state)
{
    const char *fixtures = getenv("LATENTD_FIXTURES");
    char path[4096];
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    const struct chat_format *f = NULL;

    (void)state;
    snprintf(path, sizeof path, "%s/golden/tokenizer/deepseek-v3.vocab.gguf", fixtures);
    assert_int_equal(gguf_open(&g, path, 0, NULL), ERR_OK);
    assert_int_equal(tokenizer_open(&t, g, NULL), ERR_OK);
    assert_int_equal(chat_format_choose(&f, g, NULL, NULL), ERR_OK);
    snprintf(path, sizeof path, "%s/golden/chat/deepseek-v3.json", fixtures);
    json_t *golden = json_load_file(path, 0, NULL);
    assert_non_null(golden);
    const json_t *cases = json_object_get(golden, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        const char *text = text_of(one, "expect");
        struct chat_message m[MAX_MESSAGES];
        int n = read_messages(m, json_object_get(one, "messages"));
        struct chat_options opt = { .history_only = !json_is_true(
                                        json_object_get(one, "add_generation_prompt")) };
        struct token_list want = { 0 }, got = { 0 };
        assert_int_equal(tokenizer_encode(t, text, strlen(text), TOKENIZE_SPECIAL, &want, NULL),
                         ERR_OK);
        assert_int_equal(chat_render(f, g, t, m, n, &opt, &got, NULL), ERR_OK);
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.ids, want.ids, want.n * sizeof *want.ids);
        token_list_free(&want);
        token_list_free(&got);
    }
    json_decref(golden);
    tokenizer_close(&t);
    gguf_close(&g);
}

int main(void)
{
#define GOLDEN(file, format)                                                      \
    {                                                                             \
        file, renders_as_the_template_does, NULL, NULL, (void *)(file " " format) \
    }
    const struct CMUnitTest tests[] = {
        GOLDEN("deepseek-v3", "deepseek-v3"),
        GOLDEN("kimi-k2", "kimi-k2"),
        GOLDEN("kimi-k2-thinking", "kimi-k2-thinking"),
        GOLDEN("glm-4.7-flash", "glm-4"),
        GOLDEN("gigachat3", "gigachat3"),
        cmocka_unit_test(ids_are_those_of_the_whole_text),
    };
#undef GOLDEN
    if (!getenv("LATENTD_FIXTURES")) {
        printf("skipped: LATENTD_FIXTURES is not set\n");
        return 77;
    }
    return cmocka_run_group_tests_name("model/chat_golden", tests, NULL, NULL);
}
