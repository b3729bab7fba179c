/* SPDX-License-Identifier: MIT */
/* tests/placement/lint_test.c - what is said about rules that do not do what they seem to. */
#include "placement/lint.h"
#include "support.h"

struct run {
    struct rules rules;
    struct match match;
    struct findings findings;
};

static struct names *names;

static int read_names(void **state)
{
    (void)state;
    names = support_v3_names();
    return 0;
}

static int drop_names(void **state)
{
    (void)state;
    support_free_names(names);
    return 0;
}

static void run_text(struct run *x, const char *text, int allow_unused)
{
    struct err e = { 0 };

    *x = (struct run){ 0 };
    assert_int_equal(rules_add_text(&x->rules, "-ot", text, &e), ERR_OK);
    assert_int_equal(match_rules(&x->match, &x->rules, names->v, names->n, &x->findings, &e),
                     ERR_OK);
    assert_int_equal(lint_rules(&x->findings, &x->rules, &x->match, allow_unused, &e), ERR_OK);
}

static void run_end(struct run *x)
{
    match_free(&x->match);
    findings_free(&x->findings);
    rules_free(&x->rules);
}

/* One option, the level and the rule of the finding, and what it says. */
static void says(void **state)
{
    static const struct {
        const char *text;
        enum finding_level level;
        int rule;
        const char *part;
    } rows[] = {
        {"blk\\.(1[6-9] | [2-9][0-9])\\.ffn_.*_exps=CPU",  FINDING_ERROR,   0, "takes no tensor"                     },
        { "blk\\.(1[6-9] | [2-9][0-9])\\.ffn_.*_exps=CPU", FINDING_ERROR,   0,
         "without blanks it takes 135 tensors"                                                                       },
        { "exps=CPU,attn_kv_b=CPU",                        FINDING_ERROR,   1, "attn_k_b and attn_v_b"               },
        { "exps=CPU,blk\\.3\\.ffn_up_exps=CUDA0",          FINDING_ERROR,   1,
         "already taken, most by rule 1"                                                                             },
        { "blk\\.[0-10]\\.ffn=CUDA0,ffn=CPU",              FINDING_WARNING, 0, "([0-9]|10)"                          },
        { "blk\\.[0-10]\\.ffn=CUDA0,ffn=CPU",              FINDING_WARNING, 0, "layers 0-1;"                         },
        { "blk\\.[10-25]\\.ffn_up_exps=CUDA0",             FINDING_WARNING, 0, "(1[0-9]|2[0-5])"                     },
        { "6.ffn_down_exps=CPU",                           FINDING_WARNING, 0, "16, 26, 36, 46, 56"                  },
        { "6.ffn_down_exps=CPU",                           FINDING_WARNING, 0, "blk\\.6\\."                          },
        { "blk.(3|4).*=CPU",                               FINDING_WARNING, 0, "30-39"                               },
        { "blk\\.(3|4)=CPU",                               FINDING_WARNING, 0, "30-39"                               },
        { "blk\\.5=CPU",                                   FINDING_WARNING, 0, "50-59"                               },
        { "exps=CPU,.*|=CUDA0",                            FINDING_WARNING, 1, "matches every name"                  },
        { "ffn_(up|)_exps=CPU",                            FINDING_WARNING, 0, "makes the whole group optional"      },
        { "model\\.layers\\.3\\.mlp\\.experts=CPU",        FINDING_ERROR,   0, "ffn_.*_exps"                         },
        { "model.layers.*.mlp.experts.*.gate_proj=CPU",    FINDING_ERROR,   0, "ffn_gate_exps"                       },
        { "lm_head=CPU",                                   FINDING_ERROR,   0, "^output\\.weight"                    },
        { "shexp=CUDA0,\"model.layers.0.\"=CUDA0",         FINDING_ERROR,   1, "quote mark at column 13"             },
        { "blk\\\\.3\\\\.=CPU",                            FINDING_ERROR,   0, "with single ones it takes 18 tensors"},
        { "per_layer_token_embd=CPU",                      FINDING_ERROR,   0, "Gemma 3n"                            },
        { "ssm_out=CPU",                                   FINDING_ERROR,   0, "state-space"                         },
        { "exp=CUDA0",                                     FINDING_WARNING, 0, "write exps"                          },
        { "output\\.weight=CUDA1",                         FINDING_WARNING, 0, "attn_output"                         },
        { "blk\\.99\\.ffn_up_exps=CPU",                    FINDING_ERROR,   0, "layer 99 has no such tensor"         },
        { "blk\\.2\\.ffn_up_exps=CPU",                     FINDING_ERROR,   0, "layers that have it: 3-60"           },
        { "ffn_gate_expt=CPU",                             FINDING_ERROR,   0, "the nearest name is ffn_gate_exps"   },
        { "attn=FOO",                                      FINDING_ERROR,   0, "is not a target"                     },
        { "attn=ROCm0",                                    FINDING_ERROR,   0, "another program"                     },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct run x;
        run_text(&x, rows[i].text, 0);
        print_message("%s\n", support_want(&x.findings, rows[i].level, rows[i].rule, rows[i].part));
        run_end(&x);
    }
}

/* Good rules: nothing to say. */
static void is_silent(void **state)
{
    static const char *const texts[] = {
        "exps=CPU",
        "\\.ffn_(up|down|gate)_(ch|)exps=CPU",
        "\\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU",
        "blk\\.(5|[6-9]|[0-9][0-9]|[0-9][0-9][0-9])\\.ffn_(up|down|gate)_(ch|)exps=CPU",
        "blk\\.(3|4|5|6|7|8)\\.ffn_.*=CUDA0",
        "blk.(3|4|5).ffn_.*=CUDA0",
        "blk.35.ffn_gate_exps.weight=CUDA4",
        "[1-9][0-9]\\.ffn_.*_exps\\.=CPU",
        "([0-9]+).ffn_.*_exps.=CPU",
        "blk.([3][1-9]|[4-9][0-9]).ffn_.*=CPU",
        "blk\\.1[4-9]\\.ffn.*=CPU",
        "blk\\.[0-9]{1,2}\\.ffn_.*_exps=CPU",
        "^output\\.weight$=CPU",
        "attn=CPU",
        "ffn.*=CPU",
        ".*=CUDA0",
        "(?=.*exps)blk=CPU",
        "blk\\.\\d+\\.attn=CUDA2",
        "blk\\.1\\d\\.attn=CUDA2",
        "blk\\.9\\.ffn_(down|gate|up)_exps\\.weight|blk\\.10\\.ffn_(down|gate|up)_exps=CUDA2",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct run x;
        run_text(&x, texts[i], 0);
        if (x.findings.n != 0)
            fail_msg("%s", x.findings.v[0].text);
        run_end(&x);
    }
}

static void unused_rules(void **state)
{
    struct run x;
    struct err e = { 0 };

    (void)state;
    run_text(&x, "exps=CPU,exps=CUDA0", 1);
    assert_int_equal(findings_count(&x.findings, FINDING_ERROR, -1), 0);
    support_want(&x.findings, FINDING_WARNING, 1, "already taken");
    run_end(&x);

    x = (struct run){ 0 };
    assert_int_equal(rules_add_text(&x.rules, "-ot", "exps=CPU", &e), ERR_OK);
    assert_int_equal(rules_add_cpu_moe(&x.rules, &e), ERR_OK);
    assert_int_equal(match_rules(&x.match, &x.rules, names->v, names->n, &x.findings, &e), ERR_OK);
    assert_int_equal(lint_rules(&x.findings, &x.rules, &x.match, 0, &e), ERR_OK);
    assert_int_equal(x.findings.n, 1);
    support_want(&x.findings, FINDING_NOTE, 1, "rule 2 (--cpu-moe)");
    run_end(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says),
        cmocka_unit_test(is_silent),
        cmocka_unit_test(unused_rules),
    };
    return cmocka_run_group_tests(tests, read_names, drop_names);
}
