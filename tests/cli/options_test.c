/* SPDX-License-Identifier: MIT */
/* tests/cli/options_test.c - the command line: own options, the peers', and wrong ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "options/options.h"
#include "options/options_table.h"

enum { MAX_WORDS = 32 };

/* Parses a line of words separated by single blanks. */
static enum err_code parse(struct options *o, enum command_id command, const char *line,
                           struct err *e)
{
    static char copy[1024];
    char *words[MAX_WORDS];
    int n = 0;

    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok(copy, " "); w && n < MAX_WORDS; w = strtok(NULL, " "))
        words[n++] = w;
    memset(e, 0, sizeof *e);
    return options_parse(o, command, n, words, e);
}

static void refuses(enum command_id command, const char *line, const char *part_of_message)
{
    struct options o;
    struct err e;

    assert_int_equal(parse(&o, command, line, &e), ERR_USAGE);
    if (!strstr(e.msg, part_of_message))
        fail_msg("'%s': message '%s' lacks '%s'", line, e.msg, part_of_message);
    if (strchr(e.msg, '\n'))
        fail_msg("'%s': the message has two lines", line);
    options_free(&o);
}

static void accepts(enum command_id command, const char *line)
{
    struct options o;
    struct err e;

    if (parse(&o, command, line, &e) != ERR_OK)
        fail_msg("'%s': %s", line, e.msg);
    options_free(&o);
}

static void every_default_is_valid(void **state)
{
    struct options o;
    struct err e;
    (void)state;

    for (int c = 0; c < COMMAND_COUNT; c++) {
        if (commands[c].min_args == 0)
            accepts((enum command_id)c, "");
    }
    assert_int_equal(parse(&o, COMMAND_generate, "", &e), ERR_OK);
    assert_int_equal(o.n_predict, 128);
    assert_true(o.temperature == 0.8 && o.top_p == 0.95 && o.min_p == 0.05);
    assert_int_equal(o.top_k, 40);
    assert_int_equal(o.seed, -1);
    assert_int_equal(o.mla, 3);
    assert_int_equal(o.given[OPTION_n_predict], 0);
    assert_null(o.model);
    options_free(&o);
}

static void commands_have_their_own_defaults(void **state)
{
    struct options o;
    struct err e;
    char word[16];
    (void)state;

    assert_int_equal(parse(&o, COMMAND_perplexity, "", &e), ERR_OK);
    assert_int_equal(o.ctx_size, 512);
    assert_string_equal(options_choice(&o, OPTION_cache_type, word, sizeof word), "f16");
    options_free(&o);
    assert_int_equal(parse(&o, COMMAND_logits, "", &e), ERR_OK);
    assert_string_equal(options_choice(&o, OPTION_cache_type, word, sizeof word), "f32");
    options_free(&o);
}

static void every_spelling_sets_the_field(void **state)
{
    static const char *const lines[] = { "-c 4096", "--ctx-size 4096", "--ctx-size=4096",
                                         "--ctx_size 4096", "-c 1 -c 4096" };
    struct options o;
    struct err e;
    char word[16];
    (void)state;

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_int_equal(parse(&o, COMMAND_generate, lines[i], &e), ERR_OK);
        assert_int_equal(o.ctx_size, 4096);
        assert_int_equal(o.given[OPTION_ctx_size], 1);
        options_free(&o);
    }
    assert_int_equal(parse(&o, COMMAND_generate,
                           "--threads 3 --ubatch-size 64 --cache-type-k q8_0 --mla-use 1 "
                           "-amb 512 --model=a=b -p -x --exact-math",
                           &e),
                     ERR_OK);
    assert_int_equal(o.threads, 3);
    assert_int_equal(o.ubatch, 64);
    assert_int_equal(o.mla, 1);
    assert_int_equal(o.amb, 512);
    assert_int_equal(o.exact_math, 1);
    assert_string_equal(o.model, "a=b");
    assert_string_equal(o.prompt, "-x");
    assert_string_equal(options_choice(&o, OPTION_cache_type, word, sizeof word), "q8_0");
    options_free(&o);
}

static void lists_collect_after_their_default(void **state)
{
    struct options o;
    struct err e;
    (void)state;

    assert_int_equal(parse(&o, COMMAND_bench, "--pp 16,32 --pp 64", &e), ERR_OK);
    assert_int_equal(o.pp.n, 3);
    assert_int_equal(o.pp.v[0], 16);
    assert_int_equal(o.pp.v[2], 64);
    assert_int_equal(o.tg.n, 1);
    options_free(&o);
    assert_int_equal(
        parse(&o, COMMAND_inspect, "m --override-kv a=int:1 --override-kv b=int:2", &e), ERR_OK);
    assert_int_equal(o.override_kv.n, 2);
    assert_string_equal(o.override_kv.v[1], "b=int:2");
    assert_int_equal(o.n_args, 1);
    assert_string_equal(o.args[0], "m");
    options_free(&o);
}

static void wrong_values_are_refused(void **state)
{
    (void)state;
    refuses(COMMAND_generate, "-c x", "-c x");
    refuses(COMMAND_generate, "-c -1", "from 0 to");
    refuses(COMMAND_generate, "-c 99999999999999999999", "from 0 to");
    refuses(COMMAND_generate, "-c 12k", "whole number");
    refuses(COMMAND_generate, "-mla 4", "from 0 to 3");
    refuses(COMMAND_generate, "--temp nan", "a number");
    refuses(COMMAND_generate, "--top-p 1.5", "from 0 to 1");
    refuses(COMMAND_generate, "-ctk q4_0", "f16|bf16|f32|q8_0");
    refuses(COMMAND_generate, "-c", "missing");
    refuses(COMMAND_generate, "--exact-math=1", "takes no value");
    refuses(COMMAND_bench, "--pp 1,,2", "commas");
    refuses(COMMAND_bench, "--pp 1,", "commas");
    refuses(COMMAND_bench, "--pp -1", "commas");
    refuses(COMMAND_logits, "--tokens 1,-2", "commas");
    refuses(COMMAND_generate, "model.gguf", "-m FILE");
    refuses(COMMAND_convert, "only-one", "IN OUT");
    refuses(COMMAND_convert, "a b c", "one word too many");
}

static void unknown_options_name_the_nearest(void **state)
{
    char line[128];
    (void)state;

    refuses(COMMAND_generate, "--ctx-sise 4", "--ctx-size");
    refuses(COMMAND_generate, "--tmep 4", "--temp");
    refuses(COMMAND_generate, "--ctx 4", "nearest is --ctx-size");
    refuses(COMMAND_generate, "--context-size 4", "nearest is --ctx-size");
    refuses(COMMAND_plan, "--rule x", "nearest is --rules");
    refuses(COMMAND_generate, "--max-tokens 4", "such option; latent help generate");
    refuses(COMMAND_generate, "--pp 4", "not an option of latent generate");
    memset(line, '-', 100);
    line[100] = 0;
    refuses(COMMAND_generate, line, "no such option");
}

static void options_of_later_versions_say_so(void **state)
{
    (void)state;
    accepts(COMMAND_generate, "--backend cpu --backend auto -np 1");
    refuses(COMMAND_generate, "--backend cuda", "not in this version yet");
    refuses(COMMAND_generate, "-np 2", "not in this version yet");
    refuses(COMMAND_generate, "--devices", "not in this version yet");
    accepts(COMMAND_bench, "--devices");
    refuses(COMMAND_latentd, "--record-experts f", "not in this version yet");
    accepts(COMMAND_perplexity, "--record-experts f");
}

/* As people paste them; each flag is followed by one of ours, which must still be seen. */
static void peers_options_are_taken(void **state)
{
    static const char *const flags[] = {
        "-ngl 99",
        "--n-gpu-layers 99",
        "--gpu-layers=99",
        "-fa",
        "-fa on",
        "-fa 1",
        "--flash-attn auto",
        "-fmoe",
        "-fmoe 1",
        "-rtr",
        "-rtr off",
        "-sm layer",
        "-mg 0",
        "-ts 1,1",
        "--tensor-split 3,1",
        "-b 2048",
        "--batch-size 4096",
        "-tb 8",
        "-cb",
        "-dev CUDA0",
        "-nkvo",
        "-ger",
        "-gr",
        "-khad",
        "-ctv q8_0",
        "--cache-type-v f16",
        "-cuda fusion=1",
        "-smgs",
        "--no-mmap",
        "--mmap",
        "--mlock",
        "--numa distribute",
        "--no-warmup",
        "--host 0.0.0.0",
        "--port 8080",
        "--alias x",
        "--api-key k",
        "--jinja",
        "--cache-ram 0",
        "--metrics",
        "--slots",
        "--props",
        "--no-context-shift",
        "--swa-full",
        "--log-disable",
        "--log-verbosity 2",
        "--log-file x",
        "--log-colors",
        "--reasoning-format none",
        "--reasoning-budget -1",
        "-ser 6,1",
        "-md draft.gguf",
        "--model-draft draft.gguf",
        "--smart-expert-reduction 7,1",
        "-no-cnv",
        "--no-display-prompt",
        "--color",
        "--color auto",
        "--prio 3",
        "-e",
        "-muge",
        "--fit-target 1024",
        "--threads-http 8",
        "--cache_type_v f16",
        "--scheduler_async",
        "-v",
    };
    struct options o;
    struct err e;
    char line[128];
    (void)state;

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        snprintf(line, sizeof line, "%s -c 77", flags[i]);
        if (parse(&o, COMMAND_generate, line, &e) != ERR_OK)
            fail_msg("'%s': %s", line, e.msg);
        assert_int_equal(o.ctx_size, 77);
        options_free(&o);
    }
    refuses(COMMAND_generate, "-ngl", "missing");
    refuses(COMMAND_generate, "-hf a/b:Q4_K_M", "give it with -m");
    refuses(COMMAND_chat, "--chat-template deepseek3", "--chat-format");
    refuses(COMMAND_generate, "--rope-freq-base 10000", "--override-kv");
    refuses(COMMAND_generate, "--yarn_beta_fast 1", "--override-kv");
}

static void help_wins_over_mistakes(void **state)
{
    struct options o;
    struct err e;
    (void)state;

    assert_int_equal(parse(&o, COMMAND_generate, "--nonsense -h", &e), ERR_OK);
    assert_int_equal(o.help, 1);
    options_free(&o);
    assert_int_equal(parse(&o, COMMAND_inspect, "-- -h", &e), ERR_OK);
    assert_int_equal(o.help, 0);
    assert_string_equal(o.args[0], "-h");
    options_free(&o);
}

/* A name in two rows of one command would be reachable only once; a name of ours that a peer's
 * row has too would hide the peer's. */
struct owner {
    int row;
    unsigned takes;
};

static void check_word(void *arg, const char *word, size_t len)
{
    const struct owner *mine = arg;

    for (int i = 0; i < OPTION_COUNT; i++)
        if (i != mine->row && (option_rows[i].takes & mine->takes) != 0 &&
            word_index(option_rows[i].names, ' ', word, len) >= 0)
            fail_msg("%.*s names two options", (int)len, word);
    const struct foreign_option *f = foreign_find(word, len);
    if (f && !f->accepted) /* one of a later version may be there already for some commands */
        fail_msg("%.*s is among the peers' options too", (int)len, word);
}

static void names_are_unique(void **state)
{
    (void)state;
    for (int i = 0; i < OPTION_COUNT; i++) {
        struct owner mine = { .row = i, .takes = option_rows[i].takes };
        word_each(option_rows[i].names, ' ', check_word, &mine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_default_is_valid),
        cmocka_unit_test(commands_have_their_own_defaults),
        cmocka_unit_test(every_spelling_sets_the_field),
        cmocka_unit_test(lists_collect_after_their_default),
        cmocka_unit_test(wrong_values_are_refused),
        cmocka_unit_test(unknown_options_name_the_nearest),
        cmocka_unit_test(options_of_later_versions_say_so),
        cmocka_unit_test(peers_options_are_taken),
        cmocka_unit_test(help_wins_over_mistakes),
        cmocka_unit_test(names_are_unique),
    };
    return cmocka_run_group_tests_name("cli/options", tests, NULL, NULL);
}
