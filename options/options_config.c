/* SPDX-License-Identifier: MIT */
/* options/options_config.c - the configuration file: `key = value` lines, read by inih.
 *
 * inih as Debian builds it cuts lines at 200 bytes without a word, and a line that begins with a
 * blank goes on with the key above it.  So lines are handed to it one by one, too long ones are
 * refused, and what goes on is joined here: another value of a list, the rest of a text.
 */
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "options/options_table.h"

struct config {
    struct options *o;
    const char *path;
    FILE *file;
    char *line; /* of getline */
    size_t cap;
    int number;           /* of the line */
    int begins_blank;     /* it begins with a blank */
    enum option_id above; /* the key of the line above, OPTION_COUNT if there is none */
    unsigned char hidden[OPTION_COUNT]; /* given by the command line */
    enum err_code rc;                   /* of the first error; nothing is set after it */
    struct err *e;
};

size_t option_key(enum option_id id, enum command_id command, const char **key)
{
    const struct option_row *row = &option_rows[id];
    const char *name = strstr(row->names, "--");

    /* A file that names the next file would be a riddle. */
    if (!(row->takes >> command & 1) || !name || id == OPTION_config)
        return 0;
    *key = name + 2;
    return strcspn(*key, " ");
}

/* ---- Lines ---------------------------------------------------------------- */

/* For inih: the next line, newline included, in buf[size]; NULL ends the reading. */
static char *next_line(char *buf, int size, void *arg)
{
    struct config *c = arg;

    errno = 0;
    ssize_t len = c->rc == ERR_OK ? getline(&c->line, &c->cap, c->file) : -1;
    if (len < 0) {
        if (c->rc == ERR_OK && ferror(c->file))
            c->rc = err_sys(c->e, "%s: cannot be read", c->path);
        return NULL;
    }
    c->number++;
    c->begins_blank = c->line[0] == ' ' || c->line[0] == '\t';
    if (strlen(c->line) != (size_t)len) {
        c->rc = err_set(c->e, ERR_USAGE, "%s:%d: a NUL byte; write text only", c->path, c->number);
        return NULL;
    }
    if (len >= size) {
        c->rc = err_set(c->e, ERR_USAGE,
                        "%s:%d: longer than %d bytes; go on in the next line, after a blank",
                        c->path, c->number, size - 2);
        return NULL;
    }
    return memcpy(buf, c->line, (size_t)len + 1);
}

/* ---- Keys ----------------------------------------------------------------- */

static enum err_code unknown_key(struct config *c, const char *key)
{
    char nearest[OPTION_NAME_SIZE];

    if (!option_nearest(c->o->command, key, nearest))
        return err_set(c->e, ERR_USAGE, "%s:%d: %.60s: no such key; %s lists all options", c->path,
                       c->number, key, commands[c->o->command].ask_help);
    return err_set(c->e, ERR_USAGE, "%s:%d: %.60s: no such key; the nearest is %s", c->path,
                   c->number, key, nearest + strspn(nearest, "-"));
}

/* A key of the peers or of a later version: as on the command line. */
static enum err_code foreign_key(struct config *c, const char *key, const char *value)
{
    char name[OPTION_NAME_SIZE + 2];
    struct err why = { 0 };

    if (strlen(key) >= OPTION_NAME_SIZE)
        return unknown_key(c, key);
    snprintf(name, sizeof name, "--%s", key);
    const struct foreign_option *f = foreign_find(name, strlen(name));
    if (!f)
        return unknown_key(c, key);
    enum err_code rc = foreign_answer(f, name, value, &why);
    return rc == ERR_OK ? rc : err_set(c->e, rc, "%s:%d: %s", c->path, c->number, why.msg);
}

static enum option_id find_key(enum command_id command, const char *key)
{
    const char *own;

    for (int i = 0; i < OPTION_COUNT; i++) {
        size_t len = option_key((enum option_id)i, command, &own);
        if (len && strlen(key) == len && memcmp(key, own, len) == 0)
            return (enum option_id)i;
    }
    return OPTION_COUNT;
}

/* ---- Values --------------------------------------------------------------- */

const char *option_keep(struct options *o, char *text)
{
    char **v = text ? realloc(o->kept, (o->n_kept + 1) * sizeof *v) : NULL;

    if (!v) {
        free(text);
        return NULL;
    }
    o->kept = v;
    return v[o->n_kept++] = text;
}

static enum err_code set_flag(struct config *c, enum option_id id, const char *key,
                              const char *value)
{
    size_t len = strlen(value);
    int on = word_index("yes|on|true|1", '|', value, len) >= 0;

    if (!on && word_index("no|off|false|0", '|', value, len) < 0)
        return err_set(c->e, ERR_USAGE,
                       "%s:%d: %s = %.40s: not a value it can have; give yes or no", c->path,
                       c->number, key, value);
    *(option_FLAG *)((char *)c->o + option_rows[id].offset) = on;
    return ERR_OK;
}

/* The text so far, a blank, and `value`; NULL if there is no memory. */
static char *joined(struct config *c, enum option_id id, const char *value)
{
    const char *before = *(const option_TEXT *)((const char *)c->o + option_rows[id].offset);
    struct str s = { 0 };

    str_printf(&s, "%s %s", before, value);
    return s.failed ? NULL : s.data;
}

static enum err_code set_value(struct config *c, enum option_id id, const char *key,
                               const char *value)
{
    enum option_kind kind = option_rows[id].kind;
    int goes_on = c->begins_blank && c->above == id;
    struct err why = { 0 };

    if (!*value)
        return err_set(c->e, ERR_USAGE, "%s:%d: %s: its value is missing; give %s", c->path,
                       c->number, key, kind == KIND_FLAG ? "yes or no" : option_rows[id].value);
    if (goes_on &&
        (kind == KIND_FLAG || kind == KIND_COUNT || kind == KIND_REAL || kind == KIND_CHOICE))
        return err_set(c->e, ERR_USAGE,
                       "%s:%d: %s has one value only; begin another key at the left margin",
                       c->path, c->number, key);
    if (kind == KIND_FLAG)
        return set_flag(c, id, key, value);
    const char *text =
        option_keep(c->o, goes_on && kind == KIND_TEXT ? joined(c, id, value) : strdup(value));
    if (!text)
        return err_set(c->e, ERR_NOMEM, "%s:%d: no memory", c->path, c->number);
    enum err_code rc = option_set(c->o, id, key, text, &why);
    return rc == ERR_OK ? rc : err_set(c->e, rc, "%s:%d: %s", c->path, c->number, why.msg);
}

/* For inih: one key.  Returns 1; errors are kept in c. */
static int take_key(void *arg, const char *section, const char *key, const char *value)
{
    struct config *c = arg;

    if (c->rc != ERR_OK)
        return 1;
    if (*section) {
        c->rc = err_set(c->e, ERR_USAGE,
                        "%s:%d: below [%.40s]: there are no sections; leave that line out", c->path,
                        c->number, section);
        return 1;
    }
    enum option_id id = find_key(c->o->command, key);
    if (id == OPTION_COUNT) {
        c->rc = foreign_key(c, key, value);
    } else if (!c->hidden[id]) {
        c->rc = set_value(c, id, key, value);
        c->o->given[id] = 1;
    }
    c->above = id;
    return 1;
}

enum err_code options_read_config(struct options *o, const char *path, struct err *e)
{
    struct config c = { .o = o, .path = path, .above = OPTION_COUNT, .e = e };

    memcpy(c.hidden, o->given, sizeof c.hidden);
    c.file = fopen(path, "re");
    if (!c.file)
        return err_sys(e, "%s: cannot be opened", path);
    int bad_line = ini_parse_stream(next_line, &c, take_key, &c);
    if (c.rc == ERR_OK && bad_line > 0)
        c.rc = err_set(e, ERR_USAGE, "%s:%d: neither 'key = value' nor a comment", path, bad_line);
    else if (c.rc == ERR_OK && bad_line < 0)
        c.rc = err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
    free(c.line);
    fclose(c.file);
    return c.rc;
}
