/* SPDX-License-Identifier: MIT */
/* base/str.h - a growing string of bytes, and the distance of two names. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stddef.h>

/* Bytes with a length; may hold NUL.  `data` is NUL-terminated once anything was
 * appended.  Owned: end with str_free.  A failed allocation sets `failed` and
 * drops the text; check it once, at the end. */
struct str {
    char *data;
    size_t len, cap;
    int failed;
};

void str_append(struct str *s, const char *bytes, size_t n);
void str_puts(struct str *s, const char *text);
void str_printf(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void str_clear(struct str *s);
void str_free(struct str *s);

/* Appends at most `max` of text[n] so that a terminal can show it: control bytes and invalid
 * UTF-8 as \xNN. */
void str_printable(struct str *s, const char *text, size_t n, size_t max);

/* Appends at most `max` bytes of text as they may stand between the quotes of a Prometheus label.
 */
void str_label(struct str *s, const char *text, size_t max);

/* "12.3 GB", "-1.2 MB", "64 B", in the decimal unit that fits; returns buf. */
const char *str_bytes(char *buf, size_t size, double bytes);

/* Number of single-letter edits from a to b (Levenshtein), at most 64 letters of
 * each.  For "did you mean". */
int str_distance(const char *a, const char *b);

#endif
