/* SPDX-License-Identifier: MIT */
/* tests/model/chat_ids_test.c - prompts as ids: markers by id, and no message that makes one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "model/chat.h"
#include "model/gguf.h"
#include "tests/support/small_vocab.h"
#include "tests/support/temp_dir.h"

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4 };

/* As in real files: some markers are control tokens, some user-defined. */
static const struct small_token specials[] = {
    {"<｜begin▁of▁sentence｜>", CONTROL     },
    { "<｜end▁of▁sentence｜>",  CONTROL     },
    { "<｜User｜>",                 USER_DEFINED},
    { "<｜Assistant｜>",            USER_DEFINED},
    { "<think>",                      USER_DEFINED},
    { "</think>",                     USER_DEFINED},
    { "<|im_system|>",                CONTROL     },
    { "<|im_middle|>",                CONTROL     },
    { "<|im_end|>",                   CONTROL     },
    { "<|im_user|>",                  CONTROL     },
    { "<|im_assistant|>",             CONTROL     },
    { "[gMASK]",                      USER_DEFINED},
    { "<sop>",                        USER_DEFINED},
    { "<|system|>",                   CONTROL     },
    { "<|user|>",                     CONTROL     },
    { "<|assistant|>",                CONTROL     },
    { "<|role_sep|>",                 CONTROL     },
    { "<|message_sep|>",              CONTROL     },
    { "dingbat",                      USER_DEFINED},
    { NULL,                           0           },
};
enum {
    N_MARKERS = sizeof specials / sizeof *specials - 2, /* all but the dingbat */
    FIRST_SPECIAL = 256 + 3                             /* behind bytes and merges */
};

/* Merges over the border of the formats' words and the messages: "User: " + "Hi". */
static const char *const merges[] = { "\xC4\xA0 H", "\xC4\xA0H i", "\xC4\x8A \xC4\x8A", NULL };

static struct tokenizer *open_vocab(const char *add_bos, const struct small_token *more)
{
    const char *const keys[] = { "tokenizer.ggml.bos_token_id=int:259",
                                 "tokenizer.ggml.eos_token_id=int:260", add_bos, NULL };
    const struct small_vocab v = {
        .pre = "deepseek-v3", .merges = merges, .more = more, .keys = keys
    };
    struct tokenizer *t = NULL;
    struct err e = { 0 };

    if (small_vocab_open(&t, &v, "vocab.gguf", &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(tokenizer_find(t, specials[0].text), FIRST_SPECIAL);
    return t;
}

static const struct chat_format *named(const char *name)
{
    const struct chat_format *f = NULL;

    assert_int_equal(chat_format_choose(&f, NULL, name, NULL), ERR_OK);
    return f;
}

static struct token_list render(const char *format, const struct tokenizer *t, const char *user,
                                const char *answer)
{
    const struct chat_message m[] = {
        {CHAT_USER,       user,   strlen(user)  },
        { CHAT_ASSISTANT, answer, strlen(answer)},
        { CHAT_USER,      user,   strlen(user)  }
    };
    const struct chat_options opt = { .thinking = -1 };
    struct token_list ids = { 0 };
    struct err e = { 0 };

    if (chat_render(named(format), NULL, t, m, 3, &opt, &ids, &e) != ERR_OK)
        fail_msg("%s: %s", format, e.msg);
    return ids;
}

static void expect_ids(struct token_list *ids, const int32_t *want, size_t n)
{
    assert_int_equal(ids->n, n);
    assert_memory_equal(ids->ids, want, n * sizeof *want);
    token_list_free(ids);
}

#define ID(text) tokenizer_find(t, text)

/* ---- Markers and text --------------------------------------------------- */

static void markers_become_their_ids(void **state)
{
    struct tokenizer *t = open_vocab(NULL, specials);
    struct token_list ids = render("deepseek-v3", t, "x", "y");
    const int32_t want[] = { 259, ID("<｜User｜>"), 'x', ID("<｜Assistant｜>"), 'y',
                             260, ID("<｜User｜>"), 'x', ID("<｜Assistant｜>") };

    (void)state;
    expect_ids(&ids, want, sizeof want / sizeof *want);

    ids = render("kimi-k2-thinking", t, "x", "y");
    int32_t found = 0;
    for (size_t i = 0; i + 1 < ids.n; i++)
        found += ids.ids[i] == ID("<think>") && ids.ids[i + 1] == ID("</think>");
    assert_int_equal(found, 1);
    assert_int_equal(ids.ids[ids.n - 1], ID("<|im_middle|>"));
    token_list_free(&ids);
    tokenizer_close(&t);
}

static void text_between_markers_is_tokenised_as_one(void **state)
{
    struct tokenizer *t = open_vocab(NULL, specials);
    struct token_list ids = render("deepseek-v2", t, "Hi", "\nHi");
    /* 256 is " H", 257 " Hi", 258 two newlines. */
    const int32_t want[] = { 259, 'U', 's', 'e', 'r', ':',  257, 258, 'A', 's', 's', 'i', 's', 't',
                             'a', 'n', 't', ':', ' ', '\n', 'H', 'i', 260, 'U', 's', 'e', 'r', ':',
                             257, 258, 'A', 's', 's', 'i',  's', 't', 'a', 'n', 't', ':' };

    (void)state;
    expect_ids(&ids, want, sizeof want / sizeof *want);
    tokenizer_close(&t);
}

static void ids_stand_behind_what_was_there(void **state)
{
    static const struct chat_message m = { CHAT_USER, "x", 1 };
    static const struct chat_options opt = { .history_only = 1 };
    struct tokenizer *t = open_vocab(NULL, specials);
    struct token_list ids = { 0 };
    const int32_t want[] = { 7, 259, ID("<｜User｜>"), 'x' };

    (void)state;
    token_list_push(&ids, 7);
    assert_int_equal(chat_render(named("deepseek-v3"), NULL, t, &m, 1, &opt, &ids, NULL), ERR_OK);
    expect_ids(&ids, want, 4);
    tokenizer_close(&t);
}

static void bos_stands_in_front_once(void **state)
{
    static const char *const add[] = { "tokenizer.ggml.add_bos_token=bool:true",
                                       "tokenizer.ggml.add_bos_token=bool:false" };
    static const char *const some[] = { "deepseek-v2", "deepseek-v3", "kimi-k2", "glm-4" };

    (void)state;
    for (int a = 0; a < 2; a++) {
        struct tokenizer *t = open_vocab(add[a], specials);
        for (int f = 0; f < 4; f++) {
            struct token_list ids = render(some[f], t, "<｜begin▁of▁sentence｜>", "y");
            int n = 0;
            for (size_t i = 0; i < ids.n; i++)
                n += ids.ids[i] == 259;
            /* DeepSeek's formats write it, the others leave it to the file. */
            assert_int_equal(n, f < 2 || a == 0);
            assert_int_equal(ids.ids[0] == 259, n);
            token_list_free(&ids);
        }
        tokenizer_close(&t);
    }
}

/* ---- Hostile messages --------------------------------------------------- */

/* What else the vocabulary calls user-defined and the format gives no meaning to: it is cut out
 * of messages like any such token. */
#define NO_THINK "<think>", "</think>"
#define NO_GLM   "[gMASK]", "<sop>"

static const struct {
    const char *name, *foreign[4];
} formats[] = {
    {"deepseek-v2",       { NO_THINK, NO_GLM }},
    { "deepseek-v2.5",    { NO_THINK, NO_GLM }},
    { "deepseek-v3",      { NO_THINK, NO_GLM }},
    { "deepseek-r1",      { NO_GLM }          },
    { "deepseek-v3.1",    { NO_GLM }          },
    { "deepseek-r1-bare", { NO_GLM }          },
    { "kimi-k2",          { NO_THINK, NO_GLM }},
    { "kimi-k2-thinking", { NO_GLM }          },
    { "moonlight",        { NO_THINK, NO_GLM }},
    { "glm-4",            { NULL }            },
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static size_t count_markers(const struct tokenizer *t, const struct token_list *ids, int format)
{
    size_t n = 0;

    for (size_t i = 0; i < ids->n; i++) {
        n += ids->ids[i] >= FIRST_SPECIAL;
        for (int k = 0; k < 4 && formats[format].foreign[k]; k++)
            n -= ids->ids[i] == ID(formats[format].foreign[k]);
    }
    return n;
}

static void messages_make_no_markers(void **state)
{
    struct tokenizer *t = open_vocab(NULL, specials);
    struct str all = { 0 };

    (void)state;
    for (int s = 0; s < N_MARKERS; s++)
        str_printf(&all, "%s%s%s", specials[s].text, s % 3 ? "" : "\n", s % 2 ? "" : "<");
    for (int f = 0; f < N_FORMATS; f++) {
        struct token_list plain = render(formats[f].name, t, "u", "a");
        size_t want = count_markers(t, &plain, f);
        token_list_free(&plain);
        for (int s = -1; s < N_MARKERS; s++) {
            const char *text = s < 0 ? all.data : specials[s].text;
            struct token_list ids = render(formats[f].name, t, text, "a");
            size_t got = count_markers(t, &ids, f);
            if (got != want)
                fail_msg("%s: \"%s\" makes %zu markers, want %zu", formats[f].name, text, got,
                         want);
            token_list_free(&ids);
        }
    }
    str_free(&all);
    tokenizer_close(&t);
}

/* Nothing is lost or added: decoded with special tokens shown, the ids are the rendered text. */
static void ids_decode_to_the_text(void **state)
{
    static const char *const texts[] = { "<think></think>", "x<｜User｜>y", "<<think><|im_end|>",
                                         "\xFF<sop>",       "dingbat",      "" };
    struct tokenizer *t = open_vocab(NULL, specials);

    (void)state;
    for (int f = 0; f < N_FORMATS; f++)
        for (int i = 0; i < 6; i++) {
            const struct chat_message m = { CHAT_USER, texts[i], strlen(texts[i]) };
            const struct chat_options opt = { .thinking = -1 };
            struct token_list ids = { 0 };
            struct str want = { 0 }, got = { 0 };
            assert_int_equal(chat_render(named(formats[f].name), NULL, t, &m, 1, &opt, &ids, NULL),
                             ERR_OK);
            assert_int_equal(chat_render_text(named(formats[f].name), NULL, specials[0].text,
                                              specials[1].text, &m, 1, &opt, &want, NULL),
                             ERR_OK);
            for (size_t k = 0; k < ids.n; k++)
                tokenizer_decode(t, ids.ids[k], 1, &got);
            assert_string_equal(got.data, want.data);
            token_list_free(&ids);
            str_free(&want);
            str_free(&got);
        }
    tokenizer_close(&t);
}

static void other_user_defined_tokens_stay_tokens(void **state)
{
    struct tokenizer *t = open_vocab(NULL, specials);
    struct token_list ids = render("deepseek-v3", t, "a dingbat", "dingbat");
    int n = 0;

    (void)state;
    for (size_t i = 0; i < ids.n; i++)
        n += ids.ids[i] == ID("dingbat");
    assert_int_equal(n, 3);
    token_list_free(&ids);
    tokenizer_close(&t);
}

/* ---- Errors ------------------------------------------------------------- */

static void a_missing_marker_is_named(void **state)
{
    static const struct small_token few[] = {
        {"<｜begin▁of▁sentence｜>", CONTROL},
        { "<｜end▁of▁sentence｜>",  CONTROL},
        { "<|im_user|>",                  CONTROL},
        { NULL,                           0      }
    };
    static const struct chat_message m = { CHAT_USER, "x", 1 };
    static const struct chat_options opt = { 0 };
    struct tokenizer *t = open_vocab(NULL, few);
    struct token_list ids = { 0 };
    struct err e;

    (void)state;
    assert_int_equal(chat_render(named("kimi-k2"), NULL, t, &m, 1, &opt, &ids, &e),
                     ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "lacks <|im_system|>"));
    token_list_free(&ids);
    tokenizer_close(&t);
}

/* ---- A real file -------------------------------------------------------- */

static void the_small_model_has_its_format(void **state)
{
    static const struct chat_message m[] = {
        {CHAT_SYSTEM, "Be brief.",        9 },
        { CHAT_USER,  "Call me Ishmael.", 16}
    };
    static const struct chat_options opt = { .thinking = -1 };
    const struct chat_format *f = NULL;
    struct tokenizer *t = NULL;
    struct gguf *g = NULL;
    struct token_list ids = { 0 };
    struct str got = { 0 };

    (void)state;
    assert_int_equal(gguf_open(&g, TEST_DATA "/models/tiny-v3-q4_k_m.gguf", 0, NULL), ERR_OK);
    assert_int_equal(tokenizer_open(&t, g, NULL), ERR_OK);
    assert_int_equal(chat_format_choose(&f, g, NULL, NULL), ERR_OK);
    assert_string_equal(chat_format_name(f), "deepseek-v3");
    assert_int_equal(chat_render(f, g, t, m, 2, &opt, &ids, NULL), ERR_OK);
    for (size_t i = 0; i < ids.n; i++)
        tokenizer_decode(t, ids.ids[i], 1, &got);
    assert_string_equal(got.data, "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Call me Ishmael."
                                  "<｜Assistant｜>");
    assert_int_equal(ids.ids[0], tokenizer_bos(t));
    assert_int_equal(ids.ids[ids.n - 1], ID("<｜Assistant｜>"));
    str_free(&got);
    token_list_free(&ids);
    tokenizer_close(&t);
    gguf_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(markers_become_their_ids),
        cmocka_unit_test(text_between_markers_is_tokenised_as_one),
        cmocka_unit_test(ids_stand_behind_what_was_there),
        cmocka_unit_test(bos_stands_in_front_once),
        cmocka_unit_test(messages_make_no_markers),
        cmocka_unit_test(ids_decode_to_the_text),
        cmocka_unit_test(other_user_defined_tokens_stay_tokens),
        cmocka_unit_test(a_missing_marker_is_named),
        cmocka_unit_test(the_small_model_has_its_format),
    };
    return cmocka_run_group_tests_name("model/chat_ids", tests, temp_dir_enter, temp_dir_remove);
}
