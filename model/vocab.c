/* SPDX-License-Identifier: MIT */
#include "model/vocab.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash(const char *text, size_t n)
{
    const uint64_t odd = 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio */
    uint64_t h = n * odd, word;

    for (; n >= sizeof word; text += sizeof word, n -= sizeof word) {
        memcpy(&word, text, sizeof word);
        h = (h ^ word) * odd;
        h ^= h >> 32;
    }
    word = 0;
    memcpy(&word, text, n);
    h = (h ^ word) * odd;
    return h ^ h >> 32;
}

/* The slot that holds the text, or the empty one where it belongs. */
static struct vocab_slot *slot_of(const struct vocab *v, const char *text, size_t n, uint64_t h)
{
    size_t mask = v->n_slots - 1, slot = h & mask;

    for (; v->slot[slot].number; slot = (slot + 1) & mask) {
        size_t length;
        if (v->slot[slot].tag != h >> 32)
            continue;
        const char *other = vocab_text(v, v->slot[slot].number - 1, &length);
        if (length == n && memcmp(other, text, n) == 0)
            break;
    }
    return &v->slot[slot];
}

static void put(struct vocab *v, const char *text, size_t n, int32_t number)
{
    uint64_t h = hash(text, n);

    *slot_of(v, text, n, h) = (struct vocab_slot){ number + 1, (uint32_t)(h >> 32) };
}

/* Room for `cap` texts, a power of two, and twice as many slots, so that half stay empty. */
static int resize(struct vocab *v, int32_t cap)
{
    size_t n_slots = 2 * (size_t)cap;
    struct vocab_text *text;
    struct vocab_slot *slot;

    text = realloc(v->text, (size_t)cap * sizeof *text);
    if (!text)
        return -1;
    v->text = text;
    slot = calloc(n_slots, sizeof *slot);
    if (!slot)
        return -1;
    free(v->slot);
    v->slot = slot;
    v->n_slots = n_slots;
    v->cap = cap;
    for (int32_t i = 0; i < v->n; i++) {
        size_t n;
        const char *s = vocab_text(v, i, &n);
        put(v, s, n, i);
    }
    return 0;
}

void vocab_reserve(struct vocab *v, int32_t n)
{
    int32_t cap = v->cap ? v->cap : 1024;

    while (cap < n && cap <= INT32_MAX / 4)
        cap *= 2;
    if (cap < n || (cap > v->cap && resize(v, cap)))
        v->failed = 1;
}

int32_t vocab_add(struct vocab *v, const char *text, size_t n)
{
    if (v->n == v->cap)
        vocab_reserve(v, v->n + 1);
    if (v->failed)
        return -1;
    v->text[v->n] = (struct vocab_text){ v->bytes.len, n };
    str_append(&v->bytes, text, n);
    if (v->bytes.failed) {
        v->failed = 1;
        return -1;
    }
    put(v, text, n, v->n);
    return v->n++;
}

int32_t vocab_intern(struct vocab *v, const char *text, size_t n)
{
    int32_t number = vocab_find(v, text, n);

    return number >= 0 ? number : vocab_add(v, text, n);
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t n)
{
    return v->failed || v->n == 0 ? -1 : slot_of(v, text, n, hash(text, n))->number - 1;
}

void vocab_free(struct vocab *v)
{
    str_free(&v->bytes);
    free(v->text);
    free(v->slot);
    *v = (struct vocab){ 0 };
}
