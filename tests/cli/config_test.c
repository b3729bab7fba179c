/* SPDX-License-Identifier: MIT */
/* tests/cli/config_test.c - the configuration file, with the options of `latent plan`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "options/options.h"
#include "options/options_table.h"
#include "tests/support/temp_dir.h"

static const char path[] = "test.conf";

static void write_file(const char *text, size_t len)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* Reads text[len] after the words of a command line. */
static enum err_code read_bytes(struct options *o, const char *text, size_t len, struct err *e)
{
    static char *words[] = { "-c", "777", "-ot", "from_line=CPU", "MODEL" };

    write_file(text, len);
    *e = (struct err){ 0 };
    assert_int_equal(options_parse(o, COMMAND_plan, 5, words, e), ERR_OK);
    return options_read_config(o, path, e);
}

static void refuses(const char *text, const char *part)
{
    struct options o;
    struct err e;

    enum err_code rc = read_bytes(&o, text, strlen(text), &e);
    if (rc != ERR_USAGE || !strstr(e.msg, part))
        fail_msg("'%s': %d, message '%s' lacks '%s'", text, (int)rc, e.msg, part);
    options_free(&o);
}

static void test_values(void **state)
{
    const char text[] = "# a comment\n"
                        "; another\n"
                        "batch = 4   ; behind a value\n"
                        "state-dir=/var/lib/some where\n"
                        "  and more\n"
                        "cpu-moe = yes\n"
                        "allow-unused-rules = off\n"
                        "fit = off\n"
                        "rules = first\n"
                        "\tsecond\n"
                        "rules: third\n"
                        "ctx-size = 1\n"
                        "override-tensor = from_file=CPU\n"
                        "cache-type-k = q8_0\r\n"
                        "ubatch-size = 7\n"
                        "ubatch-size = 8";
    struct options o;
    struct err e;

    (void)state;
    if (read_bytes(&o, text, sizeof text - 1, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(o.batch, 4);
    assert_string_equal(o.state_dir, "/var/lib/some where and more");
    assert_int_equal(o.cpu_moe, 1);
    assert_int_equal(o.allow_unused_rules, 0);
    assert_int_equal(o.fit, 1);
    assert_int_equal(o.rules.n, 3);
    assert_string_equal(o.rules.v[0], "first");
    assert_string_equal(o.rules.v[1], "second");
    assert_string_equal(o.rules.v[2], "third");
    assert_int_equal(o.cache_type, 3);
    assert_int_equal(o.ubatch, 8);
    assert_true(o.given[OPTION_batch]);

    /* The command line counts more. */
    assert_int_equal(o.ctx_size, 777);
    assert_int_equal(o.override_tensor.n, 1);
    assert_string_equal(o.override_tensor.v[0], "from_line=CPU");
    options_free(&o);
}

static void test_errors(void **state)
{
    char line[400];
    struct options o;
    struct err e;

    (void)state;
    refuses("batch = many\n", ":1: batch many: not a value");
    refuses("\n\nbatch = 0\n", ":3: ");
    refuses("cpu-moe = perhaps\n", "give yes or no");
    refuses("cpu-moe = \n", "give yes or no");
    refuses("batch =\n", "its value is missing");
    refuses("bach = 4\n", "the nearest is batch");
    refuses("qqqqqqqqqqq = 4\n", "no such key");
    refuses("c = 4\n", "no such key");
    refuses("--batch = 4\n", "no such key");
    refuses("prompt = x\n", "no such key");
    refuses("batch 4\n", ":1: neither");
    refuses("batch = 4\n 5\n", ":2: batch has one value only");
    refuses("cpu-moe = yes\n no\n", ":2: cpu-moe has one value only");
    refuses("[plan]\nbatch = 4\n", "no sections");
    refuses("record-experts = f\n", "not in this version");
    refuses("config = x\n", "no such key");

    /* The first error counts, nothing after it is set. */
    assert_int_equal(read_bytes(&o, "bach = 4\nbatch = 9\n", 19, &e), ERR_USAGE);
    assert_non_null(strstr(e.msg, ":1: "));
    assert_int_equal(o.batch, 1);
    options_free(&o);

    assert_int_equal(read_bytes(&o, "batch = 4\0\n", 11, &e), ERR_USAGE);
    assert_non_null(strstr(e.msg, "NUL"));
    options_free(&o);

    /* Lines are taken whole or not at all. */
    memset(line, 'a', sizeof line);
    for (int i = 0; i < 12; i++)
        line[i] = "state-dir = "[i];
    line[198] = '\n';
    assert_int_equal(read_bytes(&o, line, 199, &e), ERR_OK);
    assert_int_equal(strlen(o.state_dir), 198 - 12);
    options_free(&o);
    line[198] = 'a';
    line[300] = '\n';
    assert_int_equal(read_bytes(&o, line, 301, &e), ERR_USAGE);
    assert_non_null(strstr(e.msg, ":1: longer than"));
    options_free(&o);
}

static void test_files(void **state)
{
    struct options o;
    struct err e = { 0 };
    char *words[] = { "MODEL" };

    (void)state;
    assert_int_equal(options_parse(&o, COMMAND_plan, 1, words, &e), ERR_OK);
    assert_int_equal(options_read_config(&o, "/nowhere/at.all", &e), ERR_IO);
    options_free(&o);
    assert_int_equal(options_parse(&o, COMMAND_plan, 1, words, &e), ERR_OK);
    assert_int_equal(options_read_config(&o, "/", &e), ERR_IO);
    options_free(&o);
    assert_int_equal(read_bytes(&o, "", 0, &e), ERR_OK);
    options_free(&o);

    /* As on the command line: a peer's option is answered, and not an error. */
    assert_int_equal(read_bytes(&o, "n-gpu-layers = 99\n", 18, &e), ERR_OK);
    options_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, temp_dir_enter, temp_dir_remove);
}
