/* SPDX-License-Identifier: MIT */
/* base/utf8.h - where characters end in bytes that may or may not be UTF-8. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

/* U+FFFD, which stands for a byte that belongs to no character. */
#define UTF8_REPLACEMENT "\xEF\xBF\xBD"

/* Bytes of the character at s[0], 1 to 4, or 0 if no valid one starts there within n
 * bytes.  Strict (Unicode table 3-7): no overlong forms, no surrogates, nothing above
 * U+10FFFF. */
size_t utf8_length(const char *s, size_t n);

/* Bytes from the start of s[n] that are valid. */
size_t utf8_valid_prefix(const char *s, size_t n);

#endif
