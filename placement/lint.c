/* SPDX-License-Identifier: MIT */
/* placement/lint.c - see lint.h. */
#include "placement/lint.h"

#include <stdlib.h>
#include <string.h>

#include "placement/lint_parts.h"

static lint_fn *const checks[] = {
    lint_quotes,      lint_backslashes, lint_blanks, lint_class_range, lint_empty_alternative,
    lint_bare_number, lint_hf_name,     lint_family, lint_surprise,
};
/* Only for a rule that takes nothing, and only if no other check could say why. */
static lint_fn *const last_resorts[] = { lint_missing_layer, lint_nearest_name };

/* ---- Helpers of the checks -------------------------------------------------- */

int lint_variant(struct lint_rule *l, const char *pattern)
{
    struct err why = { 0 };
    int column;
    int n = match_text(l->match, pattern, l->bits, &column, &why);

    return n > 0 ? n : 0;
}

int lint_layer(const char *name)
{
    if (strncmp(name, "blk.", 4) != 0)
        return -1;
    char *end;
    long layer = strtol(name + 4, &end, 10);
    return end > name + 4 && *end == '.' && layer < 100000 ? (int)layer : -1;
}

enum { MAX_LAYERS = 1024, MAX_RANGES = 12 };

void lint_put_layers(struct str *out, const struct match *m, const uint64_t *bits)
{
    unsigned char has[MAX_LAYERS] = { 0 };
    int ranges = 0;

    for (int w = 0; w < m->n_words; w++)
        for (uint64_t left = bits[w]; left; left &= left - 1) {
            int layer = lint_layer(m->tensors[64 * w + __builtin_ctzll(left)].name);
            if (layer >= 0 && layer < MAX_LAYERS)
                has[layer] = 1;
        }
    for (int a = 0; a < MAX_LAYERS; a++) {
        int b = a;
        if (!has[a])
            continue;
        while (b + 1 < MAX_LAYERS && has[b + 1])
            b++;
        if (ranges == MAX_RANGES) {
            str_puts(out, ", ...");
            return;
        }
        str_puts(out, ranges++ ? ", " : "");
        str_printf(out, b > a ? "%d-%d" : "%d", a, b);
        a = b;
    }
    if (ranges == 0)
        str_puts(out, "none");
}

/* ---- One rule --------------------------------------------------------------- */

static void drop_backslashes(char *out, const char *pattern)
{
    for (; *pattern; pattern++)
        if (*pattern != '\\')
            *out++ = *pattern;
    *out = '\0';
}

static void add_finding(struct findings *f, const struct lint_rule *l, enum finding_level level,
                        const char *head, const char *hint)
{
    char label[256];

    findings_add(f, level, l->r, "%s: %s%s%s", rule_label(l->rules, l->r, label, sizeof label),
                 head, *head && *hint ? "; " : "", hint);
}

static void run_checks(struct lint_rule *l, lint_fn *const *list, size_t n, struct str *hints,
                       size_t *n_hints)
{
    for (size_t i = 0; i < n; i++) {
        struct str s = { 0 };
        if (list[i](l, &s) && s.data)
            hints[(*n_hints)++] = s;
        else
            str_free(&s);
    }
}

static void unused_rule(struct findings *f, const struct lint_rule *l, const struct str *hints,
                        size_t n_hints, int allow_unused)
{
    const struct rule_take *take = &l->match->takes[l->r];
    enum finding_level level = l->rules->v[l->r].origin == RULE_APPENDED ? FINDING_NOTE
                               : allow_unused                            ? FINDING_WARNING
                                                                         : FINDING_ERROR;
    struct str head = { 0 }, all = { 0 };

    if (take->tensors_alone == 0) {
        str_puts(&head, "takes no tensor of this file");
    } else {
        str_printf(
            &head,
            "takes nothing: all its tensors (%d) are already taken, most by rule %d (%s); write "
            "it in front of that one, or leave it out",
            take->tensors_alone, take->lost_to + 1, l->rules->v[take->lost_to].pattern);
    }
    for (size_t i = 0; i < n_hints; i++)
        str_printf(&all, "%s%s", i ? "; " : "", hints[i].data);
    if (!head.failed && !all.failed)
        add_finding(f, l, level, head.data, all.data ? all.data : "");
    str_free(&head);
    str_free(&all);
}

static void lint_one(struct findings *f, struct lint_rule *l, int allow_unused)
{
    enum { N_CHECKS = sizeof checks / sizeof *checks, N_LAST = 2 };
    const struct rule_take *take = &l->match->takes[l->r];
    struct str hints[N_CHECKS + N_LAST];
    size_t n = 0;

    if (take->invalid || take->stopped || l->rules->v[l->r].origin == RULE_HOT)
        return;
    if (l->rules->v[l->r].origin == RULE_TYPED) {
        drop_backslashes(l->plain, l->pattern);
        run_checks(l, checks, N_CHECKS, hints, &n);
        if (n == 0 && take->tensors_alone == 0)
            run_checks(l, last_resorts, N_LAST, hints, &n);
    }
    if (take->tensors == 0 && !l->rules->v[l->r].error) /* one reason is enough */
        unused_rule(f, l, hints, n, allow_unused);
    for (size_t i = 0; i < n; i++) {
        if (take->tensors > 0)
            add_finding(f, l, FINDING_WARNING, "", hints[i].data);
        str_free(&hints[i]);
    }
}

enum err_code lint_rules(struct findings *f, const struct rules *rules, const struct match *m,
                         int allow_unused, struct err *e)
{
    struct lint_rule l = { .rules = rules, .match = m };
    size_t longest = 0;

    for (int r = 0; r < rules->n; r++)
        if (strlen(rules->v[r].pattern) > longest)
            longest = strlen(rules->v[r].pattern);
    l.plain = malloc(longest + 1);
    l.bits = calloc((size_t)m->n_words + 1, sizeof *l.bits);
    int ok = l.plain && l.bits;
    for (l.r = 0; ok && l.r < rules->n; l.r++) {
        l.pattern = rules->v[l.r].pattern;
        lint_one(f, &l, allow_unused);
    }
    free(l.plain);
    free(l.bits);
    return ok ? ERR_OK : err_set(e, ERR_NOMEM, "no memory to check %d rules", rules->n);
}
