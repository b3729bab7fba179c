/* SPDX-License-Identifier: MIT */
/* tests/model/chat_test.c - choosing a chat format, and prompts as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "model/chat.h"
#include "model/gguf.h"
#include "model/gguf_write.h"
#include "tests/support/temp_dir.h"

enum { MAX_MESSAGES = 8, DEFAULT = -1 };

/* Messages are written as "s:text", "u:text", "a:text". */
struct conversation {
    struct chat_message m[MAX_MESSAGES];
    int n;
};

static struct conversation parse(const char *const *messages)
{
    struct conversation c = { .n = 0 };

    for (; c.n < MAX_MESSAGES && messages[c.n]; c.n++) {
        const char *s = messages[c.n];
        c.m[c.n].role = *s == 's' ? CHAT_SYSTEM : *s == 'u' ? CHAT_USER : CHAT_ASSISTANT;
        c.m[c.n].text = s + 2;
        c.m[c.n].len = strlen(s + 2);
    }
    return c;
}

static const struct chat_format *named(const char *name)
{
    const struct chat_format *f = NULL;

    assert_int_equal(chat_format_choose(&f, NULL, name, NULL), ERR_OK);
    assert_string_equal(chat_format_name(f), name);
    return f;
}

/* ---- Prompts ------------------------------------------------------------ */

struct prompt {
    const char *format;
    int thinking;
    const char *messages[MAX_MESSAGES];
    const char *want;
};

#define GIGA_TEMPLATE "x {%- set DEVSYSTEM -%}\n  Be\n good. \n{%- endset -%} y"
#define KIMI_TEMPLATE "{{'<|im_system|>system<|im_middle|>Be brief<|im_end|>'}}"

#define U   "<｜User｜>"
#define A   "<｜Assistant｜>"
#define END "<｜end▁of▁sentence｜>"

static const struct prompt prompts[] = {
    {"deepseek-v2",
     DEFAULT,                      { "s:S", "u:U1", "a:A1", "u:U2" },
     "[B]S\n\nUser: U1\n\nAssistant: A1[E]User: U2\n\nAssistant:"                                                           },
    { "deepseek-v2",      DEFAULT, { "u:U1" },                                                   "[B]User: U1\n\nAssistant:"},
    { "deepseek-v2.5",    DEFAULT, { "s:S", "s:T", "u:U1" },                                     "[B]ST" U "U1" A           },
    { "deepseek-v3",
     DEFAULT,                      { "s:S", "u:U1", "a:A1", "s:T", "u:U2" },
     "[B]S\n\nT" U "U1" A "A1" END U "U2" A                                                                                 },
    { "deepseek-v3",
     1,                            { "u:U1", "a:<think>t</think>A1", "u:U2" },
     "[B]" U "U1" A "<think>t</think>A1" END U "U2" A                                                                       },
    { "deepseek-r1",
     DEFAULT,                      { "s:S", "u:U1", "a:<think>t</think>v</think>\nA1", "u:U2" },
     "[B]S" U "U1" A "\nA1" END U "U2" A "<think>\n"                                                                        },
    { "deepseek-r1",      0,       { "u:U1" },                                                   "[B]" U "U1" A "<think>\n" },
    { "deepseek-r1-bare",
     DEFAULT,                      { "u:U1", "a:t</think>A1", "u:U2" },
     "[B]" U "U1" A "A1" END U "U2" A                                                                                       },
    { "deepseek-v3.1",
     DEFAULT,                      { "s:S", "u:U1", "a:A1", "u:U2" },
     "[B]S" U "U1" A "</think>A1" END U "U2" A "</think>"                                                                   },
    { "deepseek-v3.1",
     1,                            { "u:U1", "a:t</think>A1</think>B1", "a:A2", "u:U2" },
     "[B]" U "U1" A "</think>A1</think>B1" END "A2" END U "U2" A "<think>"                                                  },
    { "kimi-k2",
     DEFAULT,                      { "u:U1" },
     "<|im_system|>system<|im_middle|>Be brief<|im_end|>\n"
      "<|im_user|>user<|im_middle|>U1<|im_end|><|im_assistant|>assistant<|im_middle|>"                                      },
    { "kimi-k2",
     DEFAULT,                      { "s:S", "u:U1", "a:A1", "u:U2" },
     "<|im_system|>system<|im_middle|>S<|im_end|><|im_user|>user<|im_middle|>U1<|im_end|>"
      "<|im_assistant|>assistant<|im_middle|>A1<|im_end|><|im_user|>user<|im_middle|>U2<|im_end|>"
      "<|im_assistant|>assistant<|im_middle|>"                                                                              },
    { "kimi-k2-thinking",
     DEFAULT,                      { "u:U1", "a:A1", "u:U2" },
     "<|im_system|>system<|im_middle|>Be brief<|im_end|><|im_user|>user<|im_middle|>U1<|im_end|>"
      "<|im_assistant|>assistant<|im_middle|><think></think>A1<|im_end|>"
      "<|im_user|>user<|im_middle|>U2<|im_end|><|im_assistant|>assistant<|im_middle|>"                                      },
    { "moonlight",
     DEFAULT,                      { "u:U1" },
     "<|im_system|>system<|im_middle|>Be brief<|im_end|>"
      "<|im_user|>user<|im_middle|>U1<|im_end|><|im_assistant|>assistant<|im_middle|>"                                      },
    { "glm-4",
     DEFAULT,                      { "s:S", "u: U1 ",
        "a:<think>t</think>\n\xE3\x80\x80"
        "A1 \xC2\xA0",
        "u:U2" },
     "[gMASK]<sop><|system|>S<|user|> U1 <|assistant|></think>A1<|user|>U2<|assistant|><think>"                             },
    { "glm-4",
     0,                            { "u:U1", "a: ", "u:U2" },
     "[gMASK]<sop><|user|>U1<|assistant|></think><|user|>U2<|assistant|></think>"                                           },
    { "gigachat3",
     DEFAULT,                      { "s:S", "u:U1", "a:A1", "u:U2" },
     "[B]developer system<|role_sep|>\nBe\n good.<|message_sep|>\n\n"
      "system<|role_sep|>\nS<|message_sep|>\n\nuser<|role_sep|>\nU1<|message_sep|>\n\n"
      "assistant<|role_sep|>\nA1<|message_sep|>\n\nuser<|role_sep|>\nU2<|message_sep|>\n\n"
      "assistant<|role_sep|>\n"                                                                                             },
};

static void prompts_are_written_as_the_models_know_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        const struct prompt *p = &prompts[i];
        struct conversation c = parse(p->messages);
        struct chat_options opt = { .thinking = p->thinking };
        struct str got = { 0 };
        assert_int_equal(chat_render_text(named(p->format), GIGA_TEMPLATE KIMI_TEMPLATE, "[B]",
                                          "[E]", c.m, c.n, &opt, &got, NULL),
                         ERR_OK);
        assert_string_equal(got.data, p->want);
        str_free(&got);
    }
}

static void the_opening_can_be_left_out(void **state)
{
    static const char *const messages[] = { "u:U1", "a:A1", "u:U2", NULL };
    struct conversation c = parse(messages);
    struct chat_options opt = { .history_only = 1 };
    struct str got = { 0 };

    (void)state;
    assert_int_equal(
        chat_render_text(named("deepseek-r1"), NULL, "[B]", "[E]", c.m, c.n, &opt, &got, NULL),
        ERR_OK);
    assert_string_equal(got.data, "[B]" U "U1" A "A1" END U "U2");
    str_free(&got);
}

static enum err_code render_error(const char *format, const char *chat_template,
                                  const char *const *messages, struct err *e)
{
    struct conversation c = parse(messages);
    struct chat_options opt = { 0 };
    struct str got = { 0 };
    enum err_code rc =
        chat_render_text(named(format), chat_template, "", "", c.m, c.n, &opt, &got, e);

    str_free(&got);
    return rc;
}

static void there_must_be_something_to_answer(void **state)
{
    static const char *const none[] = { NULL }, *const answered[] = { "u:a", "a:b", NULL };
    static const char *const note[] = { "u:a", "a:b", "s:c", NULL }, *const system[] = { "s:c",
                                                                                         NULL };
    struct err e;

    (void)state;
    assert_int_equal(render_error("deepseek-v3", NULL, none, &e), ERR_USAGE);
    assert_int_equal(render_error("deepseek-v3", NULL, answered, &e), ERR_USAGE);
    assert_int_equal(render_error("glm-4", NULL, note, &e), ERR_USAGE);
    assert_int_equal(render_error("deepseek-v3.1", NULL, system, &e), ERR_USAGE);
    assert_int_equal(render_error("deepseek-v3", NULL, system, &e), ERR_OK);
}

static void fixed_texts_come_from_the_file(void **state)
{
    static const char *const hello[] = { "u:a", NULL };
    struct err e;

    (void)state;
    assert_int_equal(render_error("gigachat3", NULL, hello, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "DEVSYSTEM"));
    assert_int_equal(render_error("gigachat3", "{%- set DEVSYSTEM -%}cut off", hello, &e),
                     ERR_UNSUPPORTED);
    assert_int_equal(
        render_error("gigachat3", "{%- set DEVSYSTEM -%}a{{b}}{%- endset -%}", hello, &e),
        ERR_UNSUPPORTED);
    assert_int_equal(render_error("kimi-k2", NULL, hello, &e), ERR_OK);
}

static void the_answer_begins_behind_the_reasoning(void **state)
{
    static const char text[] = "<think>a</think>b</think>c";

    (void)state;
    assert_int_equal(chat_answer_begin(named("deepseek-r1"), text, strlen(text)), 25);
    assert_int_equal(chat_answer_begin(named("deepseek-r1"), text, 24), 16);
    assert_int_equal(chat_answer_begin(named("deepseek-r1"), text, 7), 0);
    assert_int_equal(chat_answer_begin(named("deepseek-v3"), text, strlen(text)), 0);
}

/* ---- Choosing ----------------------------------------------------------- */

struct marks {
    const char *chat_template, *format; /* NULL: none is known */
};

/* Not templates, only what tells them apart. */
#define DEEPSEEK "{{'" U "' + message['content']}} {{'" A "'}}"

static const struct marks marks[] = {
    {"{{ 'User: ' + message['content'] }}{{ 'Assistant: ' + message['content'] + eos_token }}"
      "{{ 'Assistant:' }}",                                                               "deepseek-v2"     },
    { DEEPSEEK "set ns.system_prompt = ns.system_prompt + message['content']",                 "deepseek-v2.5"   },
    { DEEPSEEK "is_first_sp ns.system_prompt + message['content']",                            "deepseek-v3"     },
    { DEEPSEEK "set ns.system_prompt = message['content']",                                    "deepseek-v3"     },
    { DEEPSEEK "content.split('</think>')[-1]",                                                "deepseek-r1-bare"},
    { DEEPSEEK "content.split('</think>')[-1] {{'" A "<think>\\n'}}",                          "deepseek-r1"     },
    { DEEPSEEK "{{'" A "<think>\n'}}",                                                         "deepseek-r1"     },
    { DEEPSEEK "{{'" A "<think>\\n</think>\\n'}}",                                             NULL              },
    { DEEPSEEK "{%- if not thinking %}{{'</think>'}}{% else %}{{'<think>'}}",                  "deepseek-v3.1"   },
    { DEEPSEEK "{%- if not thinking %}{{'<think></think>'}} '</think>'",                       NULL              },
    { DEEPSEEK "DSML not thinking '</think>'",                                                 NULL              },
    { "<|im_system|>system<|im_middle|>X<|im_end|>\n  {% endif %}<|im_user|><|im_assistant|>",
     "kimi-k2"                                                                                                   },
    { "<|im_system|>system<|im_middle|>X<|im_end|>{%- endif -%}<|im_user|><|im_assistant|>",
     "moonlight"                                                                                                 },
    { "<|im_system|>system<|im_middle|><|im_user|><|im_assistant|><think></think>",
     "kimi-k2-thinking"                                                                                          },
    { "<|im_system|>system<|im_middle|><|im_user|><|im_assistant|>"
      "{%- if thinking is false -%}<think></think>",                                      NULL              },
    { "[gMASK]<sop><|user|>{{ x }}{{- '</think>' if no else '<think>' -}}",                    "glm-4"           },
    { "[gMASK]<sop><|user|>\n{{ x }}{{- '</think>' if no else '<think>' -}}",                  NULL              },
    { "<|role_sep|><|message_sep|>{%- set DEVSYSTEM -%}\"developer system\"",                  "gigachat3"       },
    { "[INST]{{ x }}[/INST]",                                                                  NULL              },
    { "",                                                                                      NULL              },
};

static void templates_are_told_apart(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const char *text = marks[i].chat_template;
        const struct chat_format *f = chat_format_detect(text, strlen(text));
        const char *got = f ? chat_format_name(f) : "none",
                   *want = marks[i].format ? marks[i].format : "none";
        if (strcmp(got, want) != 0)
            fail_msg("template %zu: got %s, want %s", i, got, want);
    }
}

/* A file with this template, or with none if it is NULL. */
static struct gguf *file_with(const char *chat_template)
{
    struct gguf_writer *w = NULL;
    struct gguf *g = NULL;

    assert_int_equal(gguf_writer_create(&w, "chat.gguf", NULL), ERR_OK);
    gguf_write_string(w, "general.architecture", "deepseek2", 9);
    if (chat_template)
        gguf_write_string(w, "tokenizer.chat_template", chat_template, strlen(chat_template));
    assert_int_equal(gguf_writer_finish(&w, NULL), ERR_OK);
    assert_int_equal(gguf_open(&g, "chat.gguf", 0, NULL), ERR_OK);
    return g;
}

static void the_file_or_the_user_chooses(void **state)
{
    const struct chat_format *f = NULL;
    struct gguf *g = file_with(DEEPSEEK);
    struct err e;

    (void)state;
    assert_int_equal(chat_format_choose(&f, g, NULL, &e), ERR_OK);
    assert_string_equal(chat_format_name(f), "deepseek-v3");
    assert_int_equal(chat_format_choose(&f, g, "deepseek-r1", &e), ERR_OK);
    assert_string_equal(chat_format_name(f), "deepseek-r1");
    assert_int_equal(chat_format_choose(&f, g, "deepseek-v33", &e), ERR_USAGE);
    gguf_close(&g);
}

static void what_is_unknown_lists_the_names(void **state)
{
    static const char *const templates[] = { NULL, "", "[INST]" };
    const struct chat_format *f = NULL;
    struct err e;

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct gguf *g = file_with(templates[i]);
        assert_int_equal(chat_format_choose(&f, g, NULL, &e), ERR_UNSUPPORTED);
        assert_non_null(strstr(e.msg, "--chat-format"));
        assert_non_null(strstr(e.msg, "deepseek-v3.1, "));
        assert_non_null(strstr(e.msg, ", gigachat3"));
        gguf_close(&g);
    }
    assert_int_equal(chat_format_choose(&f, NULL, "no", &e), ERR_USAGE);
    assert_non_null(strstr(e.msg, ", gigachat3"));
    assert_null(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_are_written_as_the_models_know_them),
        cmocka_unit_test(the_opening_can_be_left_out),
        cmocka_unit_test(there_must_be_something_to_answer),
        cmocka_unit_test(fixed_texts_come_from_the_file),
        cmocka_unit_test(the_answer_begins_behind_the_reasoning),
        cmocka_unit_test(templates_are_told_apart),
        cmocka_unit_test(the_file_or_the_user_chooses),
        cmocka_unit_test(what_is_unknown_lists_the_names),
    };
    return cmocka_run_group_tests_name("model/chat", tests, temp_dir_enter, temp_dir_remove);
}
