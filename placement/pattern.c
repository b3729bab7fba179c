/* SPDX-License-Identifier: MIT */
/* placement/pattern.c - see pattern.h. */
#include "placement/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <ctype.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct pattern {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    int fast; /* has machine code */
};

/* ---- PCRE2 ---------------------------------------------------------------- */

static enum err_code compile(struct pattern *p, const char *text, int *column, struct err *e)
{
    pcre2_compile_context *cc = pcre2_compile_context_create(NULL);
    int number = 0;
    PCRE2_SIZE offset = 0;

    if (!cc)
        return err_set(e, ERR_NOMEM, "no memory for a pattern");
    pcre2_set_max_pattern_length(cc, PATTERN_MAX_BYTES);
    pcre2_set_parens_nest_limit(cc, 100);
    p->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                            PCRE2_NEVER_UTF | PCRE2_NEVER_BACKSLASH_C, &number, &offset, cc);
    pcre2_compile_context_free(cc);
    if (p->code)
        return ERR_OK;
    char why[256] = "";
    pcre2_get_error_message(number, (PCRE2_UCHAR *)why, sizeof why);
    *column = (int)offset + 1;
    return err_set(e, ERR_USAGE, "%s, at byte %d of the pattern", why, *column);
}

enum err_code pattern_compile(struct pattern **out, const char *text, int *column, struct err *e)
{
    struct pattern *p = calloc(1, sizeof *p);

    if (!p)
        return err_set(e, ERR_NOMEM, "no memory for a pattern");
    enum err_code rc = compile(p, text, column, e);
    if (rc == ERR_OK) {
        p->match = pcre2_match_data_create(1, NULL);
        p->context = pcre2_match_context_create(NULL);
        if (!p->match || !p->context)
            rc = err_set(e, ERR_NOMEM, "no memory for a pattern");
    }
    if (rc != ERR_OK) {
        pattern_free(&p);
        return rc;
    }
    pcre2_set_match_limit(p->context, PATTERN_MAX_STEPS);
    pcre2_set_depth_limit(p->context, 2000);
    pcre2_set_heap_limit(p->context, 1024); /* KiB */
    *out = p;
    return ERR_OK;
}

void pattern_free(struct pattern **p)
{
    if (!*p)
        return;
    pcre2_code_free((*p)->code);
    pcre2_match_data_free((*p)->match);
    pcre2_match_context_free((*p)->context);
    free(*p);
    *p = NULL;
}

/* Where memory may not be writable and executable (systemd's MemoryDenyWriteExecute, SELinux),
 * no pattern gets machine code: said once. */
static void report_slow(int rc)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    char why[128] = "";

    if (atomic_flag_test_and_set(&reported))
        return;
    pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
    log_info("rules: no machine code for patterns here (%s): they are interpreted, which gives the "
             "same result later; nothing to do",
             why);
}

void pattern_speed_up(struct pattern *p)
{
    size_t size = 0;

    /* Machine code of a large pattern costs more than it saves; without it, it only runs slower. */
    if (pcre2_pattern_info(p->code, PCRE2_INFO_SIZE, &size) != 0 || size >= 4096)
        return;
    int rc = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    p->fast = rc == 0;
    if (rc != 0)
        report_slow(rc);
}

int pattern_search(struct pattern *p, const char *name, size_t len)
{
    PCRE2_SPTR text = (PCRE2_SPTR)name;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;

    if (p->fast)
        rc = pcre2_jit_match(p->code, text, len, 0, 0, p->match, p->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->code, text, len, 0, PCRE2_NO_JIT, p->match, p->context);
    if (rc >= 0)
        return 1;
    return rc == PCRE2_ERROR_NOMATCH ? 0 : -1;
}

/* ---- Literals -------------------------------------------------------------- */

/* A stretch that is being read. */
struct stretch {
    char text[PATTERN_MAX_LITERAL];
    size_t n;
};

static void end_stretch(struct pattern_literals *l, struct stretch *s)
{
    int at = l->n;

    s->text[s->n] = '\0';
    if (s->n >= 2) {
        if (l->n == PATTERN_MAX_LITERALS) { /* replaces the shortest, if that is shorter */
            at = 0;
            for (int i = 1; i < l->n; i++)
                if (strlen(l->text[i]) < strlen(l->text[at]))
                    at = i;
            if (strlen(l->text[at]) >= s->n)
                at = -1;
        } else {
            l->n++;
        }
        if (at >= 0)
            memcpy(l->text[at], s->text, sizeof s->text);
    }
    s->n = 0;
}

/* Index behind the class that begins at text[i] == '['; 0 where that is not plain to see. */
static size_t skip_class(const char *text, size_t i)
{
    i++;
    if (text[i] == '^' || text[i] == ']')
        return 0;
    for (; text[i] && text[i] != ']'; i++)
        if (text[i] == '[' || text[i] == '\\')
            return 0;
    return text[i] ? i + 1 : 0;
}

/* Index behind the group that begins at text[i] == '(', likewise.  Settings such as (?i) may
 * change what letters mean: not plain. */
static size_t skip_group(const char *text, size_t i)
{
    int depth = 0;

    do {
        if (text[i] == '\\') {
            if (!text[i + 1])
                return 0;
            i += 2;
            continue;
        }
        if (text[i] == '[') {
            if ((i = skip_class(text, i)) == 0)
                return 0;
            continue;
        }
        if (text[i] == '(') {
            if (text[i + 1] == '*' || (text[i + 1] == '?' && !strchr(":=!<", text[i + 2])))
                return 0;
            depth++;
        }
        depth -= text[i] == ')';
        i++;
    } while (text[i] && depth > 0);
    return depth == 0 ? i : 0;
}

static size_t skip_quantifier(const char *text, size_t i)
{
    if (text[i] == '{') { /* a plain letter where no numbers follow */
        size_t end = i + 1 + strspn(text + i + 1, "0123456789,");
        return text[end] == '}' ? end + 1 : i + 1;
    }
    return i + 1;
}

/* Reads the item at text[i] into the stretch; returns the index behind it, or 0 to give up. */
static size_t read_item(struct pattern_literals *l, struct stretch *s, const char *text, size_t i)
{
    char c = text[i];

    if (c == '[' || c == '(' || c == '.' || c == '^' || c == '$' || strchr("*+?{", c)) {
        end_stretch(l, s);
        if (c == '[')
            return skip_class(text, i);
        if (c == '(')
            return skip_group(text, i);
        return strchr("*+?{", c) ? skip_quantifier(text, i) : i + 1;
    }
    if (c == '\\') {
        c = text[++i];
        if (isalnum((unsigned char)c) || !c) {
            end_stretch(l, s);
            return c && strchr("dDwWsSbBA", c) ? i + 1 : 0;
        }
    }
    char next = text[i + 1];
    int optional = next && strchr("*?{", next) != NULL;
    if (optional || s->n + 1 == sizeof s->text)
        end_stretch(l, s);
    if (!optional)
        s->text[s->n++] = c;
    return i + 1;
}

void pattern_find_literals(struct pattern_literals *l, const char *text)
{
    struct stretch s = { .n = 0 };

    *l = (struct pattern_literals){ 0 };
    for (size_t i = 0; text[i];) {
        if (text[i] == '|' || (i = read_item(l, &s, text, i)) == 0) {
            l->n = 0;
            return;
        }
    }
    end_stretch(l, &s);
}
