/* SPDX-License-Identifier: MIT */
/* options/options_help.c - the help page of a command. */
#include "options/options_table.h"

#include <string.h>

#include "base/str.h"

enum { NAME_COLUMN = 34, LINE_WIDTH = 100 };

static void append_name(void *arg, const char *word, size_t len)
{
    struct str *s = arg;

    if (s->len)
        str_puts(s, ", ");
    str_append(s, word, len);
}

/* Prints text from NAME_COLUMN on, broken between words. */
static void print_wrapped(FILE *to, const char *text)
{
    size_t room = LINE_WIDTH - NAME_COLUMN;

    while (strlen(text) > room) {
        size_t cut = room;
        while (cut > 0 && text[cut] != ' ')
            cut--;
        if (cut == 0)
            break;
        fprintf(to, "%.*s\n%*s", (int)cut, text, NAME_COLUMN, "");
        text += cut + 1;
    }
    fprintf(to, "%s\n", text);
}

static void print_row(FILE *to, enum option_id id, enum command_id command)
{
    const struct option_row *row = &option_rows[id];
    const char *def = option_default(id, command);
    struct str left = { 0 }, right = { 0 };

    word_each(row->names, ' ', append_name, &left);
    if (*row->value)
        str_printf(&left, " %s", row->value);
    str_puts(&right, row->help);
    if (*def)
        str_printf(&right, " [%s]", def);
    if (!left.failed && !right.failed) {
        int n = fprintf(to, "  %s", left.data);
        if (n > NAME_COLUMN - 2)
            fprintf(to, "\n%*s", NAME_COLUMN, "");
        else
            fprintf(to, "%*s", NAME_COLUMN - n, "");
        print_wrapped(to, right.data);
    }
    str_free(&left);
    str_free(&right);
}

void options_print_help(FILE *to, enum command_id command)
{
    const struct command *c = &commands[command];

    fprintf(to, "usage: %s [options]%s%s\n%s\n\n", c->call, *c->arguments ? " " : "", c->arguments,
            c->help);
    for (int i = 0; i < OPTION_COUNT; i++)
        if (option_rows[i].takes >> command & 1)
            print_row(to, (enum option_id)i, command);
}

const char *options_choice(const struct options *o, enum option_id id, char *buf, size_t size)
{
    const struct option_row *row = &option_rows[id];
    int index = *(const option_CHOICE *)((const char *)o + row->offset);
    const char *word = row->value;

    while (index-- > 0 && strchr(word, '|'))
        word = strchr(word, '|') + 1;
    snprintf(buf, size, "%.*s", (int)strcspn(word, "|"), word);
    return buf;
}
