/* SPDX-License-Identifier: MIT */
/* tests/placement/report_test.c - the forms of the report: complete, bounded, escaped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "placement/report.h"
#include "plan_support.h"

static const char model_path[] = TEST_DATA "/models/tiny-v3-q4_k_m.gguf";

struct written {
    struct case_plan c;
    struct report r;
    struct str out;
};

static void plan_report(struct written *w, const char *devices, const char *rules)
{
    support_open(&w->c, model_path, devices, rules);
    support_plan(&w->c);
    w->r = (struct report){ .model = "a<b>&\"c'\x01.gguf",
                            .plan = &w->c.plan,
                            .rules = &w->c.rules,
                            .match = &w->c.match,
                            .findings = &w->c.findings };
    w->out = (struct str){ 0 };
}

static const char *text_of(const struct written *w)
{
    return w->out.data ? w->out.data : "";
}

static void written_free(struct written *w)
{
    str_free(&w->out);
    support_close(&w->c);
}

static const char *const machines[] = {
    "host(ram=8G,bw=100G)",
    "host(ram=8G,bw=100G,gpus=2*H100)",
    "host(ram=1M,bw=100G,gpus=T4)",
    "16*host(ram=8G,bw=100G,gpus=8*RTX3090,link=1G/9us)",
};
enum { N_MACHINES = sizeof machines / sizeof *machines };

static const char long_rules[] =
    "blk\\.(1|2|3|4|5|6|7|8|9|10|11|12|13|14|15|16|17|18|19|20)\\.ffn_(up|gate|down)_exps=CPU,"
    "exps=RANK0+CPU,nothing_here=CUDA9,*x=CPU,attn=CUDA*";

/* ---- Text --------------------------------------------------------------------- */

static void text_fits_100_columns(void **state)
{
    (void)state;
    for (int m = 0; m < N_MACHINES; m++) {
        struct written w;
        plan_report(&w, machines[m], long_rules);
        report_text(&w.out, &w.r);
        assert_false(w.out.failed);
        for (const char *line = text_of(&w); *line;) {
            size_t n = strcspn(line, "\n");
            if (n > 100)
                fail_msg("%zu columns: %.*s", n, (int)n, line);
            for (size_t i = 0; i < n; i++)
                if ((unsigned char)line[i] < ' ' || (unsigned char)line[i] > '~')
                    fail_msg("byte %d in: %.*s", line[i], (int)n, line);
            line += n + (line[n] == '\n');
        }
        assert_non_null(strstr(text_of(&w), "dominates"));
        assert_non_null(strstr(text_of(&w), w.c.plan.fits ? "It fits." : "It does not fit."));
        written_free(&w);
    }
}

static void text_says_what_is_missing(void **state)
{
    static const char *const advice[] = { "a bigger machine" };
    struct written w;

    (void)state;
    plan_report(&w, "host(ram=1M,bw=100G)", NULL);
    w.r.advice = advice;
    w.r.n_advice = 1;
    report_text(&w.out, &w.r);
    assert_non_null(strstr(text_of(&w), "host 0 lacks "));
    assert_non_null(strstr(text_of(&w), "try: a bigger machine\n"));
    written_free(&w);
}

/* ---- JSON ----------------------------------------------------------------------- */

static json_int_t int_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    if (!json_is_integer(v))
        fail_msg("%s is no integer", key);
    return json_integer_value(v);
}

static json_t *read_json(struct written *w)
{
    json_error_t why;

    report_json(&w->out, &w->r);
    assert_false(w->out.failed);
    json_t *root = json_loadb(w->out.data, w->out.len, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        fail_msg("line %d: %s", why.line, why.text);
    return root;
}

static void check_devices(const struct plan *p, const json_t *devices, const json_t *parts)
{
    json_t *d, *t;
    size_t i, k;

    assert_int_equal(json_array_size(devices), p->n_devices);
    json_array_foreach(devices, i, d)
    {
        json_int_t weights = 0;
        const char *name = json_string_value(json_object_get(d, "name"));
        json_array_foreach(parts, k, t)
        {
            if (!strcmp(json_string_value(json_object_get(t, "device")), name))
                weights += int_of(t, "memory_bytes");
        }
        assert_int_equal(weights, int_of(d, "weights_bytes"));
        json_int_t used = weights + int_of(d, "cache_bytes") + int_of(d, "activation_bytes") +
                          int_of(d, "staging_bytes") + int_of(d, "comm_bytes") +
                          int_of(d, "reserve_bytes");
        assert_int_equal(int_of(d, "capacity_bytes") - used, int_of(d, "slack_bytes"));
        assert_true(int_of(d, "host") >= 0 && int_of(d, "rank") >= 0);
    }
}

static void json_is_the_plan(void **state)
{
    (void)state;
    for (int m = 0; m < N_MACHINES - 1; m++) {
        struct written w;
        plan_report(&w, machines[m], long_rules);
        json_t *root = read_json(&w), *rules = json_object_get(root, "rules");
        const json_t *parts = json_object_get(root, "tensors");
        const json_t *predict = json_object_get(root, "predict");
        json_t *first = json_array_get(parts, 0);
        double us = 0;

        assert_true(json_is_boolean(json_object_get(root, "fits")));
        assert_int_equal(json_array_size(rules), 5);
        assert_int_equal(int_of(json_array_get(rules, 1), "tensors_alone"), 6);
        assert_true(json_is_string(json_object_get(json_array_get(rules, 3), "error")));
        assert_int_equal(json_array_size(parts), w.c.plan.n_parts);
        check_devices(&w.c.plan, json_object_get(root, "devices"), parts);
        assert_string_equal(
            json_string_value(json_object_get(json_object_get(first, "slice"), "axis")), "all");
        assert_true(json_is_string(json_object_get(first, "reason")));
        const json_t *terms = json_object_get(predict, "terms");
        for (size_t i = 0; i < json_array_size(terms); i++)
            if (!strcmp(json_string_value(json_object_get(json_array_get(terms, i), "phase")),
                        "decode"))
                us += json_real_value(json_object_get(json_array_get(terms, i), "us"));
        double tps = json_real_value(json_object_get(predict, "decode_tps"));
        assert_true(tps * us > 0.999e6 && tps * us < 1.001e6);
        assert_true(json_is_array(json_object_get(root, "warnings")));
        json_decref(root);
        str_clear(&w.out);
        w.r.no_tensors = 1;
        root = read_json(&w);
        assert_int_equal(json_array_size(json_object_get(root, "tensors")), 0);
        assert_int_equal(int_of(root, "tensors_omitted"), w.c.plan.n_parts);
        json_decref(root);
        written_free(&w);
    }
}

/* ---- HTML ------------------------------------------------------------------------- */

static int count(const char *text, const char *what)
{
    int n = 0;

    for (const char *at = strstr(text, what); at; at = strstr(at + 1, what))
        n++;
    return n;
}

static void html_stands_alone(void **state)
{
    (void)state;
    for (int m = 0; m < N_MACHINES; m++) {
        struct written w;
        plan_report(&w, machines[m], "<script>alert(1)</script>&exps=CPU,exps=CPU");
        report_html(&w.out, &w.r);
        assert_false(w.out.failed);
        const char *page = text_of(&w);
        assert_null(strstr(page, "<script"));
        assert_null(strstr(page, "http"));
        assert_null(strstr(page, "url("));
        assert_non_null(strstr(page, "&lt;script&gt;alert(1)&lt;/script&gt;&amp;exps"));
        assert_non_null(strstr(page, "a&lt;b&gt;&amp;&quot;c&#39;\\x01.gguf"));
        assert_int_equal(count(page, "<table>"), count(page, "</table>"));
        assert_int_equal(count(page, "<rect"), count(page, "</rect>"));
        assert_int_equal(count(page, "<div"), count(page, "</div>"));
        assert_non_null(strstr(page, "</body></html>"));
        written_free(&w);
    }
}

/* ---- One tensor --------------------------------------------------------------------- */

static void one_tensor_explained(void **state)
{
    struct written w;
    struct err e = { 0 };

    (void)state;
    plan_report(&w, machines[1], "blk\\.2\\.ffn_up=CUDA1,exps=CPU");
    assert_int_equal(report_explain(&w.out, &w.r, "blk.1.ffn_up_exps.weight", &e), ERR_OK);
    assert_non_null(strstr(text_of(&w), "rule 2"));
    assert_non_null(strstr(text_of(&w), "it is the first that matches"));
    assert_non_null(strstr(text_of(&w), "experts 0,2,4"));
    str_clear(&w.out);
    assert_int_equal(report_explain(&w.out, &w.r, "blk.2.ffn_up_exps.weight", &e), ERR_OK);
    assert_non_null(strstr(text_of(&w), "too late"));
    assert_non_null(strstr(text_of(&w), "not obeyed")); /* up follows gate and down to the host */
    assert_int_equal(report_explain(&w.out, &w.r, "blk.1.ffn_upexps.weight", &e), ERR_USAGE);
    assert_non_null(strstr(e.msg, "blk.1.ffn_up_exps.weight"));
    written_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_fits_100_columns), cmocka_unit_test(text_says_what_is_missing),
        cmocka_unit_test(json_is_the_plan),      cmocka_unit_test(html_stands_alone),
        cmocka_unit_test(one_tensor_explained),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
