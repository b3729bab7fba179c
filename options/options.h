/* SPDX-License-Identifier: MIT */
/* options/options.h - the options of one run of a program, as options.def declares them.
 *
 * Defaults first, then the command line, in order; the last value wins, and options that may
 * be repeated collect.  Flags of the peers are accepted and answered with one line
 * (options_peer.def), those of later versions are refused by name (options_later.def).
 */
#ifndef OPTIONS_OPTIONS_H
#define OPTIONS_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "options/commands.h"

struct count_list {
    int64_t *v; /* [n], owned by the options */
    size_t n;
};
struct text_list {
    const char **v; /* [n], the array owned by the options, the texts borrowed */
    size_t n;
};

typedef int option_FLAG;
typedef int64_t option_COUNT;
typedef double option_REAL;
typedef const char *option_TEXT; /* borrowed from argv or from `kept`, or NULL */
typedef struct count_list option_COUNTS;
typedef struct text_list option_TEXTS;
typedef int option_CHOICE; /* index of the word in the row's list */

enum option_id {
#define X(KIND, field, names, value, def, min, max, takes, help) OPTION_##field,
#include "options/options.def"
#undef X
    OPTION_COUNT
};

enum { OPTIONS_MAX_ARGS = 2 };

struct options {
    enum command_id command;
#define X(KIND, field, names, value, def, min, max, takes, help) option_##KIND field;
#include "options/options.def"
#undef X
    unsigned char given[OPTION_COUNT];  /* 1: by the user, not by default */
    const char *args[OPTIONS_MAX_ARGS]; /* [n_args], what is not an option */
    int n_args;
    char **kept; /* [n_kept], texts of the configuration file, owned */
    size_t n_kept;
    int help; /* -h or --help was among them: nothing else was checked */
};

/* Reads the words after the command's name.  End with options_free, also after a failure.
 * Errors: ERR_USAGE, with the option, what is wrong and what it wants. */
enum err_code options_parse(struct options *o, enum command_id command, int argc, char *const *argv,
                            struct err *e);
void options_free(struct options *o);

/* Reads `key = value` lines, after options_parse: a key is the long name of an option without the
 * dashes, a flag wants yes or no, and keys that may be repeated collect.  An option of the command
 * line hides the key of the same name.
 * Errors: ERR_IO; ERR_USAGE with file, line, what is wrong and what it wants; ERR_NOMEM. */
enum err_code options_read_config(struct options *o, const char *path, struct err *e);

/* The options that command `to` needs to have the values of o, as words appended to *words, which
 * are o's too.  Errors: ERR_NOMEM. */
enum err_code options_pass_on(struct options *o, enum command_id to, struct text_list *words,
                              struct err *e);

/* The word that a CHOICE has now, NUL-terminated in buf. */
const char *options_choice(const struct options *o, enum option_id id, char *buf, size_t size);

/* The help page of one command. */
void options_print_help(FILE *to, enum command_id command);

#endif
