/* SPDX-License-Identifier: MIT */
#include "base/utf8.h"

size_t utf8_length(const char *s, size_t n)
{
    const unsigned char *b = (const unsigned char *)s;
    unsigned char low = 0x80, high = 0xBF; /* bounds of the second byte */
    size_t length;

    if (n == 0)
        return 0;
    if (b[0] < 0x80)
        return 1;
    if (b[0] < 0xC2 || b[0] > 0xF4)
        return 0;
    length = b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
    if (b[0] == 0xE0)
        low = 0xA0;
    else if (b[0] == 0xED)
        high = 0x9F;
    else if (b[0] == 0xF0)
        low = 0x90;
    else if (b[0] == 0xF4)
        high = 0x8F;
    if (n < length || b[1] < low || b[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((b[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

size_t utf8_valid_prefix(const char *s, size_t n)
{
    size_t at = 0, length;

    while (at < n && (length = utf8_length(s + at, n - at)) > 0)
        at += length;
    return at;
}
