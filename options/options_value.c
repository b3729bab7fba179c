/* SPDX-License-Identifier: MIT */
/* options/options_value.c - from the text of a value to its field. */
#include "options/options_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct option_row option_rows[OPTION_COUNT] = {
#define X(KIND, field, names, value, def, min, max, takes, help) \
    { KIND_##KIND, takes, names, value, def, min, max, help, offsetof(struct options, field) },
#include "options/options.def"
#undef X
};

static const struct {
    enum command_id command;
    enum option_id id;
    const char *def;
} own_defaults[] = {
#define X(KIND, field, names, value, def, min, max, takes, help)
#define D(command, field, def) { COMMAND_##command, OPTION_##field, def },
#include "options/options.def"
#undef X
#undef D
};

const char *option_default(enum option_id id, enum command_id command)
{
    for (size_t i = 0; i < sizeof own_defaults / sizeof *own_defaults; i++)
        if (own_defaults[i].command == command && own_defaults[i].id == id)
            return own_defaults[i].def;
    return option_rows[id].def;
}

/* ---- Word lists ----------------------------------------------------------- */

void word_each(const char *list, char separator, word_fn *fn, void *arg)
{
    while (*list) {
        const char *end = strchr(list, separator);
        size_t len = end ? (size_t)(end - list) : strlen(list);
        fn(arg, list, len);
        list += len + (end != NULL);
    }
}

struct word_search {
    const char *name;
    size_t len;
    int index, found;
};

static void word_compare(void *arg, const char *word, size_t len)
{
    struct word_search *s = arg;
    int prefix = len > 1 && word[len - 1] == '*';
    size_t n = len - (size_t)prefix;

    if (s->found < 0 && (prefix ? s->len >= n : s->len == n) && memcmp(word, s->name, n) == 0)
        s->found = s->index;
    s->index++;
}

int word_index(const char *list, char separator, const char *name, size_t len)
{
    struct word_search s = { .name = name, .len = len, .found = -1 };

    word_each(list, separator, word_compare, &s);
    return s.found;
}

/* ---- Numbers -------------------------------------------------------------- */

/* A decimal number of `len` letters, without blanks.  Returns 0, or -1. */
static int parse_count(const char *text, size_t len, int64_t *out)
{
    char digits[24], *end;

    if (len == 0 || len >= sizeof digits || !strchr("+-0123456789", text[0]))
        return -1;
    memcpy(digits, text, len);
    digits[len] = 0;
    errno = 0;
    *out = strtoll(digits, &end, 10);
    return errno || *end || end == digits ? -1 : 0;
}

static int parse_real(const char *text, double *out)
{
    char *end;

    if (!*text || !strchr("+-.0123456789", text[0]))
        return -1;
    *out = strtod(text, &end);
    return *end || end == text ? -1 : 0;
}

static enum err_code want_number(struct err *e, const char *name, const char *text,
                                 const struct option_row *row)
{
    const char *kind = row->kind == KIND_COUNT  ? "a whole number"
                       : row->kind == KIND_REAL ? "a number"
                                                : "whole numbers separated by commas, each";

    return err_set(e, ERR_USAGE, "%s %.40s: not a value it can have; give %s from %lld to %lld",
                   name, text, kind, (long long)row->min, (long long)row->max);
}

/* ---- Lists ---------------------------------------------------------------- */

struct counts_parse {
    const struct option_row *row;
    struct count_list *list;
    int bad;
};

static void counts_push(void *arg, const char *word, size_t len)
{
    struct counts_parse *p = arg;
    int64_t v;

    if (p->bad || parse_count(word, len, &v) || v < p->row->min || v > p->row->max)
        p->bad = 1;
    else
        p->list->v[p->list->n++] = v;
}

static enum err_code set_counts(struct count_list *list, const struct option_row *row,
                                const char *name, const char *text, struct err *e)
{
    struct counts_parse p = { .row = row, .list = list };
    size_t words = 1, len = strlen(text);

    for (size_t i = 0; i < len; i++)
        words += text[i] == ',';
    int64_t *v = realloc(list->v, (list->n + words) * sizeof *v);
    if (!v)
        return err_set(e, ERR_NOMEM, "%s: no memory for %zu numbers", name, words);
    list->v = v;
    size_t before = list->n;
    word_each(text, ',', counts_push, &p);
    if (p.bad || list->n - before != words)
        return want_number(e, name, text, row);
    return ERR_OK;
}

static enum err_code set_texts(struct text_list *list, const char *name, const char *text,
                               struct err *e)
{
    const char **v = realloc(list->v, (list->n + 1) * sizeof *v);

    if (!v)
        return err_set(e, ERR_NOMEM, "%s: no memory", name);
    list->v = v;
    list->v[list->n++] = text;
    return ERR_OK;
}

/* ---- The interface -------------------------------------------------------- */

/* A list that still holds its default starts anew with the user's first value. */
static void forget_default(struct options *o, enum option_id id, void *field)
{
    if (o->given[id])
        return;
    if (option_rows[id].kind == KIND_COUNTS)
        ((struct count_list *)field)->n = 0;
    if (option_rows[id].kind == KIND_TEXTS)
        ((struct text_list *)field)->n = 0;
}

enum err_code option_set(struct options *o, enum option_id id, const char *name, const char *text,
                         struct err *e)
{
    const struct option_row *row = &option_rows[id];
    void *field = (char *)o + row->offset;
    int64_t count;
    double real;

    forget_default(o, id, field);
    switch (row->kind) {
    case KIND_FLAG:
        *(option_FLAG *)field = 1;
        return ERR_OK;
    case KIND_COUNT:
        if (parse_count(text, strlen(text), &count) || count < row->min || count > row->max)
            return want_number(e, name, text, row);
        *(option_COUNT *)field = count;
        return ERR_OK;
    case KIND_REAL:
        if (parse_real(text, &real) || !(real >= (double)row->min && real <= (double)row->max))
            return want_number(e, name, text, row);
        *(option_REAL *)field = real;
        return ERR_OK;
    case KIND_TEXT:
        *(option_TEXT *)field = text;
        return ERR_OK;
    case KIND_COUNTS:
        return set_counts(field, row, name, text, e);
    case KIND_TEXTS:
        return set_texts(field, name, text, e);
    case KIND_CHOICE:
        *(option_CHOICE *)field = word_index(row->value, '|', text, strlen(text));
        if (*(option_CHOICE *)field < 0)
            return err_set(e, ERR_USAGE, "%s %.40s: not a value it can have; give one of %s", name,
                           text, row->value);
        return ERR_OK;
    }
    return err_set(e, ERR_USAGE, "%s: an option of no kind", name);
}
