/* SPDX-License-Identifier: MIT */
/* options/options.c - walks the command line; see options.h. */
#include "options/options.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "options/options_table.h"

/* The words that are left, and what is being filled. */
struct walk {
    struct options *o;
    char *const *at, *const *end;
};

/* ---- Names ---------------------------------------------------------------- */

enum option_id option_find(enum command_id command, const char *name, size_t len, int *elsewhere)
{
    *elsewhere = 0;
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (word_index(option_rows[i].names, ' ', name, len) < 0)
            continue;
        if (option_rows[i].takes >> command & 1)
            return (enum option_id)i;
        *elsewhere = 1;
    }
    return OPTION_COUNT;
}

struct nearest {
    const char *name; /* as typed, from here on without dashes in front */
    char word[OPTION_NAME_SIZE];
    int distance;
};

/* Number of edits, and 1 where one name begins the other ("--ctx") or is a word of it ("--size").
 */
static int name_distance(const char *a, const char *b)
{
    const char *shorter = strlen(a) < strlen(b) ? a : b, *longer = shorter == a ? b : a;
    size_t len = strlen(shorter);
    const char *at = strstr(longer, shorter);
    int edits = str_distance(a, b);

    if (len < 3 || !at || edits == 0)
        return edits;
    int begins = at == longer && (shorter == a || at[len] == '-');
    return begins || (at > longer && at[-1] == '-' && (!at[len] || at[len] == '-')) ? 1 : edits;
}

static void compare_name(void *arg, const char *word, size_t len)
{
    struct nearest *n = arg;
    char copy[OPTION_NAME_SIZE];

    if (len >= sizeof copy)
        return;
    memcpy(copy, word, len);
    copy[len] = 0;
    int distance = name_distance(n->name, copy + strspn(copy, "-"));
    if (distance < n->distance) {
        n->distance = distance;
        memcpy(n->word, copy, len + 1);
    }
}

int option_nearest(enum command_id command, const char *bare, char word[OPTION_NAME_SIZE])
{
    struct nearest n = { .name = bare, .distance = (int)strlen(bare) / 2 + 1 };

    for (int i = 0; i < OPTION_COUNT; i++)
        if (option_rows[i].takes >> command & 1)
            word_each(option_rows[i].names, ' ', compare_name, &n);
    memcpy(word, n.word, sizeof n.word);
    return *word != 0;
}

static enum err_code unknown_option(enum command_id command, const char *name, struct err *e)
{
    const char *help = commands[command].ask_help;
    char nearest[OPTION_NAME_SIZE];

    if (!option_nearest(command, name + strspn(name, "-"), nearest))
        return err_set(e, ERR_USAGE, "%s: no such option; %s lists all", name, help);
    return err_set(e, ERR_USAGE, "%s: no such option; the nearest is %s, %s lists all", name,
                   nearest, help);
}

/* ---- One option ----------------------------------------------------------- */

static enum err_code read_own(struct walk *w, enum option_id id, const char *name,
                              const char *value, struct err *e)
{
    if (option_rows[id].kind == KIND_FLAG) {
        if (value)
            return err_set(e, ERR_USAGE, "%s=%.40s: the option takes no value; leave it out", name,
                           value);
    } else if (!value) {
        if (w->at == w->end)
            return err_set(e, ERR_USAGE, "%s: its value is missing; give %s", name,
                           option_rows[id].value);
        value = *w->at++;
    }
    TRY(option_set(w->o, id, name, value, e));
    w->o->given[id] = 1;
    return ERR_OK;
}

static enum err_code read_foreign(struct walk *w, const struct foreign_option *f, const char *name,
                                  const char *value, struct err *e)
{
    if (!value && w->at < w->end && foreign_takes(f, *w->at))
        value = *w->at++;
    else if (!value && f->value == FOREIGN_ONE)
        return err_set(e, ERR_USAGE, "%s: its value is missing; add it, or leave the option out",
                       name);
    return foreign_answer(f, name, value, e);
}

/* `word` begins with '-': "-c", "--ctx-size", "--ctx-size=4096", and "--ctx_size", which llama.cpp
 * takes too. */
static enum err_code read_option(struct walk *w, const char *word, struct err *e)
{
    const char *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    size_t len = equals ? (size_t)(equals - word) : strlen(word);
    const char *value = equals ? equals + 1 : NULL;
    char name[OPTION_NAME_SIZE];
    int elsewhere;

    if (len >= sizeof name)
        return err_set(e, ERR_USAGE, "%.40s...: no such option; %s lists all", word,
                       commands[w->o->command].ask_help);
    memcpy(name, word, len);
    name[len] = 0;
    for (char *c = strncmp(name, "--", 2) == 0 ? name : name + len; *c; c++)
        *c = *c == '_' ? '-' : *c;

    enum option_id id = option_find(w->o->command, name, len, &elsewhere);
    if (id != OPTION_COUNT)
        return read_own(w, id, name, value, e);
    const struct foreign_option *f = foreign_find(name, len);
    if (f)
        return read_foreign(w, f, name, value, e);
    if (elsewhere)
        return err_set(e, ERR_USAGE, "%s: not an option of %s; %s lists them", name,
                       commands[w->o->command].call, commands[w->o->command].ask_help);
    return unknown_option(w->o->command, name, e);
}

/* ---- The interface -------------------------------------------------------- */

static enum err_code set_defaults(struct options *o, enum command_id command, struct err *e)
{
    *o = (struct options){ .command = command };
    for (int i = 0; i < OPTION_COUNT; i++) {
        const char *def = option_default((enum option_id)i, command);
        if (*def)
            TRY(option_set(o, (enum option_id)i, option_rows[i].names, def, e));
    }
    return ERR_OK;
}

static enum err_code push_arg(struct options *o, const char *word, struct err *e)
{
    const struct command *c = &commands[o->command];

    if (o->n_args >= c->max_args)
        return err_set(e, ERR_USAGE, "%.60s: one word too many; %s takes %s", word, c->call,
                       c->max_args ? c->arguments : "options only (the model is -m FILE)");
    o->args[o->n_args++] = word;
    return ERR_OK;
}

static int asks_for_help(int argc, char *const *argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0)
            return 1;
    return 0;
}

enum err_code options_parse(struct options *o, enum command_id command, int argc, char *const *argv,
                            struct err *e)
{
    struct walk w = { .o = o, .at = argv, .end = argv + argc };
    int only_args = 0;

    TRY(set_defaults(o, command, e));
    o->help = asks_for_help(argc, argv);
    if (o->help)
        return ERR_OK;
    while (w.at < w.end) {
        const char *word = *w.at++;
        if (only_args || word[0] != '-' || !word[1])
            TRY(push_arg(o, word, e));
        else if (strcmp(word, "--") == 0)
            only_args = 1;
        else
            TRY(read_option(&w, word, e));
    }
    if (o->n_args < commands[command].min_args)
        return err_set(e, ERR_USAGE, "%s: something is missing; give %s", commands[command].name,
                       commands[command].arguments);
    return ERR_OK;
}

void options_free(struct options *o)
{
    for (int i = 0; i < OPTION_COUNT; i++) {
        void *field = (char *)o + option_rows[i].offset;
        if (option_rows[i].kind == KIND_COUNTS) {
            free(((struct count_list *)field)->v);
            *(struct count_list *)field = (struct count_list){ 0 };
        } else if (option_rows[i].kind == KIND_TEXTS) {
            free(((struct text_list *)field)->v);
            *(struct text_list *)field = (struct text_list){ 0 };
        }
    }
    for (size_t i = 0; i < o->n_kept; i++)
        free(o->kept[i]);
    free(o->kept);
    o->kept = NULL;
    o->n_kept = 0;
}
