/* SPDX-License-Identifier: MIT */
/* placement/match.c - see match.h. */
#include "placement/match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/pattern.h"

/* Fewer candidates than this are searched without machine code (compiling it costs as much as
 * some hundred searches). */
enum { SPEED_UP_FROM = 100 };

const char *rule_label(const struct rules *rules, int r, char *buf, size_t size)
{
    const struct rule *rule = &rules->v[r];

    if (rule->origin != RULE_TYPED)
        snprintf(buf, size, "rule %d (%s)", r + 1, rule->source);
    else
        snprintf(buf, size, "rule %d (%s, column %d) %s%s%s", r + 1, rule->source, rule->column,
                 rule->pattern, *rule->target_text ? "=" : "", rule->target_text);
    if (strlen(buf) + 1 == size && size > 4)
        memcpy(buf + size - 4, "...", 4);
    return buf;
}

/* Runs a compiled pattern over the candidates in bits[]; leaves those that match. */
static int search_names(const struct match *m, struct pattern *p, uint64_t *bits)
{
    int n = 0;

    for (int w = 0; w < m->n_words; w++)
        for (uint64_t left = bits[w]; left; left &= left - 1) {
            int t = 64 * w + __builtin_ctzll(left);
            const char *name = m->tensors[t].name;
            int found = pattern_search(p, name, strlen(name));
            if (found < 0) {
                memset(bits, 0, (size_t)m->n_words * sizeof *bits);
                return -2 - t;
            }
            n += found;
            bits[w] ^= (uint64_t)!found << (t % 64);
        }
    return n;
}

int match_text(const struct match *m, const char *pattern, uint64_t *bits, int *column,
               struct err *why)
{
    struct pattern_literals literals;
    struct pattern *p = NULL;

    memset(bits, 0, (size_t)m->n_words * sizeof *bits);
    if (pattern_compile(&p, pattern, column, why) != ERR_OK)
        return -1;
    pattern_find_literals(&literals, pattern);
    if (name_index_candidates(&m->index, &literals, bits) >= SPEED_UP_FROM)
        pattern_speed_up(p);
    int n = search_names(m, p, bits);
    pattern_free(&p);
    return n;
}

static enum err_code match_one(struct match *m, const struct rules *rules, int r,
                               struct findings *findings, struct err *e)
{
    const struct rule *rule = &rules->v[r];
    struct err why = { 0 };
    char label[256];
    int column = 0;

    rule_label(rules, r, label, sizeof label);
    if (rule->error)
        findings_add(findings, FINDING_ERROR, r, "%s: %s", label, rule->error);
    int n = match_text(m, rule->pattern, m->alone + (int64_t)r * m->n_words, &column, &why);
    if (n == -1 && why.code == ERR_NOMEM)
        return err_set(e, ERR_NOMEM, "%s", why.msg);
    if (n == -1) {
        m->takes[r].invalid = 1;
        if (!rule->error) /* which often says the same in better words */
            findings_add(findings, FINDING_ERROR, r, "%s: invalid pattern: %s (column %d)", label,
                         why.msg, rule->column + column - 1);
    } else if (n < 0) {
        m->takes[r].stopped = 1;
        findings_add(findings, FINDING_ERROR, r,
                     "%s: stopped after %d steps on %s: the pattern can be matched in too many "
                     "ways, so nothing is taken; a repeat inside a repeat such as (a*)* is the "
                     "usual cause",
                     label, PATTERN_MAX_STEPS, m->tensors[-2 - n].name);
    }
    return ERR_OK;
}

/* First match wins: rules in order take what is still free. */
static void deal(struct match *m, int *lost)
{
    for (int r = 0; r < m->n_rules; r++) {
        struct rule_take *take = &m->takes[r];
        const uint64_t *alone = m->alone + (int64_t)r * m->n_words;
        int most = 0;
        for (int w = 0; w < m->n_words; w++)
            for (uint64_t left = alone[w]; left; left &= left - 1) {
                int t = 64 * w + __builtin_ctzll(left);
                take->tensors_alone++;
                take->bytes_alone += m->tensors[t].bytes;
                if (m->rule_of[t] < 0) {
                    m->rule_of[t] = r;
                    take->tensors++;
                    take->bytes += m->tensors[t].bytes;
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

static enum err_code match_allocate(struct match *m, struct err *e)
{
    size_t rules = (size_t)(m->n_rules ? m->n_rules : 1);
    size_t words = (size_t)(m->n_words ? m->n_words : 1);

    m->takes = calloc(rules, sizeof *m->takes);
    m->alone = calloc(rules * words, sizeof *m->alone);
    m->rule_of = malloc((size_t)(m->n_tensors ? m->n_tensors : 1) * sizeof *m->rule_of);
    if (!m->takes || !m->alone || !m->rule_of)
        return err_set(e, ERR_NOMEM, "no memory to match %d rules", m->n_rules);
    for (int t = 0; t < m->n_tensors; t++)
        m->rule_of[t] = -1;
    return name_index_init(&m->index, m->tensors, m->n_tensors, e);
}

enum err_code match_rules(struct match *m, const struct rules *rules,
                          const struct named_tensor *tensors, int n_tensors,
                          struct findings *findings, struct err *e)
{
    *m = (struct match){ .n_rules = rules->n,
                         .n_tensors = n_tensors,
                         .n_words = (n_tensors + 63) / 64,
                         .tensors = tensors };
    int *lost = calloc((size_t)rules->n + 1, sizeof *lost);
    if (!lost)
        return err_set(e, ERR_NOMEM, "no memory to match rules");
    enum err_code rc = match_allocate(m, e);
    for (int r = 0; rc == ERR_OK && r < rules->n; r++)
        rc = match_one(m, rules, r, findings, e);
    if (rc == ERR_OK)
        deal(m, lost);
    else
        match_free(m);
    free(lost);
    return rc;
}

void match_free(struct match *m)
{
    free(m->takes);
    free(m->alone);
    free(m->rule_of);
    name_index_free(&m->index);
    *m = (struct match){ 0 };
}
