/* SPDX-License-Identifier: MIT */
/* tests/support/gguf_builder.h - bytes from words, for files that no writer would write.
 *
 *     u8:N u16:N u32:N u64:N   a little-endian number (0x..., and negative ones)
 *     raw:TEXT                 the letters
 *     s:TEXT                   a GGUF string: u64 length, letters
 *     zero:N                   N zero bytes
 *     pad:N                    zeros up to the next multiple of N
 *
 * Words are separated by blanks, so that pieces of a file can be macros that are
 * pasted together.
 */
#ifndef TESTS_SUPPORT_GGUF_BUILDER_H
#define TESTS_SUPPORT_GGUF_BUILDER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The parts of a GGUF file. */
#define B_HEAD(n_tensors, n_keys) "raw:GGUF u32:3 u64:" #n_tensors " u64:" #n_keys " "
#define B_KEY(name, type)         "s:" name " u32:" #type " "
#define B_TENSOR(name, n_dims)    "s:" name " u32:" #n_dims " "
#define B_DIM(n)                  "u64:" #n " "
#define B_DATA(type, offset)      "u32:" #type " u64:" #offset " "

struct builder {
    uint8_t *out;
    size_t len, cap;
};

static inline void build_bytes(struct builder *b, const void *data, size_t n)
{
    if (n > b->cap - b->len) {
        fprintf(stderr, "gguf_builder: no room\n");
        abort();
    }
    if (data)
        memcpy(b->out + b->len, data, n);
    else
        memset(b->out + b->len, 0, n);
    b->len += n;
}

static inline void build_word(struct builder *b, const char *word, size_t len)
{
    const char *colon = memchr(word, ':', len);
    size_t kind = colon ? (size_t)(colon - word) : 0, n = len - kind - 1;
    const char *value = word + kind + 1;
    uint64_t number = strtoull(value, NULL, 0);

    if (kind == 1 && word[0] == 's') {
        uint64_t stored = n;
        build_bytes(b, &stored, sizeof stored);
        build_bytes(b, value, n);
    } else if (kind == 3 && memcmp(word, "raw", 3) == 0) {
        build_bytes(b, value, n);
    } else if (kind == 4 && memcmp(word, "zero", 4) == 0) {
        build_bytes(b, NULL, number);
    } else if (kind == 3 && memcmp(word, "pad", 3) == 0) {
        build_bytes(b, NULL, (number - b->len % number) % number);
    } else if (kind >= 2 && word[0] == 'u') {
        build_bytes(b, &number, strtoull(word + 1, NULL, 10) / 8);
    } else {
        fprintf(stderr, "gguf_builder: unknown word %.*s\n", (int)len, word);
        abort();
    }
}

/* Number of bytes written to out[cap]. */
static inline size_t gguf_build(const char *words, uint8_t *out, size_t cap)
{
    struct builder b = { .out = out, .cap = cap };

    while (*words) {
        size_t len = strcspn(words, " ");
        if (len)
            build_word(&b, words, len);
        words += len + (words[len] == ' ');
    }
    return b.len;
}

#endif
