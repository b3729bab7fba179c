/* SPDX-License-Identifier: MIT */
#include "base/str.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static int str_reserve(struct str *s, size_t n)
{
    if (s->failed || n > (size_t)-1 / 4 || s->len > (size_t)-1 / 4)
        return -1;
    if (s->len + n + 1 <= s->cap)
        return 0;
    size_t cap = 2 * (s->len + n + 1);
    char *data = realloc(s->data, cap);
    if (!data) {
        str_free(s);
        s->failed = 1;
        return -1;
    }
    s->data = data;
    s->cap = cap;
    return 0;
}

void str_append(struct str *s, const char *bytes, size_t n)
{
    if (str_reserve(s, n))
        return;
    if (n)
        memcpy(s->data + s->len, bytes, n);
    s->len += n;
    s->data[s->len] = 0;
}

void str_puts(struct str *s, const char *text)
{
    str_append(s, text, strlen(text));
}

void str_printf(struct str *s, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0 || str_reserve(s, (size_t)n))
        return;
    va_start(args, fmt);
    vsnprintf(s->data + s->len, (size_t)n + 1, fmt, args);
    va_end(args);
    s->len += (size_t)n;
}

void str_printable(struct str *s, const char *text, size_t n, size_t max)
{
    size_t shown = n < max ? n : max;

    for (size_t i = 0; i < shown;) {
        const unsigned char *p = (const unsigned char *)text + i;
        size_t len = utf8_length(text + i, n - i);
        int control = p[0] < 0x20 || p[0] == 0x7f || (len == 2 && p[0] == 0xc2 && p[1] < 0xa0);
        if (len > 0 && !control) {
            str_append(s, text + i, len);
            i += len;
        } else {
            str_printf(s, "\\x%02x", p[0]);
            i++;
        }
    }
    if (shown < n)
        str_printf(s, "... (%zu bytes)", n);
}

void str_label(struct str *s, const char *text, size_t max)
{
    struct str plain = { 0 };

    str_printable(&plain, text, strlen(text), max);
    for (const char *c = plain.data; c && *c; c++) {
        if (*c == '\\' || *c == '"')
            str_append(s, "\\", 1);
        str_append(s, c, 1);
    }
    s->failed |= plain.failed;
    str_free(&plain);
}

void str_clear(struct str *s)
{
    s->len = 0;
    if (s->data)
        s->data[0] = 0;
}

void str_free(struct str *s)
{
    free(s->data);
    *s = (struct str){ 0 };
}

const char *str_bytes(char *buf, size_t size, double bytes)
{
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB" };
    int u = 0;

    while (fabs(bytes) >= 999.5 && u < 4) {
        bytes /= 1000;
        u++;
    }
    snprintf(buf, size, "%.*f %s", u == 0 || fabs(bytes) >= 99.95 ? 0 : 1, bytes, units[u]);
    return buf;
}

int str_distance(const char *a, const char *b)
{
    enum { MAX = 64 };
    int row[MAX + 1];
    size_t na = strnlen(a, MAX), nb = strnlen(b, MAX);

    for (size_t j = 0; j <= nb; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[nb];
}
