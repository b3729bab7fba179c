/* SPDX-License-Identifier: MIT */
/* placement/match.c - see match.h. */
#include "placement/match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/name_index.h"
#include "placement/pattern.h"

/* Fewer candidates than this are searched without machine code (compiling it costs as much as
 * some hundred searches). */
enum { SPEED_UP_FROM = 100 };

const char *rule_label(const struct rules *rules, int r, char *buf, size_t size)
{
    const struct rule *rule = &rules->v[r];

    if (rule->origin == RULE_APPENDED)
        snprintf(buf, size, "rule %d (%s)", r + 1, rule->source);
    else
        snprintf(buf, size, "rule %d (%s, column %d) %s%s%s", r + 1, rule->source, rule->column,
                 rule->pattern, *rule->target_text ? "=" : "", rule->target_text);
    if (strlen(buf) + 1 == size && size > 4)
        memcpy(buf + size - 4, "...", 4);
    return buf;
}

/* What every rule needs while it is matched. */
struct matcher {
    struct match *m;
    const struct rules *rules;
    const struct named_tensor *tensors;
    struct name_index index;
    uint64_t *candidates; /* [n_words] */
    struct findings *findings;
};

static void stopped_at(struct matcher *k, int r, int t)
{
    char label[256];

    k->m->takes[r].stopped = 1;
    findings_add(k->findings, FINDING_ERROR, r,
                 "%s: stopped after %d steps on %s: the pattern can be matched in too many ways, "
                 "so nothing is taken; a repeat inside a repeat such as (a*)* is the usual cause",
                 rule_label(k->rules, r, label, sizeof label), PATTERN_MAX_STEPS,
                 k->tensors[t].name);
}

static void search_names(struct matcher *k, int r, struct pattern *p)
{
    struct match *m = k->m;
    uint64_t *alone = m->alone + (int64_t)r * m->n_words;

    for (int w = 0; w < m->n_words; w++)
        for (uint64_t left = k->candidates[w]; left; left &= left - 1) {
            int t = 64 * w + __builtin_ctzll(left);
            int found = pattern_search(p, k->tensors[t].name, strlen(k->tensors[t].name));
            if (found < 0) {
                memset(alone, 0, (size_t)m->n_words * sizeof *alone);
                stopped_at(k, r, t);
                return;
            }
            alone[w] |= (uint64_t)found << (t % 64);
        }
}

static enum err_code match_one(struct matcher *k, int r, struct err *e)
{
    const struct rule *rule = &k->rules->v[r];
    struct pattern_literals literals;
    struct pattern *p = NULL;
    struct err why = { 0 };
    char label[256];
    int column = 0;

    if (rule->error)
        findings_add(k->findings, FINDING_ERROR, r, "%s: %s",
                     rule_label(k->rules, r, label, sizeof label), rule->error);
    enum err_code rc = pattern_compile(&p, rule->pattern, &column, &why);
    if (rc == ERR_NOMEM)
        return err_set(e, rc, "%s", why.msg);
    if (rc != ERR_OK) {
        k->m->takes[r].invalid = 1;
        findings_add(k->findings, FINDING_ERROR, r, "%s: invalid pattern: %s (column %d)",
                     rule_label(k->rules, r, label, sizeof label), why.msg,
                     rule->column + column - 1);
        return ERR_OK;
    }
    pattern_find_literals(&literals, rule->pattern);
    if (name_index_candidates(&k->index, &literals, k->candidates) >= SPEED_UP_FROM)
        pattern_speed_up(p);
    search_names(k, r, p);
    pattern_free(&p);
    return ERR_OK;
}

/* First match wins: rules in order take what is still free. */
static void deal(struct match *m, const struct named_tensor *tensors, int *lost)
{
    for (int r = 0; r < m->n_rules; r++) {
        struct rule_take *take = &m->takes[r];
        const uint64_t *alone = m->alone + (int64_t)r * m->n_words;
        int most = 0;
        for (int w = 0; w < m->n_words; w++)
            for (uint64_t left = alone[w]; left; left &= left - 1) {
                int t = 64 * w + __builtin_ctzll(left);
                take->tensors_alone++;
                take->bytes_alone += tensors[t].bytes;
                if (m->rule_of[t] < 0) {
                    m->rule_of[t] = r;
                    take->tensors++;
                    take->bytes += tensors[t].bytes;
                } else {
                    lost[m->rule_of[t]]++;
                }
            }
        take->lost_to = -1;
        if (take->tensors == take->tensors_alone)
            continue;
        for (int i = 0; i < r; i++) { /* only rules that lose pay for this */
            if (lost[i] > most) {
                most = lost[i];
                take->lost_to = i;
            }
            lost[i] = 0;
        }
    }
}

static enum err_code match_allocate(struct match *m, struct matcher *k, struct err *e)
{
    size_t rules = (size_t)(m->n_rules ? m->n_rules : 1);
    size_t words = (size_t)(m->n_words ? m->n_words : 1);

    m->takes = calloc(rules, sizeof *m->takes);
    m->alone = calloc(rules * words, sizeof *m->alone);
    m->rule_of = malloc((size_t)(m->n_tensors ? m->n_tensors : 1) * sizeof *m->rule_of);
    k->candidates = calloc(words, sizeof *k->candidates);
    if (!m->takes || !m->alone || !m->rule_of || !k->candidates)
        return err_set(e, ERR_NOMEM, "no memory to match %d rules", m->n_rules);
    for (int t = 0; t < m->n_tensors; t++)
        m->rule_of[t] = -1;
    return name_index_init(&k->index, k->tensors, m->n_tensors, e);
}

enum err_code match_rules(struct match *m, const struct rules *rules,
                          const struct named_tensor *tensors, int n_tensors,
                          struct findings *findings, struct err *e)
{
    *m = (struct match){ .n_rules = rules->n,
                         .n_tensors = n_tensors,
                         .n_words = (n_tensors + 63) / 64 };
    struct matcher k = { .m = m, .rules = rules, .tensors = tensors, .findings = findings };
    int *lost = calloc((size_t)rules->n + 1, sizeof *lost);
    enum err_code rc = match_allocate(m, &k, e);

    if (rc == ERR_OK && !lost)
        rc = err_set(e, ERR_NOMEM, "no memory to match %d rules", rules->n);
    for (int r = 0; rc == ERR_OK && r < rules->n; r++)
        rc = match_one(&k, r, e);
    if (rc == ERR_OK && lost)
        deal(m, tensors, lost);
    free(lost);
    free(k.candidates);
    name_index_free(&k.index);
    if (rc != ERR_OK)
        match_free(m);
    return rc;
}

void match_free(struct match *m)
{
    free(m->takes);
    free(m->alone);
    free(m->rule_of);
    *m = (struct match){ 0 };
}
