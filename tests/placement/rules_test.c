/* SPDX-License-Identifier: MIT */
/* tests/placement/rules_test.c - reading rules: separators, targets, files, appended rules. */
#include <regex.h>
#include <unistd.h>

#include "placement/number_range.h"
#include "support.h"
#include "tests/support/temp_dir.h"

static struct rules read_rules(const char *text)
{
    struct rules r = { 0 };
    struct err e = { 0 };

    if (rules_add_text(&r, "-ot", text, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return r;
}

static void check_rule(const struct rules *r, int i, const char *pattern, const char *target)
{
    assert_true(i < r->n);
    assert_string_equal(r->v[i].pattern, pattern);
    assert_string_equal(r->v[i].target_text, target);
}

static void separators(void **state)
{
    struct rules r = read_rules("a=CPU, b\t= CUDA0 ,c{1,2}=CPU,(d,e)=CPU,[f,(]=CPU,g\\,h=CPU,");

    (void)state;
    assert_int_equal(r.n, 6);
    check_rule(&r, 0, "a", "CPU");
    check_rule(&r, 1, "b", "CUDA0");
    check_rule(&r, 2, "c{1,2}", "CPU");
    check_rule(&r, 3, "(d,e)", "CPU");
    check_rule(&r, 4, "[f,(]", "CPU");
    check_rule(&r, 5, "g\\,h", "CPU");
    assert_int_equal(r.v[0].column, 1);
    assert_int_equal(r.v[1].column, 8);
    for (int i = 0; i < r.n; i++)
        assert_null(r.v[i].error);
    rules_free(&r);
}

static void last_equals_with_a_target(void **state)
{
    struct rules r = read_rules("(?=.*exps)blk=CPU,a=CPU=CUDA1,b=x=GPU2,c=RPC0[192.0.2.1:5=0]");

    (void)state;
    check_rule(&r, 0, "(?=.*exps)blk", "CPU");
    check_rule(&r, 1, "a=CPU", "CUDA1");
    check_rule(&r, 2, "b=x", "GPU2");
    assert_int_equal(r.v[2].target.parts[0].kind, TARGET_CUDA);
    rules_free(&r);
}

static void check_part(const struct target *t, int i, enum target_kind kind, int first, int last,
                       int count)
{
    assert_true(i < t->n);
    assert_int_equal(t->parts[i].kind, kind);
    assert_int_equal(t->parts[i].first, first);
    assert_int_equal(t->parts[i].last, last);
    assert_int_equal(t->parts[i].count, count);
}

static void targets(void **state)
{
    struct rules r = read_rules("a=CPU,b=CPU3,c=RANK12,d=CUDA*:16+CPU,e=CUDA[2-5]:1 + SIM7,f=GPU*");

    (void)state;
    check_part(&r.v[0].target, 0, TARGET_CPU, 0, INT_MAX, TARGET_NO_COUNT);
    check_part(&r.v[1].target, 0, TARGET_CPU_HOST, 3, 3, TARGET_NO_COUNT);
    check_part(&r.v[2].target, 0, TARGET_RANK, 12, 12, TARGET_NO_COUNT);
    check_part(&r.v[3].target, 0, TARGET_CUDA, 0, INT_MAX, 16);
    check_part(&r.v[3].target, 1, TARGET_CPU, 0, INT_MAX, TARGET_NO_COUNT);
    check_part(&r.v[4].target, 0, TARGET_CUDA, 2, 5, 1);
    check_part(&r.v[4].target, 1, TARGET_SIM, 7, 7, TARGET_NO_COUNT);
    check_part(&r.v[5].target, 0, TARGET_CUDA, 0, INT_MAX, TARGET_NO_COUNT);
    assert_true(target_equal(&r.v[0].target, &r.v[0].target));
    assert_false(target_equal(&r.v[3].target, &r.v[4].target));
    rules_free(&r);
}

static void wrong_targets(void **state)
{
    static const struct {
        const char *text, *pattern, *says;
    } rows[] = {
        {"attn=FOO",                 "attn",          "CPU"                                  },
        { "attn=CUDO1",              "attn",          "the nearest is CUDA1"                 },
        { "attn=cuda3",              "attn",          "the nearest is CUDA3"                 },
        { "attn=cpu",                "attn",          "the nearest is CPU;"                  },
        { "attn=GPU",                "attn",          "GPU0, GPU*, GPU[0-3]"                 },
        { "attn=CUDA0:0",            "attn",          "a count of 0 takes no expert"         },
        { "attn=RANK0:0",            "attn",          "RANK0:0 is not a target: a count of 0"},
        { "attn=RANK0:x+CPU",        "attn",          "':' is followed by a number"          },
        { "attn=RANK[0-3]",          "attn",          "join several with '+': RANK0+RANK1"   },
        { "attn=RANK",               "attn",          "RANK is followed by one number"       },
        { "attn=RANK0-3",            "attn",          "RANK is followed by one number"       },
        { "attn=CPU*",               "attn",          "CPU is every rank already"            },
        { "attn=CPU[0-1]",           "attn",          "CPU is every rank already"            },
        { "attn=CUDA[3-1]",          "attn",          "begins with its lower number"         },
        { "attn=CUDA[3]",            "attn",          "or a range: CUDA0, CUDA*, CUDA[0-3]"  },
        { "attn=CUDA99999999999",    "attn",          "is not a target"                      },
        { "attn=CUDA0+",             "attn",          "a device is missing beside '+'"       },
        { "attn=RANK0+FOO",          "attn",          "the nearest is RANK0"                 },
        { "x=ROCm0",                 "x",             "CUDA<k>"                              },
        { "x=RPC[192.0.2.9:50052]",  "x",             "RANK<r>"                              },
        { "x=RPC0[192.0.2.9:50052]", "x",             "RANK<r>"                              },
        { "x=CUDA_Host",             "x",             "write CPU"                            },
        { "x=Vulkan1",               "x",             "CUDA<k>"                              },
        { "exps",                    "exps",          "no target"                            },
        { "(?=.*exps)blk",           "(?=.*exps)blk", "no target"                            },
        { "=CPU",                    "",              "the pattern is empty"                 },
        { "a(b=CPU,c=CPU",           "a(b=CPU,c",     "'(' at column 2 is never closed"      },
        { "a[b=CPU,c=CPU",           "a[b=CPU,c",     "'[' at column 2 is never closed"      },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rules r = read_rules(rows[i].text);
        assert_int_equal(r.n, 1);
        assert_string_equal(r.v[0].pattern, rows[i].pattern);
        assert_non_null(r.v[0].error);
        if (!strstr(r.v[0].error, rows[i].says))
            fail_msg("%s: '%s' does not say '%s'", rows[i].text, r.v[0].error, rows[i].says);
        assert_int_equal(r.v[0].target.n, 0);
        rules_free(&r);
    }
}

static void files(void **state)
{
    const char *text = "# experts\n\n  exps=CPU   # all of them\r\nattn=CUDA0,ffn=CUDA1\n#x=CPU\n"
                       "blk=FOO";
    struct rules r = { 0 };
    struct err e = { 0 };

    (void)state;
    assert_int_equal(temp_file("my.rules", text), 0);
    assert_int_equal(rules_add_file(&r, "my.rules", &e), ERR_OK);
    assert_int_equal(r.n, 4);
    check_rule(&r, 0, "exps", "CPU");
    assert_int_equal(r.v[0].column, 3);
    check_rule(&r, 2, "ffn", "CUDA1");
    assert_string_equal(r.v[2].source, "my.rules:4");
    assert_non_null(r.v[3].error);
    assert_int_equal(rules_add_file(&r, "/nonexistent/rules", &e), ERR_IO);
    rules_free(&r);
}

static void nothing_is_an_error(void **state)
{
    struct rules r = { 0 };
    struct err e = { 0 };

    (void)state;
    assert_int_equal(rules_add_text(&r, "-ot", "", &e), ERR_USAGE);
    assert_int_equal(rules_add_text(&r, "-ot", " , ,", &e), ERR_USAGE);
    assert_non_null(strstr(e.msg, "no rule"));
    rules_free(&r);
}

/* Every number of 0..9999 is checked against a range by a POSIX expression: another program. */
static void number_ranges(void **state)
{
    static const int ranges[][2] = {
        {0,    0   },
        { 0,   9   },
        { 0,   10  },
        { 3,   33  },
        { 0,   60  },
        { 14,  14  },
        { 15,  25  },
        { 9,   110 },
        { 7,   999 },
        { 123, 129 },
        { 123, 1456}
    };
    char range[256], whole[300], number[16];

    (void)state;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        regex_t re;
        number_range_pattern(ranges[i][0], ranges[i][1], range, sizeof range);
        snprintf(whole, sizeof whole, "^%s$", range);
        assert_int_equal(regcomp(&re, whole, REG_EXTENDED | REG_NOSUB), 0);
        for (int v = 0; v < 10000; v++) {
            snprintf(number, sizeof number, "%d", v);
            int in = v >= ranges[i][0] && v <= ranges[i][1];
            if ((regexec(&re, number, 0, NULL, 0) == 0) != in)
                fail_msg("%s of %d-%d and %d", range, ranges[i][0], ranges[i][1], v);
        }
        regfree(&re);
    }
}

static void appended(void **state)
{
    struct rules r = { 0 };
    struct err e = { 0 };

    (void)state;
    assert_int_equal(rules_add_n_cpu_moe(&r, 0, &e), ERR_OK);
    assert_int_equal(r.n, 0);
    assert_int_equal(rules_add_n_cpu_moe(&r, 12, &e), ERR_OK);
    assert_int_equal(rules_add_cpu_moe(&r, &e), ERR_OK);
    assert_int_equal(r.n, 2);
    assert_string_equal(r.v[0].pattern,
                        "^blk\\.([0-9]|1[0-1])\\.ffn_(up|down|gate|gate_up)_(ch|)exps");
    assert_string_equal(r.v[0].source, "--n-cpu-moe 12");
    assert_int_equal(r.v[1].origin, RULE_APPENDED);
    assert_int_equal(rules_add_hot(&r, &e), ERR_OK);
    assert_int_equal(r.v[2].origin, RULE_HOT);
    assert_string_equal(r.v[2].pattern, r.v[1].pattern);
    assert_string_equal(r.v[2].target_text, "planner");
    assert_int_equal(r.v[2].target.n, 0);
    assert_null(r.v[2].error);
    rules_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(separators),    cmocka_unit_test(last_equals_with_a_target),
        cmocka_unit_test(targets),       cmocka_unit_test(wrong_targets),
        cmocka_unit_test(files),         cmocka_unit_test(nothing_is_an_error),
        cmocka_unit_test(number_ranges), cmocka_unit_test(appended),
    };
    return cmocka_run_group_tests(tests, temp_dir_enter, temp_dir_remove);
}
