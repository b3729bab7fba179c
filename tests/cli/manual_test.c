/* SPDX-License-Identifier: MIT */
/* tests/cli/manual_test.c - parts of manual pages, and that the example of the configuration file
 * is one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "options/manual.h"
#include "options/options.h"
#include "options/options_table.h"
#include "tests/support/temp_dir.h"

/* What becomes of a template; the caller's to free.  NULL: refused. */
static char *filled(const char *template)
{
    char *text = NULL;
    size_t len = 0;
    struct err e = { 0 };
    char copy[128];

    snprintf(copy, sizeof copy, "%s", template);
    FILE *in = fmemopen(copy, strlen(copy), "r");
    FILE *out = open_memstream(&text, &len);

    assert_non_null(in);
    assert_non_null(out);
    enum err_code rc = manual_fill(in, out, &e);
    fclose(in);
    fclose(out);
    if (rc == ERR_OK)
        return text;
    assert_int_equal(rc, ERR_FORMAT);
    free(text);
    return NULL;
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no '%s' in:\n%s", part, text);
}

static void test_man(void **state)
{
    (void)state;
    char *text = filled("a @VERSION@ b\n@options plan\nc\n");
    assert_memory_equal(text, "a " LATENTD_VERSION " b\n.TP\n", 8);
    has(text, "\\fB\\-c\\fR, \\fB\\-\\-ctx\\-size\\fR \\fIN\\fR\n");
    has(text, "\\fB\\-\\-fit\\fR on|off\n");
    has(text, "\nDefault: 512.\n");
    assert_null(strstr(text, "\\-\\-temp"));
    assert_string_equal(text + strlen(text) - 3, "\nc\n");
    free(text);

    text = filled("@keys plan\n");
    has(text, "\\fBctx\\-size\\fR = \\fIN\\fR\n");
    has(text, "\\fBcpu\\-moe\\fR = yes|no\n");
    free(text);

    text = filled("@commands\n");
    has(text, ".SS latent convert IN OUT\n");
    assert_null(strstr(text, "latentd\n"));
    free(text);

    assert_null(filled("@options nothing\n"));
    assert_null(filled("@nothing plan\n"));
    assert_null(filled("@\n"));
}

/* Without the # in front of keys, the example is read, and every key of it is a known one. */
static void reads_example(enum command_id command)
{
    const char *path = "example.conf";
    char template[64];
    struct options o;
    struct err e = { 0 };
    char *words[] = { "MODEL" };

    snprintf(template, sizeof template, "@example %s\n", commands[command].name);
    char *text = filled(template);
    assert_non_null(text);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        fprintf(f, "%s\n", line[0] == '#' && line[1] != ' ' ? line + 1 : line);
    assert_int_equal(fclose(f), 0);

    assert_int_equal(options_parse(&o, command, commands[command].min_args, words, &e), ERR_OK);
    enum err_code rc = options_read_config(&o, path, &e);
    if (rc != ERR_OK)
        fail_msg("%s", e.msg);
    for (int i = 0; i < OPTION_COUNT; i++) {
        const char *key;
        if (option_key((enum option_id)i, command, &key) && !o.given[i])
            fail_msg("no key of --%s", key);
    }
    options_free(&o);
    free(text);
}

static void test_example(void **state)
{
    (void)state;
    reads_example(COMMAND_plan);
    reads_example(COMMAND_latentd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_man),
        cmocka_unit_test(test_example),
    };
    return cmocka_run_group_tests(tests, temp_dir_enter, temp_dir_remove);
}
