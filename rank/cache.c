/* SPDX-License-Identifier: MIT */
#include "rank/cache.h"

#include <stdlib.h>
#include <string.h>

struct sequence {
    int32_t *pages; /* [cap], n used */
    int64_t n, cap;
};

struct cache {
    struct cache_shape shape;
    size_t row_bytes;
    int64_t n_pages, n_free;
    int32_t *free_pages; /* [n_pages], the first n_free are free */
    int n_sequences;
    struct sequence *seqs;
    struct arena pool;
};

static const struct {
    const char *name;
    size_t value_bytes; /* per value, scales apart */
} types[] = {
    [CACHE_F16] = {"f16",   2},
    [CACHE_BF16] = { "bf16", 2},
    [CACHE_F32] = { "f32",  4},
    [CACHE_Q8_0] = { "q8_0", 1},
};

int cache_type_by_name(const char *name)
{
    for (int i = 0; i < (int)(sizeof types / sizeof *types); i++)
        if (!strcmp(name, types[i].name))
            return i;
    return -1;
}

const char *cache_type_name(enum cache_type t)
{
    return types[t].name;
}

static size_t row_values(const struct cache_shape *s)
{
    return (size_t)(s->d_latent + s->d_rope);
}

size_t cache_row_bytes(const struct cache_shape *s)
{
    size_t bytes = row_values(s) * types[s->type].value_bytes;

    if (s->type == CACHE_Q8_0)
        bytes += row_values(s) / 32 * sizeof(uint16_t);
    return (bytes + 3) / 4 * 4;
}

size_t cache_page_bytes(const struct cache_shape *s)
{
    return (size_t)s->n_layers * CACHE_PAGE * cache_row_bytes(s);
}

enum err_code cache_create(struct cache **out, const struct cache_shape *s, int64_t n_positions,
                           int n_sequences, struct err *e)
{
    enum err_code rc = ERR_NOMEM;
    struct cache *c = NULL;

    if (s->type == CACHE_Q8_0 && (s->d_latent % 32 || s->d_rope % 32))
        return err_set(e, ERR_USAGE,
                       "cache type q8_0 needs parts that 32 divides, this model has %lld and %lld; "
                       "use f16",
                       (long long)s->d_latent, (long long)s->d_rope);
    c = calloc(1, sizeof *c);
    if (!c)
        goto out;
    c->shape = *s;
    c->row_bytes = cache_row_bytes(s);
    c->n_pages = (n_positions + CACHE_PAGE - 1) / CACHE_PAGE;
    c->n_free = c->n_pages;
    c->n_sequences = n_sequences;
    c->free_pages = calloc((size_t)c->n_pages, sizeof *c->free_pages);
    c->seqs = calloc((size_t)n_sequences, sizeof *c->seqs);
    if (!c->free_pages || !c->seqs)
        goto out;
    for (int64_t i = 0; i < c->n_pages; i++) /* page 0 is taken first */
        c->free_pages[i] = (int32_t)(c->n_pages - 1 - i);
    rc = arena_map(&c->pool, (size_t)c->n_pages * cache_page_bytes(s), "latent cache", e);
    if (rc != ERR_OK) {
        cache_free(&c);
        return rc;
    }
    *out = c;
    return ERR_OK;
out:
    cache_free(&c);
    return err_set(e, rc, "no memory for the page lists of the latent cache");
}

void cache_free(struct cache **c)
{
    if (!*c)
        return;
    for (int i = 0; (*c)->seqs && i < (*c)->n_sequences; i++)
        free((*c)->seqs[i].pages);
    free((*c)->seqs);
    free((*c)->free_pages);
    arena_unmap(&(*c)->pool);
    free(*c);
    *c = NULL;
}

enum err_code cache_reserve(struct cache *c, int seq, int64_t n)
{
    struct sequence *s = &c->seqs[seq];
    int64_t want = (n + CACHE_PAGE - 1) / CACHE_PAGE;

    if (want - s->n > c->n_free)
        return ERR_FULL;
    if (want > s->cap) {
        int64_t cap = 2 * want;
        int32_t *pages = realloc(s->pages, (size_t)cap * sizeof *pages);
        if (!pages)
            return ERR_FULL;
        s->pages = pages;
        s->cap = cap;
    }
    while (s->n < want)
        s->pages[s->n++] = c->free_pages[--c->n_free];
    return ERR_OK;
}

void cache_release(struct cache *c, int seq)
{
    struct sequence *s = &c->seqs[seq];

    while (s->n > 0)
        c->free_pages[c->n_free++] = s->pages[--s->n];
}

int64_t cache_free_positions(const struct cache *c)
{
    return c->n_free * CACHE_PAGE;
}

static uint8_t *row_at(const struct cache *c, int layer, int seq, int64_t pos)
{
    size_t page = (size_t)c->seqs[seq].pages[pos / CACHE_PAGE];
    size_t row =
        ((size_t)layer * (size_t)c->n_pages + page) * CACHE_PAGE + (size_t)(pos % CACHE_PAGE);

    return c->pool.base + row * c->row_bytes;
}

/* ---- Rows to and from the cache's types --------------------------------- */

static void store_q8_0(const struct cpu_kernels *k, const float *x, int64_t n, int8_t *q,
                       uint16_t *scales)
{
    float d, s;
    int16_t sum[2];

    for (int64_t i = 0; i < n; i += 32) {
        k->quantize(x + i, 32, q + i, &d, &s, sum);
        scales[i / 32] = half_from_float(d);
    }
}

static void store(const struct cpu_kernels *k, enum cache_type type, const float *x, int64_t n,
                  int64_t at, int64_t width, uint8_t *row)
{
    switch (type) {
    case CACHE_F32:
        memcpy(row + 4 * at, x, 4 * (size_t)n);
        break;
    case CACHE_F16:
        k->f32_to_half((uint16_t *)(void *)row + at, x, n);
        break;
    case CACHE_BF16:
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)(void *)row)[at + i] = bf16_from_float(x[i]);
        break;
    case CACHE_Q8_0:
        store_q8_0(k, x, n, (int8_t *)row + at, (uint16_t *)(void *)(row + width) + at / 32);
        break;
    }
}

void cache_write(struct cache *c, const struct cpu_kernels *k, int layer, int seq, int64_t pos,
                 const float *latent, const float *rope)
{
    uint8_t *row = row_at(c, layer, seq, pos);
    int64_t n = c->shape.d_latent, width = n + c->shape.d_rope;

    store(k, c->shape.type, latent, n, 0, width, row);
    store(k, c->shape.type, rope, c->shape.d_rope, n, width, row);
}

static void load(const struct cpu_kernels *k, enum cache_type type, const uint8_t *row,
                 int64_t width, float *out)
{
    const uint16_t *words = (const uint16_t *)(const void *)row;
    const uint16_t *scales = (const uint16_t *)(const void *)(row + width);

    switch (type) {
    case CACHE_F32:
        memcpy(out, row, 4 * (size_t)width);
        break;
    case CACHE_F16:
        k->half_to_f32(out, words, width);
        break;
    case CACHE_BF16:
        for (int64_t i = 0; i < width; i++)
            out[i] = bf16_to_float(words[i]);
        break;
    case CACHE_Q8_0:
        for (int64_t b = 0; b < width / 32; b++) {
            float d = half_to_float(scales[b]);
            for (int64_t i = 32 * b; i < 32 * b + 32; i++)
                out[i] = d * (float)((const int8_t *)row)[i];
        }
        break;
    }
}

void cache_read(const struct cache *c, const struct cpu_kernels *k, int layer, int seq,
                int64_t page, int n, float *rows)
{
    int64_t width = c->shape.d_latent + c->shape.d_rope;
    const uint8_t *row = row_at(c, layer, seq, page * CACHE_PAGE);

    for (int i = 0; i < n; i++)
        load(k, c->shape.type, row + (size_t)i * c->row_bytes, width, rows + i * width);
}
