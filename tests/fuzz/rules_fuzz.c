/* SPDX-License-Identifier: MIT */
/* tests/fuzz/rules_fuzz.c - any text as placement rules, matched against a few real names.
 *
 * What the literal stretches of a pattern rule out is searched all the same: a name must never
 * match without being a candidate.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "placement/lint.h"

static const struct named_tensor names[] = {
    {"token_embd.weight",            5},
    { "output_norm.weight",          1},
    { "output.weight",               5},
    { "blk.0.attn_norm.weight",      1},
    { "blk.0.ffn_gate.weight",       2},
    { "blk.3.attn_k_b.weight",       2},
    { "blk.3.attn_v_b.weight",       2},
    { "blk.3.ffn_gate_exps.weight",  9},
    { "blk.3.ffn_up_exps.weight",    9},
    { "blk.3.ffn_down_exps.weight",  9},
    { "blk.3.exp_probs_b.bias",      1},
    { "blk.16.ffn_up_shexp.weight",  2},
    { "blk.30.ffn_gate_inp.weight",  1},
    { "blk.30.attn_kv_a_mqa.weight", 1},
};
enum { N_NAMES = sizeof names / sizeof *names };

static void check_candidates(const struct rules *rules, const struct match *m)
{
    for (int r = 0; r < rules->n; r++) {
        struct pattern *p = NULL;
        int column, taken = 0, stopped = 0;
        if (pattern_compile(&p, rules->v[r].pattern, &column, NULL) != ERR_OK)
            continue;
        for (int t = 0; t < N_NAMES && !stopped; t++) {
            int found = pattern_search(p, names[t].name, strlen(names[t].name));
            stopped = found < 0;
            taken += found > 0;
        }
        pattern_free(&p);
        if (!stopped && !m->takes[r].stopped && taken != m->takes[r].tensors_alone)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rules rules = { 0 };
    struct findings findings = { 0 };
    struct match m;
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    rules_add_text(&rules, "-ot", text, NULL);
    if (rules.n <= 64 && match_rules(&m, &rules, names, N_NAMES, &findings, NULL) == ERR_OK) {
        lint_rules(&findings, &rules, &m, 0, NULL);
        check_candidates(&rules, &m);
        match_free(&m);
    }
    findings_free(&findings);
    rules_free(&rules);
    free(text);
    return 0;
}
