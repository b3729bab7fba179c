/* SPDX-License-Identifier: MIT */
/* model/digest.c - see digest.h.  Two FNV-1a hashes of 64 bits with different starts. */
#include "model/digest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/gguf_part.h"

enum { SAMPLE_BYTES = 2048, MAX_SAMPLES = 2048 };

struct digest {
    uint64_t a, b;
};

static void add(struct digest *d, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    for (size_t i = 0; i < n; i++) {
        d->a = (d->a ^ p[i]) * 0x100000001b3u;
        d->b = (d->b ^ p[i]) * 0x100000001b3u;
    }
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

static void add_value(struct digest *d, const struct gguf_value *v)
{
    struct gguf_string s;

    add_number(d, v->type);
    if (v->type == GGUF_STRING) {
        if (gguf_as_string(v, &s) == 0)
            add_string(d, s);
        return;
    }
    if (v->type != GGUF_ARRAY) {
        add(d, v->data, gguf_type_bytes(v->type));
        return;
    }
    add_number(d, v->element);
    add_number(d, v->count);
    if (v->element == GGUF_STRING) {
        const uint8_t *at = v->data;
        for (uint64_t i = 0; i < v->count; i++)
            add_string(d, gguf_next_string(&at));
    } else {
        add(d, v->data, (size_t)v->count * gguf_type_bytes(v->element));
    }
}

/* Places go round with the golden ratio: those of one role, which come again in every block, lie
 * all over their tensors. */
static enum err_code add_sample(struct digest *d, const struct gguf *g, int i, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor_at(g, i);
    uint8_t sample[SAMPLE_BYTES];
    uint64_t n = t->bytes < sizeof sample ? t->bytes : sizeof sample;
    double turn = i * 0.6180339887498949, part = turn - floor(turn);

    TRY(gguf_read(g, t, (uint64_t)(part * (double)(t->bytes - n)), sample, n, e));
    add(d, sample, n);
    return ERR_OK;
}

enum err_code model_digest(const struct gguf *g, char hex[MODEL_DIGEST_SIZE], struct err *e)
{
    struct digest d = { 0xcbf29ce484222325u, 0x9ae16a3b2f90404fu };
    int n = gguf_tensor_count(g);

    for (int i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        add_string(&d, kv->key);
        add_value(&d, &kv->value);
    }
    for (int i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        add(&d, t->name, strlen(t->name));
        add_number(&d, t->type);
        for (int k = 0; k < GGUF_MAX_DIMS; k++)
            add_number(&d, (uint64_t)t->dim[k]);
        add_number(&d, (uint64_t)t->part);
        add_number(&d, t->offset);
    }
    add_number(&d, gguf_total_bytes(g));
    for (int i = 0; i < n; i += n / MAX_SAMPLES + 1)
        TRY(add_sample(&d, g, i, e));
    (void)snprintf(hex, MODEL_DIGEST_SIZE, "%016" PRIx64 "%016" PRIx64, d.a, d.b);
    return ERR_OK;
}
