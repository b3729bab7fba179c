/* SPDX-License-Identifier: MIT */
/* placement/number_range.c - see number_range.h. */
#include "placement/number_range.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

static void put_digits(struct str *s, int lo, int hi)
{
    if (lo == hi)
        str_printf(s, "%d", lo);
    else
        str_printf(s, "[%d-%d]", lo, hi);
}

/* Numbers lo..hi of one length, unit = 10^(digits - 1): split at the first digit. */
static void put_equal_length(struct str *s, int lo, int hi, int unit)
{
    int a = lo / unit, b = hi / unit;

    if (unit == 1) {
        put_digits(s, lo, hi);
        return;
    }
    int first = lo % unit == 0 ? a : a + 1; /* first digits that are whole */
    int last = hi % unit == unit - 1 ? b : b - 1;
    if (a == b && first > last) {
        struct str inner = { 0 };
        put_equal_length(&inner, lo % unit, hi % unit, unit / 10);
        int many = inner.data && strchr(inner.data, '|') != NULL;
        str_printf(s, many ? "%d(%s)" : "%d%s", a, inner.data ? inner.data : "");
        str_free(&inner);
        return;
    }
    const char *bar = "";
    if (first > a) {
        put_equal_length(s, lo, a * unit + unit - 1, unit);
        bar = "|";
    }
    if (first <= last) {
        str_puts(s, bar);
        put_digits(s, first, last);
        for (int u = unit; u > 1; u /= 10)
            str_puts(s, "[0-9]");
        bar = "|";
    }
    if (last < b) {
        str_puts(s, bar);
        put_equal_length(s, b * unit, hi, unit);
    }
}

void number_range_pattern(int lo, int hi, char *out, size_t size)
{
    struct str s = { 0 };
    const char *bar = "";

    for (int unit = 1; unit <= 1000; unit *= 10) {
        int from = unit == 1 ? 0 : unit, to = 10 * unit - 1;
        from = lo > from ? lo : from;
        to = hi < to ? hi : to;
        if (from > to)
            continue;
        str_puts(&s, bar);
        put_equal_length(&s, from, to, unit);
        bar = "|";
    }
    int many = s.data && strchr(s.data, '|') != NULL;
    snprintf(out, size, "%s%s%s", many ? "(" : "", s.data ? s.data : "", many ? ")" : "");
    str_free(&s);
}
