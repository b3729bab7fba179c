/* SPDX-License-Identifier: MIT */
/* model/byte_alphabet.h - the letters in which vocabularies write bytes.
 *
 * Byte-level vocabularies keep their tokens as text in which each byte is one visible
 * character: printable bytes stand for themselves as code points, the other 68 are
 * U+0100 and up in their order.  So " \n" is "ĠĊ".  No letter is longer than two bytes.
 */
#ifndef MODEL_BYTE_ALPHABET_H
#define MODEL_BYTE_ALPHABET_H

#include <stddef.h>
#include <stdint.h>

/* Writes the letter of a byte; returns its length, 1 or 2. */
size_t alphabet_letter(uint8_t byte, char out[2]);

/* The byte that the character at s[0] is the letter of, or -1.  *used is the character's
 * length either way (1 where it is not even UTF-8).  n >= 1. */
int alphabet_byte(const char *s, size_t n, size_t *used);

#endif
