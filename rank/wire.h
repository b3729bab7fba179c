/* SPDX-License-Identifier: MIT */
/* rank/wire.h - numbers to little-endian bytes and back: steps, the link, the journal.
 *
 * A read beyond the end yields zero and sets `failed`, so a reader checks once at its end.
 */
#ifndef RANK_WIRE_H
#define RANK_WIRE_H

#include <stdint.h>
#include <string.h>

#include "base/str.h"

struct wire {
    const uint8_t *at, *end;
    int failed;
};

static inline struct wire wire_over(const void *bytes, size_t n)
{
    return (struct wire){ .at = bytes, .end = n ? (const uint8_t *)bytes + n : bytes };
}

static inline size_t wire_left(const struct wire *w)
{
    return (size_t)(w->end - w->at);
}

static inline const uint8_t *wire_take(struct wire *w, size_t n)
{
    const uint8_t *at = w->at;

    if (w->failed || n > wire_left(w)) {
        w->failed = 1;
        return NULL;
    }
    w->at += n;
    return at;
}

static inline uint64_t wire_get(struct wire *w, size_t n_bytes)
{
    const uint8_t *b = wire_take(w, n_bytes);
    uint64_t v = 0;

    for (size_t i = 0; b && i < n_bytes; i++)
        v |= (uint64_t)b[i] << 8 * i;
    return v;
}

static inline void wire_put(struct str *out, uint64_t v, size_t n_bytes)
{
    char b[8];

    for (size_t i = 0; i < n_bytes; i++)
        b[i] = (char)(v >> 8 * i);
    str_append(out, b, n_bytes);
}

static inline uint8_t wire_get_u8(struct wire *w)
{
    return (uint8_t)wire_get(w, 1);
}
static inline int32_t wire_get_i32(struct wire *w)
{
    return (int32_t)(uint32_t)wire_get(w, 4);
}
static inline int64_t wire_get_i64(struct wire *w)
{
    return (int64_t)wire_get(w, 8);
}
static inline void wire_put_i32(struct str *out, int32_t v)
{
    wire_put(out, (uint32_t)v, 4);
}
static inline void wire_put_i64(struct str *out, int64_t v)
{
    wire_put(out, (uint64_t)v, 8);
}

static inline float wire_get_f32(struct wire *w)
{
    uint32_t bits = (uint32_t)wire_get(w, 4);
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}
static inline void wire_put_f32(struct str *out, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    wire_put(out, bits, 4);
}
static inline double wire_get_f64(struct wire *w)
{
    uint64_t bits = wire_get(w, 8);
    double v;

    memcpy(&v, &bits, sizeof v);
    return v;
}
static inline void wire_put_f64(struct str *out, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    wire_put(out, bits, 8);
}

/* A text of u8 length into buf[size], NUL-terminated; one that is too long, or has a NUL, fails. */
static inline void wire_get_text(struct wire *w, char *buf, size_t size)
{
    size_t n = wire_get_u8(w);
    const uint8_t *b = n < size ? wire_take(w, n) : NULL;

    buf[0] = 0;
    if (!b || memchr(b, 0, n)) {
        w->failed = 1;
        return;
    }
    memcpy(buf, b, n);
    buf[n] = 0;
}
static inline void wire_put_text(struct str *out, const char *text)
{
    size_t n = strlen(text) < 255 ? strlen(text) : 255;

    wire_put(out, n, 1);
    str_append(out, text, n);
}

/* A count of items of at least `item_bytes` each, from 0 to max: more than can follow fails. */
static inline int64_t wire_get_count(struct wire *w, int64_t max, size_t item_bytes)
{
    int64_t n = wire_get_i32(w);

    if (w->failed || n < 0 || n > max || (uint64_t)n > wire_left(w) / item_bytes) {
        w->failed = 1;
        return 0;
    }
    return n;
}

#endif
