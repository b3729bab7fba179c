/* SPDX-License-Identifier: MIT */
/* tests/placement/match_test.c - counts of posted rules over the names of a real file. */
#include "support.h"

#include <time.h>

static struct match run_rules(const struct rules *r, const struct names *names, struct findings *f)
{
    struct match m;
    struct err e = { 0 };

    assert_int_equal(match_rules(&m, r, names->v, names->n, f, &e), ERR_OK);
    assert_false(f->failed);
    return m;
}

/* Field i of a tab-separated line, NUL-terminated in place. */
static int split_tabs(char *line, char **field, int max)
{
    int n = 0;

    for (char *at = line; at && n < max; n++) {
        field[n] = at;
        at = strchr(at, '\t');
        if (at)
            *at++ = '\0';
    }
    return n;
}

/* The rule of the option that has this pattern. */
static int find_pattern(const struct rules *r, const char *pattern)
{
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->v[i].pattern, pattern) == 0)
            return i;
    return -1;
}

static void check_expected_row(const struct names *names, char **field)
{
    struct rules r = { 0 };
    struct findings f = { 0 };
    struct err e = { 0 };

    assert_int_equal(rules_add_text(&r, "-ot", field[4], &e), ERR_OK);
    struct match m = run_rules(&r, names, &f);
    int i = find_pattern(&r, field[1]);
    if (i < 0)
        fail_msg("row %s: no rule with pattern %s in %s", field[0], field[1], field[4]);
    if (strcmp(field[2], "None") != 0)
        assert_string_equal(r.v[i].target_text, field[2]);
    if (strcmp(field[3], "invalid") == 0) {
        assert_true(m.takes[i].invalid);
        support_want(&f, FINDING_ERROR, i, "invalid pattern");
    } else {
        if (m.takes[i].tensors_alone != atoi(field[3]))
            fail_msg("row %s, %s: %d tensors, expected %s", field[0], field[1],
                     m.takes[i].tensors_alone, field[3]);
        assert_int_equal(m.takes[i].bytes_alone, m.takes[i].tensors_alone);
    }
    match_free(&m);
    findings_free(&f);
    rules_free(&r);
}

static void posted_rules_alone(void **state)
{
    struct names *names = support_v3_names();
    char *text = support_read("expected.tsv"), *save = NULL;
    int rows = 0;

    (void)state;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *field[5] = { line, line, line, line, line };
        if (*line == '#')
            continue;
        assert_int_equal(split_tabs(line, field, 5), 5);
        check_expected_row(names, field);
        rows++;
    }
    assert_int_equal(rows, 95);
    free(text);
    support_free_names(names);
}

static void check_list_row(const struct names *names, char **field)
{
    struct rules r = { 0 };
    struct findings f = { 0 };
    struct err e = { 0 };
    int none = 0, i = 0;

    for (char *opt = field[1]; opt;) {
        char *next = strstr(opt, " ;; ");
        if (next) {
            *next = '\0';
            next += 4;
        }
        assert_int_equal(rules_add_text(&r, "-ot", opt, &e), ERR_OK);
        opt = next;
    }
    struct match m = run_rules(&r, names, &f);
    for (char *n = strtok(field[2], " "); n; n = strtok(NULL, " "), i++) {
        assert_true(i < r.n);
        if (m.takes[i].tensors != atoi(n))
            fail_msg("%s, rule %d: %d tensors, expected %s", field[0], i + 1, m.takes[i].tensors,
                     n);
    }
    assert_int_equal(i, r.n);
    for (int t = 0; t < names->n; t++)
        none += m.rule_of[t] < 0;
    assert_int_equal(none, atoi(field[3]));
    match_free(&m);
    findings_free(&f);
    rules_free(&r);
}

static void posted_lists_first_match_wins(void **state)
{
    struct names *names = support_v3_names();
    char *text = support_read("lists.tsv"), *save = NULL;
    int rows = 0;

    (void)state;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *field[4] = { line, line, line, line };
        if (*line == '#')
            continue;
        assert_int_equal(split_tabs(line, field, 4), 4);
        check_list_row(names, field);
        rows++;
    }
    assert_int_equal(rows, 14);
    free(text);
    support_free_names(names);
}

static void losers_name_the_winner(void **state)
{
    struct names *names = support_v3_names();
    struct rules r = { 0 };
    struct findings f = { 0 };
    struct err e = { 0 };

    (void)state;
    assert_int_equal(rules_add_text(&r, "-ot", "blk\\.3\\.=CUDA0,exps=CPU,exps=CUDA1", &e), ERR_OK);
    struct match m = run_rules(&r, names, &f);
    assert_int_equal(m.takes[1].tensors, 171);
    assert_int_equal(m.takes[1].lost_to, 0);
    assert_int_equal(m.takes[2].tensors, 0);
    assert_int_equal(m.takes[2].lost_to, 1);
    assert_true(match_alone(&m, 2, names->n - 1) == 0 || match_alone(&m, 2, names->n - 1) == 1);
    match_free(&m);
    findings_free(&f);
    rules_free(&r);
    support_free_names(names);
}

/* Patterns whose literal stretches must not rule out what they match. */
static void literals_never_exclude(void **state)
{
    static const struct {
        const char *pattern;
        int tensors;
    } rows[] = {
        {"(?i)BLK\\.3\\.FFN_GATE_EXPS",         1 },
        { "blkx?\\.3\\.ffn_gate_exps",          1 },
        { "blkx*\\.3\\.ffn_gate_exps",          1 },
        { "blkx{0,2}\\.3\\.ffn_gate_exps",      1 },
        { "{nothing|blk\\.3\\.ffn_gate_exps|}", 1 },
        { "bl+k\\.3\\.ffn_gate_exps",           1 },
        { "nothing|blk\\.3\\.ffn_gate_exps",    1 },
        { "(?:xx|blk\\.3\\.ffn_gate_exps)",     1 },
        { "\\x62lk\\.3\\.ffn_gate_exps",        1 },
        { "\\Qblk.3.ffn_gate_exps\\E",          1 },
        { "[b][l]k\\.3\\.ffn_gate_exps",        1 },
        { "(?<!x)ffn_gate_exps",                58},
        { "blk\\.3\\.ffn_gate_exps\\.weight$",  1 },
        { "^output_norm",                       1 },
        { "(?#comment ) here)?output_norm",     1 },
    };
    struct names *names = support_v3_names();

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows - 1; i++) {
        struct rules r = { 0 };
        struct findings f = { 0 };
        struct err e = { 0 };
        char text[256];
        snprintf(text, sizeof text, "%s=CPU", rows[i].pattern);
        assert_int_equal(rules_add_text(&r, "-ot", text, &e), ERR_OK);
        struct match m = run_rules(&r, names, &f);
        if (m.takes[0].tensors != rows[i].tensors)
            fail_msg("%s: %d tensors, expected %d", rows[i].pattern, m.takes[0].tensors,
                     rows[i].tensors);
        match_free(&m);
        findings_free(&f);
        rules_free(&r);
    }
    support_free_names(names);
}

static void catastrophic_pattern_is_stopped(void **state)
{
    static const char *const patterns[] = { "(([a-z_.]+)*)+\\d{9}=CPU",
                                            "((.*)*)*((.*)*)*x{7}=CPU" };
    struct names *names = support_v3_names();

    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct rules r = { 0 };
        struct findings f = { 0 };
        struct err e = { 0 };
        assert_int_equal(rules_add_text(&r, "-ot", patterns[i], &e), ERR_OK);
        struct match m = run_rules(&r, names, &f);
        assert_true(m.takes[0].stopped);
        assert_int_equal(m.takes[0].tensors, 0);
        support_want(&f, FINDING_ERROR, 0, "stopped after");
        match_free(&m);
        findings_free(&f);
        rules_free(&r);
    }
    support_free_names(names);
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 10,000 rules over a model of 2,000 tensors, none of them ruled out by a layer number alone. */
static void ten_thousand_rules(void **state)
{
    static const char *const shapes[] = { "blk\\.%d\\.ffn_(up|gate)_exps",
                                          "blk.(%d|7).ffn_.*_exps.", "^blk\\.(%d|[0-9])\\.attn",
                                          "%d.ffn_down_exps",
                                          "blk\\.[0-9]*%d\\.(attn|ffn)_(norm|q_a)" };
    struct names *names = support_v3_names();
    struct names *wide = calloc(1, sizeof *wide);
    struct rules r = { 0 };
    struct findings f = { 0 };
    struct err e = { 0 };
    char text[128];

    (void)state;
    assert_non_null(wide);
    wide->text = calloc(2000, 64);
    for (; wide->n < 2000; wide->n++) {
        char *name = wide->text + 64 * wide->n;
        if (wide->n < names->n)
            snprintf(name, 64, "%s", names->v[wide->n].name);
        else
            snprintf(name, 64, "blk.%d.%s", 61 + (wide->n - names->n) / 16,
                     strchr(names->v[wide->n % 16 + 500].name + 4, '.') + 1);
        wide->v[wide->n] = (struct named_tensor){ .name = name, .bytes = 1 };
    }
    for (int i = 0; i < 10000; i++) {
        size_t n = (size_t)snprintf(text, sizeof text, shapes[i % 5], i / 5 % 61);
        snprintf(text + n, sizeof text - n, "=CPU");
        assert_int_equal(rules_add_text(&r, "-ot", text, &e), ERR_OK);
    }
    double start = seconds();
    struct match m = run_rules(&r, wide, &f);
    double took = seconds() - start;
    print_message("10,000 rules over 2,000 tensors: %.0f ms\n", 1e3 * took);
    assert_true(took < 10); /* a bound for sanitized builds; the printed number is the measure */
    match_free(&m);
    findings_free(&f);
    rules_free(&r);
    support_free_names(wide);
    support_free_names(names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(posted_rules_alone),
        cmocka_unit_test(posted_lists_first_match_wins),
        cmocka_unit_test(losers_name_the_winner),
        cmocka_unit_test(literals_never_exclude),
        cmocka_unit_test(catastrophic_pattern_is_stopped),
        cmocka_unit_test(ten_thousand_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
