/* SPDX-License-Identifier: MIT */
/* placement/lint_names.c - checks of tensor names in patterns; see lint_parts.h. */
#include "placement/lint_parts.h"

#include <limits.h>
#include <string.h>

static const struct {
    const char *part, *pattern;
} hf_names[] = {
#define X(part, pattern) { part, pattern },
#include "placement/hf_names.def"
#undef X
};

static const struct {
    const char *part, *sibling, *text;
} families[] = {
#define X(part, text)          { part, NULL, text },
#define S(part, sibling, text) { part, sibling, text },
#include "placement/families.def"
#undef X
#undef S
};

/* What a word of a pattern takes besides what it seems to name. */
static const struct {
    const char *word, *named, *besides, *unless, *advice;
} surprises[] = {
    {"exp",       "_exps.",        "_shexp",       "exps",
     "tensors of shared experts and router biases too; write exps for the routed experts alone"},
    { "output",   "output.weight", "attn_output",  "^output",
     "the attn_output of every layer too; write ^output\\.weight for the output head alone"    },
    { "attn_k",   "attn_k_b",      "attn_kv_a",    "attn_k_b",
     "attn_kv_a_mqa and attn_kv_a_norm too; write attn_k_b for these alone"                    },
    { "ffn_gate", "ffn_gate",      "ffn_gate_inp", "ffn_gate_",
     "the routers (ffn_gate_inp) too; write ffn_gate_exps, ffn_gate_shexp or ffn_gate\\."      },
};

/* Tensors among bits (NULL: all) whose names contain `part`. */
static int count_names(const struct match *m, const uint64_t *bits, const char *part)
{
    int n = 0;

    for (int t = 0; t < m->n_tensors; t++)
        if (!bits || (bits[t / 64] >> (t % 64) & 1))
            n += strstr(m->tensors[t].name, part) != NULL;
    return n;
}

/* Whether `part` stands in text, where between two words of the part anything may stand. */
static int contains_words(const char *text, const char *part)
{
    const char *dot = strrchr(part, '.');
    char head[64];

    if (strstr(text, part))
        return 1;
    if (!dot || !dot[1] || (size_t)(dot - part) >= sizeof head)
        return 0;
    memcpy(head, part, (size_t)(dot - part));
    head[dot - part] = '\0';
    const char *at = strstr(text, head);
    return at && strstr(at + strlen(head), dot + 1) != NULL;
}

/* The GGUF pattern for the same tensors, in the layer that the pattern names as a number. */
static void put_gguf_pattern(struct str *out, const char *plain, const char *pattern)
{
    const char *layers = strstr(plain, "layers.");
    size_t digits = layers ? strspn(layers + 7, "0123456789") : 0;

    if (digits > 0)
        str_printf(out, "blk\\.%.*s\\.", (int)digits, layers + 7);
    if (digits == 0 || strncmp(pattern, "blk", 3) != 0)
        str_puts(out, pattern);
}

int lint_hf_name(struct lint_rule *l, struct str *out)
{
    struct str gguf = { 0 };

    for (size_t i = 0; i < sizeof hf_names / sizeof *hf_names; i++) {
        const char *part = hf_names[i].part;
        if (!contains_words(l->plain, part) || count_names(l->match, NULL, part) > 0)
            continue;
        put_gguf_pattern(&gguf, l->plain, hf_names[i].pattern);
        if (gguf.failed)
            return 0;
        int n = lint_variant(l, gguf.data);
        str_printf(out,
                   "%s is a Hugging Face name; tensors of a GGUF file are called blk.N.…: write "
                   "%s, which takes %d tensor%s here",
                   part, gguf.data, n, lint_s(n));
        str_free(&gguf);
        return 1;
    }
    return 0;
}

int lint_family(struct lint_rule *l, struct str *out)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const char *part = families[i].part, *sibling = families[i].sibling;
        if (!strstr(l->plain, part) || count_names(l->match, NULL, part) > 0 ||
            (sibling && count_names(l->match, NULL, sibling) == 0))
            continue;
        str_printf(out, "no tensor of this file is called %s: %s", part, families[i].text);
        return 1;
    }
    return 0;
}

int lint_surprise(struct lint_rule *l, struct str *out)
{
    for (size_t i = 0; i < sizeof surprises / sizeof *surprises; i++) {
        if (!strstr(l->plain, surprises[i].word) || strstr(l->plain, surprises[i].unless))
            continue;
        int named = count_names(l->match, lint_alone(l), surprises[i].named);
        int besides = count_names(l->match, lint_alone(l), surprises[i].besides);
        if (named == 0 || besides == 0 || strstr(l->plain, surprises[i].besides))
            continue;
        str_printf(out, "%s takes %d tensors, %s", surprises[i].word,
                   l->match->takes[l->r].tensors_alone, surprises[i].advice);
        return 1;
    }
    return 0;
}

/* The name without its block and its last part: "ffn_gate_exps". */
static size_t base_name(const char *name, char *out, size_t size)
{
    const char *start = lint_layer(name) >= 0 ? strchr(name + 4, '.') + 1 : name;
    const char *end = strrchr(start, '.');
    size_t n = end ? (size_t)(end - start) : strlen(start);

    n = n < size ? n : size - 1;
    memcpy(out, start, n);
    out[n] = '\0';
    return n;
}

int lint_nearest_name(struct lint_rule *l, struct str *out)
{
    struct pattern_literals literals;
    char base[64], nearest[64] = "", word[64];
    int longest = 0, best = INT_MAX;

    pattern_find_literals(&literals, l->pattern);
    if (literals.n == 0)
        return 0;
    for (int i = 1; i < literals.n; i++)
        if (strlen(literals.text[i]) > strlen(literals.text[longest]))
            longest = i;
    base_name(literals.text[longest], word, sizeof word);
    const char *start = strstr(word, "blk.") ? strrchr(word, '.') + 1 : word + (word[0] == '.');
    for (int t = 0; t < l->match->n_tensors; t++) {
        base_name(l->match->tensors[t].name, base, sizeof base);
        int d = str_distance(start, base);
        if (d < best) {
            best = d;
            memcpy(nearest, base, sizeof nearest);
        }
    }
    if (best == 0 || best > 6 || (size_t)best * 2 > strlen(start))
        return 0;
    str_printf(out, "the nearest name is %s", nearest);
    return 1;
}
