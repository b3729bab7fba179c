/* SPDX-License-Identifier: MIT */
/* options/options_pass.c - from values back to words, for a program that another one starts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "options/options_table.h"

static enum err_code push(struct text_list *l, const char *text, struct err *e)
{
    const char **v = realloc(l->v, (l->n + 2) * sizeof *v);

    if (!v)
        return err_set(e, ERR_NOMEM, "no memory for the words of a command");
    l->v = v;
    l->v[l->n++] = text;
    l->v[l->n] = NULL;
    return ERR_OK;
}

/* The same with a copy. */
static enum err_code push_copy(struct options *o, struct text_list *words, const char *text,
                               size_t n, struct err *e)
{
    const char *copy = option_keep(o, strndup(text, n));

    return copy ? push(words, copy, e) : err_set(e, ERR_NOMEM, "no memory for a command");
}

static enum err_code pass_value(struct options *o, enum option_id id, struct text_list *words,
                                struct err *e)
{
    const void *field = (const char *)o + option_rows[id].offset;
    char buf[64] = "";

    switch (option_rows[id].kind) {
    case KIND_COUNT:
        (void)snprintf(buf, sizeof buf, "%" PRId64, *(const option_COUNT *)field);
        break;
    case KIND_REAL:
        (void)snprintf(buf, sizeof buf, "%.17g", *(const option_REAL *)field);
        break;
    case KIND_CHOICE:
        (void)options_choice(o, id, buf, sizeof buf);
        break;
    case KIND_TEXT:
        return push(words, *(const option_TEXT *)field, e);
    case KIND_FLAG:
    case KIND_COUNTS:
    case KIND_TEXTS:
        return ERR_OK;
    }
    return push_copy(o, words, buf, strlen(buf), e);
}

/* Of its names the last, which is the long one. */
static enum err_code pass_name(struct options *o, enum option_id id, struct text_list *words,
                               struct err *e)
{
    const char *names = option_rows[id].names, *last = strrchr(names, ' ');

    last = last ? last + 1 : names;
    return push_copy(o, words, last, strlen(last), e);
}

static enum err_code pass_option(struct options *o, enum option_id id, struct text_list *words,
                                 struct err *e)
{
    const struct text_list *texts = (const void *)((const char *)o + option_rows[id].offset);

    if (option_rows[id].kind != KIND_TEXTS) {
        TRY(pass_name(o, id, words, e));
        return pass_value(o, id, words, e);
    }
    for (size_t i = 0; i < texts->n; i++) {
        TRY(pass_name(o, id, words, e));
        TRY(push(words, texts->v[i], e));
    }
    return ERR_OK;
}

enum err_code options_pass_on(struct options *o, enum command_id to, struct text_list *words,
                              struct err *e)
{
    for (int i = 0; i < OPTION_COUNT; i++) {
        enum option_id id = (enum option_id)i;
        unsigned both = 1u << to | 1u << o->command;
        int differs = strcmp(option_default(id, o->command), option_default(id, to)) != 0;
        if ((option_rows[i].takes & both) == both && (o->given[i] || differs))
            TRY(pass_option(o, id, words, e));
    }
    return ERR_OK;
}
