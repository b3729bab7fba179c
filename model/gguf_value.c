/* SPDX-License-Identifier: MIT */
/* model/gguf_value.c - metadata values: conversion, array elements, names in messages.
 *
 * Values lie unaligned in the header's buffer and were bounded when it was parsed, so
 * nothing here looks at lengths again.
 */
#include "model/gguf_part.h"

#include <stdio.h>
#include <stdlib.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are loaded as they lie");

static const struct {
    const char *name;
    unsigned bytes;
} types[GGUF_TYPES] = {
    [GGUF_U8] = {"u8",      1},
      [GGUF_I8] = { "i8",     1},
      [GGUF_U16] = { "u16",    2},
    [GGUF_I16] = { "i16",    2},
      [GGUF_U32] = { "u32",    4},
      [GGUF_I32] = { "i32",    4},
    [GGUF_F32] = { "f32",    4},
      [GGUF_BOOL] = { "bool",   1},
      [GGUF_STRING] = { "string", 0},
    [GGUF_ARRAY] = { "array",  0},
      [GGUF_U64] = { "u64",    8},
      [GGUF_I64] = { "i64",    8},
    [GGUF_F64] = { "f64",    8},
};

const char *gguf_type_name(enum gguf_type t)
{
    return types[t].name;
}

unsigned gguf_type_bytes(enum gguf_type t)
{
    return types[t].bytes;
}

uint64_t gguf_measure(enum quant type, const int64_t dim[GGUF_MAX_DIMS])
{
    const struct quant_info *q = &quant_info[type];
    uint64_t bytes;

    if (__builtin_mul_overflow((uint64_t)dim[0] / q->values, q->bytes, &bytes) ||
        __builtin_add_overflow(bytes, q->header, &bytes))
        return 0;
    for (int i = 1; i < GGUF_MAX_DIMS; i++)
        if (__builtin_mul_overflow(bytes, (uint64_t)dim[i], &bytes))
            return 0;
    return bytes;
}

struct gguf_quoted gguf_quote(struct gguf_string s)
{
    struct gguf_quoted q;
    size_t n = 0;

    q.text[n++] = '"';
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (n > sizeof q.text - 10) {
            memcpy(q.text + n, "...", 3);
            n += 3;
            break;
        }
        if (c >= ' ' && c < 0x7f && c != '"' && c != '\\')
            q.text[n++] = (char)c;
        else
            n += (size_t)snprintf(q.text + n, 5, "\\x%02x", c);
    }
    q.text[n++] = '"';
    q.text[n] = 0;
    return q;
}

/* ---- Scalars ------------------------------------------------------------ */

int gguf_as_i64(const struct gguf_value *v, int64_t *out)
{
    unsigned bytes = types[v->type].bytes, unused = 64 - 8 * bytes;
    uint64_t bits = 0;

    switch (v->type) {
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        memcpy(&bits, v->data, bytes);
        *out = (int64_t)(bits << unused) >> unused; /* extends the sign */
        return 0;
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        memcpy(&bits, v->data, bytes);
        if (bits > INT64_MAX)
            return -1;
        *out = (int64_t)bits;
        return 0;
    default:
        return -1;
    }
}

/* Whole numbers beyond 2^53 have no double of their own. */
static const uint64_t exact_limit = 1ull << 53;

int gguf_as_f64(const struct gguf_value *v, double *out)
{
    int64_t whole;
    float f;

    switch (v->type) {
    case GGUF_F32:
        memcpy(&f, v->data, sizeof f);
        *out = (double)f;
        return 0;
    case GGUF_F64:
        memcpy(out, v->data, sizeof *out);
        return 0;
    default:
        if (gguf_as_i64(v, &whole))
            return -1;
        if (whole > (int64_t)exact_limit || whole < -(int64_t)exact_limit)
            return -1;
        *out = (double)whole;
        return 0;
    }
}

int gguf_as_bool(const struct gguf_value *v, int *out)
{
    int64_t whole;

    if (v->type == GGUF_BOOL)
        whole = v->data[0];
    else if (gguf_as_i64(v, &whole))
        return -1;
    if (whole != 0 && whole != 1)
        return -1;
    *out = (int)whole;
    return 0;
}

int gguf_as_string(const struct gguf_value *v, struct gguf_string *out)
{
    const uint8_t *at = v->data;

    if (v->type != GGUF_STRING)
        return -1;
    *out = gguf_next_string(&at);
    return 0;
}

/* ---- Arrays ------------------------------------------------------------- */

int gguf_element(const struct gguf_value *array, uint64_t i, struct gguf_value *out)
{
    const uint8_t *at = array->data;

    if (array->type != GGUF_ARRAY || i >= array->count)
        return -1;
    if (array->element == GGUF_STRING)
        for (uint64_t k = 0; k < i; k++)
            gguf_next_string(&at);
    else
        at += i * types[array->element].bytes;
    *out = (struct gguf_value){ .type = array->element, .data = at };
    return 0;
}

struct gguf_string gguf_next_string(const uint8_t **at)
{
    size_t len = (size_t)gguf_load_u64(*at);
    struct gguf_string s = { (const char *)*at + sizeof(uint64_t), len };

    *at += sizeof(uint64_t) + len;
    return s;
}

/* ---- Names -------------------------------------------------------------- */

static int compare_strings(struct gguf_string a, struct gguf_string b)
{
    int order = memcmp(a.data, b.data, a.len < b.len ? a.len : b.len);

    if (order)
        return order;
    return (a.len > b.len) - (a.len < b.len);
}

/* Equal names stay in file order, so that the later one is the duplicate. */
static int compare_names(const void *a, const void *b)
{
    const struct gguf_name *x = a, *y = b;
    int order = compare_strings(x->name, y->name);

    return order ? order : (x->at > y->at) - (x->at < y->at);
}

int gguf_names_sort(struct gguf_name *names, int n)
{
    if (n > 1)
        qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int i = 1; i < n; i++)
        if (compare_strings(names[i - 1].name, names[i].name) == 0)
            return i;
    return -1;
}

int gguf_names_find(const struct gguf_name *names, int n, struct gguf_string name)
{
    int low = 0, high = n;

    while (low < high) {
        int middle = low + (high - low) / 2;
        int order = compare_strings(names[middle].name, name);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1 - low;
}
