/* SPDX-License-Identifier: MIT */
/* options/options_table.h - the rows of options.def, for the parser and the help page. */
#ifndef OPTIONS_OPTIONS_TABLE_H
#define OPTIONS_OPTIONS_TABLE_H

#include "options/options.h"

enum option_kind {
    KIND_FLAG,
    KIND_COUNT,
    KIND_REAL,
    KIND_TEXT,
    KIND_COUNTS,
    KIND_TEXTS,
    KIND_CHOICE,
};

struct option_row {
    enum option_kind kind;
    unsigned takes; /* bit per command */
    const char *names, *value, *def;
    int64_t min, max;
    const char *help;
    size_t offset; /* of the field in struct options */
};

extern const struct option_row option_rows[OPTION_COUNT];

/* The default that one command shows and starts with. */
const char *option_default(enum option_id id, enum command_id command);

/* The option of this name that the command takes; OPTION_COUNT if there is none.  *elsewhere
 * then tells whether another command has it. */
enum option_id option_find(enum command_id command, const char *name, size_t len, int *elsewhere);

/* The command's option nearest to a mistyped name (without its dashes).  Returns 0 if that would
 * share less than half the letters. */
enum { OPTION_NAME_SIZE = 64 };
int option_nearest(enum command_id command, const char *bare, char word[OPTION_NAME_SIZE]);

/* The key that stands for an option in a configuration file: its first long name, without dashes.
 * Returns its length, 0 if it has none there. */
size_t option_key(enum option_id id, enum command_id command, const char **key);

/* Sets one field from text.  Errors: ERR_USAGE, ERR_NOMEM. */
enum err_code option_set(struct options *o, enum option_id id, const char *name, const char *text,
                         struct err *e);

/* Takes a text that is to live as long as the options; NULL: no memory, it is freed. */
const char *option_keep(struct options *o, char *text);

/* Is `name` one of the words of `list`, which `separator` divides?  A word that ends in '*'
 * takes all that begin so.  Returns its index, or -1. */
int word_index(const char *list, char separator, const char *name, size_t len);

/* Calls fn for each word of the list. */
typedef void word_fn(void *arg, const char *word, size_t len);
void word_each(const char *list, char separator, word_fn *fn, void *arg);

/* ---- Options of peers and of later versions ------------------------------- */

struct foreign_option {
    enum foreign_value { FOREIGN_NONE, FOREIGN_ONE, FOREIGN_SWITCH, FOREIGN_MAYBE } value;
    const char *names;
    const char *accepted; /* of a later option, values that already work; NULL: a peer's option */
    const char *text;     /* what takes its place; of a later option, what is missing           */
    int refused;          /* a peer's option that cannot be ignored                             */
};

/* The row with this name, or NULL. */
const struct foreign_option *foreign_find(const char *name, size_t len);

/* Whether the word after the option belongs to it. */
int foreign_takes(const struct foreign_option *f, const char *next);

/* Answers: a line for a peer's option, ERR_USAGE for a later or a refused one.  value: NULL if
 * none. */
enum err_code foreign_answer(const struct foreign_option *f, const char *name, const char *value,
                             struct err *e);

#endif
