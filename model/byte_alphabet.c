/* SPDX-License-Identifier: MIT */
#include "model/byte_alphabet.h"

#include "base/utf8.h"

/* The three runs of bytes without a visible character, and the code points of their letters. */
static const struct {
    uint8_t first, last;
    uint16_t letter;
} hidden[] = {
    {0x00,  0x20, 0x100},
    { 0x7F, 0xA0, 0x121},
    { 0xAD, 0xAD, 0x143}
};
enum { N_HIDDEN = sizeof hidden / sizeof hidden[0] };

size_t alphabet_letter(uint8_t byte, char out[2])
{
    unsigned point = byte;

    for (int i = 0; i < N_HIDDEN; i++)
        if (byte >= hidden[i].first && byte <= hidden[i].last)
            point = hidden[i].letter + (unsigned)byte - hidden[i].first;
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    out[0] = (char)(0xC0 | point >> 6);
    out[1] = (char)(0x80 | (point & 0x3F));
    return 2;
}

int alphabet_byte(const char *s, size_t n, size_t *used)
{
    const uint8_t *b = (const uint8_t *)s;
    size_t length = utf8_length(s, n);
    unsigned point;

    *used = length ? length : 1;
    if (length == 0 || length > 2)
        return -1;
    point = length == 1 ? b[0] : (b[0] & 0x1Fu) << 6 | (b[1] & 0x3Fu);
    for (int i = 0; i < N_HIDDEN; i++) {
        unsigned run = (unsigned)hidden[i].last - hidden[i].first;
        if (point >= hidden[i].letter && point - hidden[i].letter <= run)
            return (int)(hidden[i].first + point - hidden[i].letter);
        if (point >= hidden[i].first && point <= hidden[i].last)
            return -1;
    }
    return point <= 0xFF ? (int)point : -1;
}
