/* SPDX-License-Identifier: MIT */
/* model/presplit.c - see presplit.h.
 *
 * A pre-tokenizer is a list of passes, each a published regular expression.  A pass cuts a
 * fragment into its matches and what lies between them, and the next pass cuts each of
 * these; what leaves the last pass is a piece.  The walk goes down through the passes, so
 * it needs no memory for fragments and its depth is the number of passes.
 *
 * PCRE2's interpreter runs the expressions.  It keeps backtracking off the machine stack,
 * and in a small fixed heap here, because no expression repeats a group.  Time is linear:
 * where a run of characters is given up, the next alternative takes it whole.  The one
 * published expression without this property, "\s+$", is written so that it can only
 * start where a run starts.
 *
 * Bytes that are not UTF-8 are matched, in a copy, as U+FFFD, a symbol, one for each byte;
 * pieces are told in offsets of the text itself.
 *
 * Reading order: the table, opening, the walk.
 */
#include "model/presplit.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/utf8.h"
#include "model/gguf_part.h"

/* ---- The table ---------------------------------------------------------- */

enum { MAX_PASSES = 6 };

struct rule {
    const char *names; /* separated by blanks, the usual one first */
    const char *pass[MAX_PASSES];
};

static const struct rule rules[] = {
#define X(names, ...) { names, { __VA_ARGS__ } },
#include "model/presplit.def"
#undef X
};
enum { N_RULES = sizeof rules / sizeof rules[0] };

/* Whether `name` is one of the names: a whole word of them. */
static int has_name(const struct rule *r, const char *name)
{
    size_t n = strlen(name);

    if (n == 0 || strchr(name, ' '))
        return 0;
    for (const char *at = r->names; (at = strstr(at, name)); at += n)
        if ((at == r->names || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return 1;
    return 0;
}

/* ---- Opening ------------------------------------------------------------ */

struct presplitter {
    const struct rule *rule;
    int n_passes;
    pcre2_code *pass[MAX_PASSES];
    pcre2_match_context *limits;
};

static const struct rule *find_rule(const char *name)
{
    for (const struct rule *r = rules; r < rules + N_RULES; r++)
        if (has_name(r, name))
            return r;
    return NULL;
}

static const char *known_names(struct str *s)
{
    for (const struct rule *r = rules; r < rules + N_RULES; r++)
        str_printf(s, " %s", r->names);
    return s->failed ? "" : s->data;
}

/* A file needs one that is not here. */
static enum err_code unknown_name(const char *name, struct err *e)
{
    struct str known = { 0 };

    if (!*name || strcmp(name, "default") == 0)
        err_set(e, ERR_UNSUPPORTED,
                "pre-tokenizer: the file does not say which one its vocabulary needs; add "
                "--override-kv tokenizer.ggml.pre=str:deepseek-v3 or another of%s",
                known_names(&known));
    else
        err_set(
            e, ERR_UNSUPPORTED,
            "pre-tokenizer \"%.64s\": not known; known are%s; if the vocabulary is made for one "
            "of them, add --override-kv tokenizer.ggml.pre=str:NAME",
            name, known_names(&known));
    str_free(&known);
    return ERR_UNSUPPORTED;
}

enum err_code presplitter_open(struct presplitter **out, const char *pre, struct err *e)
{
    enum { DEPTH = 1000, HEAP_KIB = 1024 };
    const struct rule *rule = find_rule(pre);
    struct presplitter *p;

    if (!rule)
        return unknown_name(pre, e);
    p = calloc(1, sizeof *p);
    if (!p || !(p->limits = pcre2_match_context_create(NULL)))
        goto no_memory;
    p->rule = rule;
    /* Steps are not limited, they grow with the text; what one step may hold is. */
    pcre2_set_match_limit(p->limits, UINT32_MAX);
    pcre2_set_depth_limit(p->limits, DEPTH);
    pcre2_set_heap_limit(p->limits, HEAP_KIB);
    while (p->n_passes < MAX_PASSES && rule->pass[p->n_passes]) {
        int code;
        size_t at;
        pcre2_code *pass =
            pcre2_compile((PCRE2_SPTR)rule->pass[p->n_passes], PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &code, &at, NULL);
        if (!pass)
            goto no_memory; /* the expressions are constants, and tested */
        p->pass[p->n_passes++] = pass;
    }
    *out = p;
    return ERR_OK;
no_memory:
    presplitter_close(&p);
    return err_set(e, ERR_NOMEM, "pre-tokenizer %s: no memory to compile it", rule->names);
}

void presplitter_close(struct presplitter **p)
{
    if (!*p)
        return;
    for (int i = 0; i < (*p)->n_passes; i++)
        pcre2_code_free((*p)->pass[i]);
    pcre2_match_context_free((*p)->limits);
    free(*p);
    *p = NULL;
}

int presplitter_is(const struct presplitter *p, const char *name)
{
    return has_name(p->rule, name);
}

/* ---- The walk ----------------------------------------------------------- */

struct walk {
    const struct presplitter *p;
    pcre2_match_data *match; /* of the latest match in any pass */
    piece_fn *fn;
    void *arg;
    const char *text; /* the caller's       */
    size_t n, at;     /* bytes of it, told  */
    int repaired;     /* what is matched is a copy with U+FFFD for invalid bytes */
};

/* Bytes of the text behind the next n bytes of the repaired copy. */
static size_t original_bytes(const struct walk *w, size_t n)
{
    size_t at = w->at;

    while (n) {
        size_t length = utf8_length(w->text + at, w->n - at);
        at += length ? length : 1;
        n -= length ? length : sizeof UTF8_REPLACEMENT - 1;
    }
    return at - w->at;
}

static void tell(struct walk *w, size_t n)
{
    if (w->repaired)
        n = original_bytes(w, n);
    w->fn(w->arg, w->at, n);
    w->at += n;
}

/* Sends fragment[n] through the passes from `pass` on.  Returns 0, or PCRE2's error. */
static int walk_pass(struct walk *w, int pass, const char *fragment, size_t n)
{
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(w->match);
    size_t done = 0;

    if (pass == w->p->n_passes) {
        tell(w, n);
        return 0;
    }
    while (done < n) {
        int rc = pcre2_match(w->p->pass[pass], (PCRE2_SPTR)fragment, n, done, PCRE2_NO_UTF_CHECK,
                             w->match, w->p->limits);
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
            return rc;
        size_t from = rc < 0 ? n : bounds[0], to = rc < 0 ? n : bounds[1];
        if (from > done && (rc = walk_pass(w, pass + 1, fragment + done, from - done)) < 0)
            return rc;
        if (to > from && (rc = walk_pass(w, pass + 1, fragment + from, to - from)) < 0)
            return rc;
        done = to;
    }
    return 0;
}

/* A copy of text[n] with U+FFFD for each byte that is not UTF-8. */
static struct str repair(const char *text, size_t n)
{
    struct str copy = { 0 };

    for (size_t at = 0; at < n;) {
        size_t valid = utf8_valid_prefix(text + at, n - at);
        str_append(&copy, text + at, valid);
        at += valid;
        if (at < n) {
            str_puts(&copy, UTF8_REPLACEMENT);
            at++;
        }
    }
    return copy;
}

enum err_code presplitter_run(const struct presplitter *p, const char *text, size_t n, piece_fn *fn,
                              void *arg, struct err *e)
{
    struct walk w = { .p = p, .fn = fn, .arg = arg, .text = text, .n = n };
    struct str copy = { 0 };
    const char *subject = text;
    size_t length = n;
    int rc = PCRE2_ERROR_NOMEMORY;

    if (utf8_valid_prefix(text, n) < n) {
        copy = repair(text, n);
        subject = copy.data;
        length = copy.len;
        w.repaired = 1;
    }
    w.match = pcre2_match_data_create(1, NULL);
    if (w.match && !copy.failed)
        rc = walk_pass(&w, 0, subject, length);
    pcre2_match_data_free(w.match);
    str_free(&copy);
    if (rc < 0)
        return err_set(e, ERR_NOMEM, "pre-tokenizer %s: no memory for %zu bytes of text (PCRE2 %d)",
                       p->rule->names, n, rc);
    return ERR_OK;
}

enum err_code presplit(const char *pre, const char *text, size_t n, piece_fn *fn, void *arg,
                       struct err *e)
{
    struct presplitter *p = NULL;
    struct str known = { 0 };
    enum err_code code;

    if (!find_rule(pre)) {
        err_set(e, ERR_USAGE, "pre-tokenizer \"%.64s\": not known; give one of%s", pre,
                known_names(&known));
        str_free(&known);
        return ERR_USAGE;
    }
    code = presplitter_open(&p, pre, e);
    if (p)
        code = presplitter_run(p, text, n, fn, arg, e);
    presplitter_close(&p);
    return code;
}
