/* SPDX-License-Identifier: MIT */
/* model/gguf_identity.c - one text for everything that a file's headers say. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/gguf.h"

/* FNV-1a, four times from different beginnings: it tells files apart, it does not guard them. */
struct digest {
    uint64_t lane[4];
};

static void add(struct digest *d, const void *data, size_t n)
{
    const uint8_t *bytes = data;

    for (size_t i = 0; i < n; i++)
        for (int l = 0; l < 4; l++)
            d->lane[l] = (d->lane[l] ^ bytes[i]) * (1099511628211u + 2 * (uint64_t)l);
}

static void add_number(struct digest *d, uint64_t v)
{
    add(d, &v, sizeof v);
}

static void add_string(struct digest *d, struct gguf_string s)
{
    add_number(d, s.len);
    add(d, s.data, s.len);
}

static size_t scalar_bytes(enum gguf_type t)
{
    static const uint8_t bytes[] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_BOOL] = 1, [GGUF_U16] = 2,
        [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,  [GGUF_F32] = 4,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8
    };

    return bytes[t];
}

static void add_value(struct digest *d, const struct gguf_value *v)
{
    struct gguf_string s;
    const uint8_t *at = v->data;

    add_number(d, (uint64_t)v->type);
    if (v->type == GGUF_STRING) {
        if (gguf_as_string(v, &s) == 0)
            add_string(d, s);
    } else if (v->type != GGUF_ARRAY) {
        add(d, v->data, scalar_bytes(v->type));
    } else {
        add_number(d, (uint64_t)v->element);
        add_number(d, v->count);
        for (uint64_t i = 0; v->element == GGUF_STRING && i < v->count; i++)
            add_string(d, gguf_next_string(&at));
        if (v->element != GGUF_STRING && v->element != GGUF_ARRAY)
            add(d, v->data, v->count * scalar_bytes(v->element));
    }
}

void gguf_identity(const struct gguf *g, char text[65])
{
    struct digest d = {
        {14695981039346656037u, 0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0}
    };

    for (int i = 0; i < gguf_kv_count(g); i++) {
        add_string(&d, gguf_kv_at(g, i)->key);
        add_value(&d, &gguf_kv_at(g, i)->value);
    }
    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        add(&d, t->name, strlen(t->name) + 1);
        add_number(&d, (uint64_t)t->type);
        for (int k = 0; k < GGUF_MAX_DIMS; k++)
            add_number(&d, (uint64_t)t->dim[k]);
        add_number(&d, t->offset);
    }
    add_number(&d, gguf_total_bytes(g));
    for (int l = 0; l < 4; l++)
        snprintf(text + 16 * l, 17, "%016" PRIx64, d.lane[l]);
}
