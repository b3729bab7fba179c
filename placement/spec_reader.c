/* SPDX-License-Identifier: MIT */
/* placement/spec_reader.c - see spec_reader.h. */
#include "placement/spec_reader.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum err_code spec_error(const struct spec *s, struct err *e, const char *fmt, ...)
{
    char what[256];
    int line = 1, column = 1;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    for (const char *c = s->text; c < s->at; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    if (line > 1)
        return err_set(e, ERR_USAGE, "%s:%d: %s (column %d)", s->name, line, what, column);
    return err_set(e, ERR_USAGE, "%s: %s (column %d)", s->name, what, column);
}

void spec_skip(struct spec *s)
{
    for (;;) {
        while (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n')
            s->at++;
        if (*s->at != '#')
            return;
        while (*s->at && *s->at != '\n')
            s->at++;
    }
}

int spec_next_is(const struct spec *s, char c)
{
    return *s->at == c;
}

int spec_take(struct spec *s, char c)
{
    if (*s->at != c)
        return 0;
    s->at++;
    spec_skip(s);
    return 1;
}

int spec_literal(struct spec *s, const char *word)
{
    size_t n = strlen(word);

    if (strncmp(s->at, word, n) != 0)
        return 0;
    s->at += n;
    spec_skip(s);
    return 1;
}

int spec_at_digit(const struct spec *s)
{
    return isdigit((unsigned char)*s->at);
}

static int is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_';
}

enum err_code spec_name(struct spec *s, struct spec_word *word, struct err *e)
{
    size_t n = 0;

    while (is_name_char(s->at[n]))
        n++;
    if (n == 0)
        return spec_error(s, e, "a name is expected");
    *word = (struct spec_word){ s->at, n };
    s->at += n;
    spec_skip(s);
    return ERR_OK;
}

enum err_code spec_count(struct spec *s, int min, int max, const char *what, int *out,
                         struct err *e)
{
    char *end;

    errno = 0;
    long v = strtol(s->at, &end, 10);
    if (end == s->at)
        return spec_error(s, e, "a number of %s is expected", what);
    if (errno != 0 || v < min || v > max)
        return spec_error(s, e, "%.*s %s: %d to %d are possible", (int)(end - s->at), s->at, what,
                          min, max);
    *out = (int)v;
    s->at = end;
    spec_skip(s);
    return ERR_OK;
}

/* The unit at s->at, with its "i" and "B". */
static double take_unit(struct spec *s)
{
    static const char letters[] = "KMGT";
    const char *found = *s->at ? strchr(letters, toupper((unsigned char)*s->at)) : NULL;
    double unit = 1, base = 1000;

    if (found) {
        s->at++;
        if (*s->at == 'i') {
            base = 1024;
            s->at++;
        }
        for (const char *c = letters; c <= found; c++)
            unit *= base;
    }
    if (*s->at == 'B')
        s->at++;
    return unit;
}

/* Digits with at most one point; no signs, exponents, hexadecimal, infinities. */
static int take_decimal(struct spec *s, double *out)
{
    size_t n = strspn(s->at, "0123456789.");
    char text[32], *end;

    if (n == 0 || n >= sizeof text)
        return 0;
    memcpy(text, s->at, n);
    text[n] = '\0';
    *out = strtod(text, &end);
    if (*end)
        return 0;
    s->at += n;
    return 1;
}

enum err_code spec_size(struct spec *s, double min, double max, const char *what, double *out,
                        struct err *e)
{
    const char *start = s->at;
    double v;

    if (*s->at == '-')
        return spec_error(s, e, "%s is negative", what);
    if (!take_decimal(s, &v))
        return spec_error(s, e, "%s wants a number such as 512G", what);
    v *= take_unit(s);
    if (is_name_char(*s->at))
        return spec_error(s, e, "%s=%.*s: units are K, M, G, T and Ki, Mi, Gi, Ti", what,
                          (int)(s->at + 1 - start), start);
    if (!(v >= min && v <= max))
        return spec_error(s, e, "%s=%.*s cannot be: %g to %g are possible", what,
                          (int)(s->at - start), start, min, max);
    *out = v;
    spec_skip(s);
    return ERR_OK;
}

enum err_code spec_microseconds(struct spec *s, double *out, struct err *e)
{
    static const struct {
        const char *unit;
        double us;
    } units[] = {
        {"ns",  1e-3},
        { "us", 1   },
        { "ms", 1e3 },
        { "s",  1e6 }
    };
    double v;

    if (!take_decimal(s, &v))
        return spec_error(s, e, "a latency such as 3us is expected");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i].unit);
        if (strncmp(s->at, units[i].unit, n) != 0 || is_name_char(s->at[n]))
            continue;
        s->at += n;
        if (!(v * units[i].us <= 1e6))
            return spec_error(s, e, "a latency of more than a second cannot be");
        *out = v * units[i].us;
        spec_skip(s);
        return ERR_OK;
    }
    return spec_error(s, e, "a latency has ns, us, ms or s behind it");
}

int spec_channels_follow(struct spec *s, int *n)
{
    char *end;
    long v = isdigit((unsigned char)*s->at) ? strtol(s->at, &end, 10) : 0;

    if (v < 1 || v > 1024 || *end != '*' || !isalpha((unsigned char)end[1]))
        return 0;
    *n = (int)v;
    s->at = end + 1;
    return 1;
}

enum err_code spec_read_file(const char *path, char **text, struct err *e)
{
    FILE *f = fopen(path, "rb");

    if (!f)
        return err_sys(e, "%s: cannot open the description of devices", path);
    char *all = malloc(SPEC_MAX_BYTES + 1);
    size_t n = all ? fread(all, 1, SPEC_MAX_BYTES + 1, f) : 0;
    enum err_code rc = ferror(f) ? err_sys(e, "%s: cannot be read", path) : ERR_OK;
    fclose(f);
    if (!all)
        return err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
    if (rc == ERR_OK && (n > SPEC_MAX_BYTES || memchr(all, '\0', n)))
        rc = err_set(e, ERR_USAGE, "%s: not a description of devices: at most %d bytes of text",
                     path, SPEC_MAX_BYTES);
    if (rc != ERR_OK) {
        free(all);
        return rc;
    }
    all[n] = '\0';
    *text = all;
    return ERR_OK;
}
