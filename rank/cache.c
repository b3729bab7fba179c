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

static const char *const type_names[] = {
    [CACHE_F16] = "f16",
    [CACHE_BF16] = "bf16",
    [CACHE_F32] = "f32",
    [CACHE_Q8_0] = "q8_0",
};
enum { N_TYPES = sizeof type_names / sizeof *type_names };

int cache_type_by_name(const char *name)
{
    for (int i = 0; i < N_TYPES; i++)
        if (!strcmp(name, type_names[i]))
            return i;
    return -1;
}

const char *cache_type_name(enum cache_type t)
{
    return type_names[t];
}

/* Bytes of n latent values. */
static size_t latent_bytes(enum cache_type t, int64_t n)
{
    size_t values = (size_t)n;

    if (t == CACHE_Q8_0)
        return values + values / 32 * sizeof(uint16_t);
    return values * (t == CACHE_F32 ? sizeof(float) : sizeof(uint16_t));
}

/* What the rope key is stored as. */
static enum cache_type rope_type(enum cache_type t)
{
    return t == CACHE_Q8_0 ? CACHE_F16 : t;
}

size_t cache_row_bytes(const struct cache_shape *s)
{
    size_t bytes = latent_bytes(s->type, s->d_latent) + latent_bytes(rope_type(s->type), s->d_rope);

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

    if (s->type == CACHE_Q8_0 && s->d_latent % 32)
        return err_set(
            e, ERR_USAGE,
            "cache type q8_0 needs a latent that 32 divides, this model's is %lld; use f16",
            (long long)s->d_latent);
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

static void store_q8_0(const struct cpu_kernels *k, const float *x, int64_t n, uint8_t *row)
{
    uint16_t *scales = (uint16_t *)(void *)(row + n);
    float d, s;
    int16_t sum[2];

    for (int64_t i = 0; i < n; i += 32) {
        k->quantize(x + i, 32, (int8_t *)row + i, &d, &s, sum);
        scales[i / 32] = half_from_float(d);
    }
}

static void store(const struct cpu_kernels *k, enum cache_type type, const float *x, int64_t n,
                  uint8_t *row)
{
    switch (type) {
    case CACHE_F32:
        memcpy(row, x, sizeof(float) * (size_t)n);
        break;
    case CACHE_F16:
        k->f32_to_half((uint16_t *)(void *)row, x, n);
        break;
    case CACHE_BF16:
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)(void *)row)[i] = bf16_from_float(x[i]);
        break;
    case CACHE_Q8_0:
        store_q8_0(k, x, n, row);
        break;
    }
}

void cache_write(struct cache *c, const struct cpu_kernels *k, int layer, int seq, int64_t pos,
                 const float *latent, const float *rope)
{
    const struct cache_shape *s = &c->shape;
    uint8_t *row = row_at(c, layer, seq, pos);

    store(k, s->type, latent, s->d_latent, row);
    store(k, rope_type(s->type), rope, s->d_rope, row + latent_bytes(s->type, s->d_latent));
}

static void load(const struct cpu_kernels *k, enum cache_type type, const uint8_t *row, int64_t n,
                 float *out)
{
    const uint16_t *words = (const uint16_t *)(const void *)row;
    const uint16_t *scales = (const uint16_t *)(const void *)(row + n);

    switch (type) {
    case CACHE_F32:
        memcpy(out, row, sizeof(float) * (size_t)n);
        break;
    case CACHE_F16:
        k->half_to_f32(out, words, n);
        break;
    case CACHE_BF16:
        for (int64_t i = 0; i < n; i++)
            out[i] = bf16_to_float(words[i]);
        break;
    case CACHE_Q8_0:
        for (int64_t i = 0; i < n; i++)
            out[i] = half_to_float(scales[i / 32]) * (float)((const int8_t *)row)[i];
        break;
    }
}

void cache_read(const struct cache *c, const struct cpu_kernels *k, int layer, int seq,
                int64_t page, int n, float *rows)
{
    const struct cache_shape *s = &c->shape;
    const uint8_t *row = row_at(c, layer, seq, page * CACHE_PAGE);
    size_t rope_at = latent_bytes(s->type, s->d_latent);

    for (int i = 0; i < n; i++, row += c->row_bytes, rows += s->d_latent + s->d_rope) {
        load(k, s->type, row, s->d_latent, rows);
        load(k, rope_type(s->type), row + rope_at, s->d_rope, rows + s->d_latent);
    }
}
