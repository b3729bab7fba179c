/* SPDX-License-Identifier: MIT */
/* options/manual.c - see manual.h. */
#include "options/manual.h"

#include <stdlib.h>
#include <string.h>

#include "options/options_table.h"

enum { COMMENT_WIDTH = 96 };

/* ---- man ------------------------------------------------------------------ */

/* Text for man, without its newline: letters that mean something there are written so that they
 * do not. */
static void put_man(FILE *to, const char *text, size_t len)
{
    if (len && (text[0] == '.' || text[0] == '\''))
        fputs("\\&", to);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\\')
            fputs("\\e", to);
        else if (text[i] == '-')
            fputs("\\-", to);
        else
            fputc(text[i], to);
    }
}

static void put_bold(FILE *to, const char *text, size_t len)
{
    fputs("\\fB", to);
    put_man(to, text, len);
    fputs("\\fR", to);
}

/* "FILE" slanted, the words of "on|off" as they are typed. */
static void put_value(FILE *to, const struct option_row *row)
{
    fputs(row->kind == KIND_CHOICE ? " " : " \\fI", to);
    put_man(to, row->value, strlen(row->value));
    fputs(row->kind == KIND_CHOICE ? "" : "\\fR", to);
}

static void put_help(FILE *to, enum option_id id, enum command_id command)
{
    const char *def = option_default(id, command);

    fputc('\n', to);
    put_man(to, option_rows[id].help, strlen(option_rows[id].help));
    fputs(".\n", to);
    if (*def) {
        fputs("Default: ", to);
        put_man(to, def, strlen(def));
        fputs(".\n", to);
    }
}

struct names {
    FILE *to;
    int n;
};

static void put_name(void *arg, const char *word, size_t len)
{
    struct names *names = arg;

    if (names->n++)
        fputs(", ", names->to);
    put_bold(names->to, word, len);
}

static void put_options(FILE *to, enum command_id command)
{
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option_row *row = &option_rows[i];
        struct names names = { .to = to };
        if (!(row->takes >> command & 1))
            continue;
        fputs(".TP\n", to);
        word_each(row->names, ' ', put_name, &names);
        if (*row->value)
            put_value(to, row);
        put_help(to, (enum option_id)i, command);
    }
}

static void put_keys(FILE *to, enum command_id command)
{
    const char *key;

    for (int i = 0; i < OPTION_COUNT; i++) {
        size_t len = option_key((enum option_id)i, command, &key);
        if (!len)
            continue;
        fputs(".TP\n", to);
        put_bold(to, key, len);
        fputs(" =", to);
        if (option_rows[i].kind == KIND_FLAG)
            fputs(" yes|no", to);
        else
            put_value(to, &option_rows[i]);
        put_help(to, (enum option_id)i, command);
    }
}

static void put_commands(FILE *to)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (commands[i].state != COMMAND_READY)
            continue;
        fprintf(to, ".SS latent %s", commands[i].name);
        if (*commands[i].arguments)
            fprintf(to, " %s", commands[i].arguments);
        fputc('\n', to);
        put_man(to, commands[i].help, strlen(commands[i].help));
        fputs(".\n", to);
        put_options(to, (enum command_id)i);
    }
}

/* ---- The configuration file ------------------------------------------------ */

static void put_comment(FILE *to, const char *text)
{
    while (strlen(text) > COMMENT_WIDTH) {
        size_t cut = COMMENT_WIDTH;
        while (cut > 0 && text[cut] != ' ')
            cut--;
        if (cut == 0)
            break;
        fprintf(to, "# %.*s\n", (int)cut, text);
        text += cut + 1;
    }
    fprintf(to, "# %s\n", text);
}

/* "#key = default", or what a value looks like where there is no default. */
static void put_example(FILE *to, enum command_id command)
{
    const char *key;

    for (int i = 0; i < OPTION_COUNT; i++) {
        const char *value = option_default((enum option_id)i, command);
        size_t len = option_key((enum option_id)i, command, &key);
        if (!len)
            continue;
        if (option_rows[i].kind == KIND_FLAG)
            value = "no";
        else if (!*value)
            value = option_rows[i].value;
        fputc('\n', to);
        put_comment(to, option_rows[i].help);
        if (option_rows[i].kind == KIND_CHOICE)
            fprintf(to, "# One of %s.\n", option_rows[i].value);
        fprintf(to, "#%.*s = %s\n", (int)len, key, value);
    }
}

/* ---- Templates ------------------------------------------------------------ */

static enum command_id command_named(const char *name)
{
    int i = 0;

    while (i < COMMAND_COUNT && strcmp(commands[i].name, name) != 0)
        i++;
    return (enum command_id)i;
}

/* `line` is "@what COMMAND". */
static enum err_code fill_part(FILE *out, const char *line, struct err *e)
{
    const char *blank = strchr(line, ' ');
    size_t len = blank ? (size_t)(blank - line) : strlen(line);
    enum command_id command = blank ? command_named(blank + 1) : COMMAND_COUNT;

    if (strcmp(line, "@commands") == 0)
        put_commands(out);
    else if (command == COMMAND_COUNT)
        return err_set(e, ERR_FORMAT, "%.60s: names no command of commands.def", line);
    else if (len == 8 && memcmp(line, "@options", len) == 0)
        put_options(out, command);
    else if (len == 5 && memcmp(line, "@keys", len) == 0)
        put_keys(out, command);
    else if (len == 8 && memcmp(line, "@example", len) == 0)
        put_example(out, command);
    else
        return err_set(e, ERR_FORMAT, "%.60s: no such part; see options/manual.h", line);
    return ERR_OK;
}

static void put_line(FILE *out, const char *line)
{
    static const char version[] = "@VERSION@";

    for (const char *at; (at = strstr(line, version)); line = at + sizeof version - 1)
        fprintf(out, "%.*s%s", (int)(at - line), line, LATENTD_VERSION);
    fprintf(out, "%s\n", line);
}

enum err_code manual_fill(FILE *in, FILE *out, struct err *e)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    enum err_code rc = ERR_OK;

    while (rc == ERR_OK && (len = getline(&line, &cap, in)) >= 0) {
        if (len && line[len - 1] == '\n')
            line[len - 1] = 0;
        if (line[0] == '@')
            rc = fill_part(out, line, e);
        else
            put_line(out, line);
    }
    free(line);
    if (rc == ERR_OK && (ferror(in) || fflush(out) != 0 || ferror(out)))
        rc = err_sys(e, "a manual page cannot be read or written");
    return rc;
}
