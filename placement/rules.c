/* SPDX-License-Identifier: MIT */
/* placement/rules.c - see rules.h.
 *
 * Reading order: where a piece ends; pattern and target of a piece; texts, files, options.
 */
#include "placement/rules.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "placement/number_range.h"

/* ---- Pieces --------------------------------------------------------------- */

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Index just behind the class that begins at text[i] == '['; n if it never ends. */
static size_t skip_class(const char *text, size_t i, size_t n)
{
    i++;
    if (i < n && text[i] == '^')
        i++;
    if (i < n && text[i] == ']') /* a first ']' is a member */
        i++;
    while (i < n && text[i] != ']') {
        if (text[i] == '\\') {
            i += 2;
        } else if (text[i] == '[' && i + 1 < n && text[i + 1] == ':') { /* [:digit:] */
            const char *end = memmem(text + i, n - i, ":]", 2);
            i = end ? (size_t)(end - text) + 2 : i + 1;
        } else {
            i++;
        }
    }
    return i < n ? i + 1 : n;
}

/* End of the piece that begins at text[i]: the next separating comma, or n. *open is the place of
 * a bracket that is never closed, or n. */
static size_t piece_end(const char *text, size_t i, size_t n, size_t *open)
{
    int depth = 0;
    size_t outermost = n;

    *open = n;
    while (i < n && !(text[i] == ',' && depth == 0)) {
        if (text[i] == '\\') {
            i += 2;
            continue;
        }
        if (text[i] == '[') {
            size_t behind = skip_class(text, i, n);
            if (behind == n && text[n - 1] != ']') {
                *open = i;
                return n;
            }
            i = behind;
            continue;
        }
        if (text[i] == '(' || text[i] == '{') {
            if (depth++ == 0)
                outermost = i;
        } else if ((text[i] == ')' || text[i] == '}') && depth > 0) {
            depth--;
        }
        i++;
    }
    if (depth > 0)
        *open = outermost;
    return i < n ? i : n;
}

/* ---- One rule ------------------------------------------------------------- */

static enum err_code no_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "no memory for the placement rules");
}

static void rule_free(struct rule *rule)
{
    free(rule->source);
    free(rule->pattern);
    free(rule->target_text);
    free(rule->error);
    target_free(&rule->target);
}

/* Appends the rule and takes what it owns, also when that fails. */
static enum err_code rules_push_take(struct rules *r, struct rule *rule, struct err *e)
{
    if (r->n == r->cap && r->n < RULES_MAX) {
        int cap = r->cap ? 2 * r->cap : 16;
        struct rule *v = realloc(r->v, (size_t)cap * sizeof *v);
        if (!v) {
            rule_free(rule);
            return no_memory(e);
        }
        r->v = v;
        r->cap = cap;
    }
    if (r->n == RULES_MAX) {
        rule_free(rule);
        return err_set(e, ERR_USAGE, "placement rules: more than %d; join some of them", RULES_MAX);
    }
    r->v[r->n++] = *rule;
    return ERR_OK;
}

/* Keeps `pattern` and `target` as the texts of *rule.  0: no memory. */
static int keep_texts(struct rule *rule, const char *pattern, size_t pattern_len,
                      const char *target, size_t target_len)
{
    rule->pattern = strndup(pattern, pattern_len);
    rule->target_text = strndup(target, target_len);
    return rule->pattern && rule->target_text;
}

/* Finds pattern and target in piece[0..n), which is trimmed. */
static int read_piece(struct rule *rule, const char *piece, size_t n)
{
    char why[512] = "", last_why[512] = "";
    size_t last_split = n;

    for (size_t i = n; i-- > 0;) {
        if (piece[i] != '=')
            continue;
        size_t left = i, right = i + 1;
        while (left > 0 && is_blank(piece[left - 1]))
            left--;
        while (right < n && is_blank(piece[right]))
            right++;
        enum target_reading got =
            target_read(&rule->target, piece + right, n - right, why, sizeof why);
        if (got == TARGET_NOMEM)
            return 0;
        if (got == TARGET_READ || got == TARGET_FOREIGN) {
            if (got == TARGET_FOREIGN && !(rule->error = strdup(why)))
                return 0;
            return keep_texts(rule, piece, left, piece + right, n - right);
        }
        if (got == TARGET_UNKNOWN && last_split == n) {
            last_split = i;
            memcpy(last_why, why, sizeof why);
        }
    }
    if (last_split < n) {
        size_t left = last_split, right = last_split + 1;
        while (left > 0 && is_blank(piece[left - 1]))
            left--;
        while (right < n && is_blank(piece[right]))
            right++;
        rule->error = strdup(last_why);
        return rule->error && keep_texts(rule, piece, left, piece + right, n - right);
    }
    rule->error = strdup("no target; write PATTERN=TARGET, for example exps=CPU");
    return rule->error && keep_texts(rule, piece, n, "", 0);
}

static void say_open_bracket(struct rule *rule, char bracket, size_t column)
{
    struct str s = { 0 };

    str_printf(&s, "the '%c' at column %zu is never closed", bracket, column);
    if (s.failed)
        return;
    free(rule->error);
    rule->error = s.data;
    target_free(&rule->target);
}

/* The rule in the trimmed piece[0..n); open: a bracket in it that is never closed, or >= n.
 * 0: no memory. */
static int fill_rule(struct rule *rule, const char *piece, size_t n, size_t open)
{
    if (!rule->source || !read_piece(rule, piece, n))
        return 0;
    if (open < n)
        say_open_bracket(rule, piece[open], (size_t)rule->column + open);
    if (!*rule->pattern && !rule->error) {
        target_free(&rule->target);
        rule->error = strdup("the pattern is empty; '.*' takes every tensor");
        return rule->error != NULL;
    }
    return 1;
}

static enum err_code add_piece(struct rules *r, const char *source, const char *text, size_t begin,
                               size_t end, size_t open, struct err *e)
{
    while (begin < end && is_blank(text[begin]))
        begin++;
    while (end > begin && is_blank(text[end - 1]))
        end--;
    if (begin == end)
        return ERR_OK;
    struct rule rule = { .origin = RULE_TYPED, .column = (int)begin + 1, .source = strdup(source) };
    if (!fill_rule(&rule, text + begin, end - begin, open - begin)) {
        rule_free(&rule);
        return no_memory(e);
    }
    return rules_push_take(r, &rule, e);
}

static enum err_code add_pieces(struct rules *r, const char *source, const char *text, size_t n,
                                struct err *e)
{
    for (size_t at = 0; at < n;) {
        size_t open, end = piece_end(text, at, n, &open);
        TRY(add_piece(r, source, text, at, end, open, e));
        at = end + 1;
    }
    return ERR_OK;
}

/* ---- Texts, files, options ------------------------------------------------- */

enum err_code rules_add_text(struct rules *r, const char *source, const char *text, struct err *e)
{
    size_t n = strlen(text);
    int before = r->n;

    if (n > RULES_MAX_TEXT)
        return err_set(e, ERR_USAGE, "%s: %zu bytes of rules; at most %d", source, n,
                       RULES_MAX_TEXT);
    TRY(add_pieces(r, source, text, n, e));
    if (r->n == before)
        return err_set(e, ERR_USAGE, "%s: no rule in '%.40s'; write PATTERN=TARGET", source, text);
    return ERR_OK;
}

/* Length of a line without its comment: a '#' in front or behind a blank. */
static size_t without_comment(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (line[i] == '#' && (i == 0 || is_blank(line[i - 1])))
            return i;
    return n;
}

static enum err_code add_line(struct rules *r, const char *path, int number, const char *line,
                              size_t n, struct err *e)
{
    char source[512];

    n = without_comment(line, n);
    if (memchr(line, '\0', n))
        return err_set(e, ERR_USAGE, "%s:%d: a NUL byte; rules are text", path, number);
    snprintf(source, sizeof source, "%s:%d", path, number);
    return add_pieces(r, source, line, n, e);
}

static enum err_code read_whole(const char *path, char **text, size_t *n, struct err *e)
{
    FILE *f = fopen(path, "rb");

    if (!f)
        return err_sys(e, "%s: cannot open the rules", path);
    *text = malloc(RULES_MAX_TEXT + 1);
    if (!*text) {
        fclose(f);
        return no_memory(e);
    }
    errno = 0;
    *n = fread(*text, 1, RULES_MAX_TEXT + 1, f);
    int failed = ferror(f);
    fclose(f);
    if (failed)
        return err_sys(e, "%s: cannot read the rules", path);
    if (*n > RULES_MAX_TEXT)
        return err_set(e, ERR_USAGE, "%s: more than %d bytes of rules", path, RULES_MAX_TEXT);
    return ERR_OK;
}

enum err_code rules_add_file(struct rules *r, const char *path, struct err *e)
{
    char *text = NULL;
    size_t n = 0;
    int number = 1;
    enum err_code rc = read_whole(path, &text, &n, e);

    for (size_t at = 0; rc == ERR_OK && at < n; number++) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end - text) - at : n - at;
        rc = add_line(r, path, number, text + at, len, e);
        at += len + 1;
    }
    free(text);
    return rc;
}

static enum err_code add_appended(struct rules *r, enum rule_origin origin, const char *source,
                                  const char *pattern, struct err *e)
{
    const char *target = origin == RULE_HOT ? "planner" : "CPU";
    size_t len = strlen(target);
    struct rule rule = { .origin = origin, .column = 1, .source = strdup(source) };
    char why[512];

    if (!rule.source || !keep_texts(&rule, pattern, strlen(pattern), target, len) ||
        (origin != RULE_HOT &&
         target_read(&rule.target, target, len, why, sizeof why) != TARGET_READ)) {
        rule_free(&rule);
        return no_memory(e);
    }
    return rules_push_take(r, &rule, e);
}

/* Experts by role, in every spelling that files have: merged gate and up, chunked experts. */
#define EXPERTS "\\.ffn_(up|down|gate|gate_up)_(ch|)exps"

enum err_code rules_add_cpu_moe(struct rules *r, struct err *e)
{
    return add_appended(r, RULE_APPENDED, "--cpu-moe", EXPERTS, e);
}

enum err_code rules_add_n_cpu_moe(struct rules *r, int n_blocks, struct err *e)
{
    char range[128], pattern[256], source[64];

    if (n_blocks <= 0)
        return ERR_OK;
    number_range_pattern(0, n_blocks > 10000 ? 9999 : n_blocks - 1, range, sizeof range);
    snprintf(pattern, sizeof pattern, "^blk\\.%s" EXPERTS, range);
    snprintf(source, sizeof source, "--n-cpu-moe %d", n_blocks);
    return add_appended(r, RULE_APPENDED, source, pattern, e);
}

enum err_code rules_add_hot(struct rules *r, struct err *e)
{
    return add_appended(r, RULE_HOT, "--hot", EXPERTS, e);
}

void rules_free(struct rules *r)
{
    for (int i = 0; i < r->n; i++)
        rule_free(&r->v[i]);
    free(r->v);
    *r = (struct rules){ 0 };
}
