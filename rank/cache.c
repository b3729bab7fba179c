/* SPDX-License-Identifier: MIT */
#include "rank/cache.h"

#include <stdlib.h>
#include <string.h>

struct cache {
    struct cache_shape shape;
    size_t row_bytes;
    int64_t n_pages, pages_per_sequence;
    int32_t *tables; /* [n_sequences][pages_per_sequence]; -1: none */
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

size_t cache_table_bytes(int n_sequences, int64_t pages_per_sequence)
{
    return arena_round((size_t)n_sequences * (size_t)pages_per_sequence * sizeof(int32_t));
}

enum err_code cache_create(struct cache **out, const struct cache_shape *s, int64_t n_pages,
                           int n_sequences, int64_t pages_per_sequence, struct err *e)
{
    size_t pool = (size_t)n_pages * cache_page_bytes(s);
    size_t tables = cache_table_bytes(n_sequences, pages_per_sequence);

    if (s->type == CACHE_Q8_0 && s->d_latent % 32)
        return err_set(
            e, ERR_USAGE,
            "cache type q8_0 needs a latent that 32 divides, this model's is %lld; use f16",
            (long long)s->d_latent);
    struct cache *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_NOMEM, "no memory for a latent cache");
    *c = (struct cache){ .shape = *s,
                         .row_bytes = cache_row_bytes(s),
                         .n_pages = n_pages,
                         .pages_per_sequence = pages_per_sequence };
    enum err_code rc = arena_map(&c->pool, pool + tables, "latent cache", e);
    if (rc != ERR_OK) {
        cache_free(&c);
        return rc;
    }
    c->tables = (int32_t *)(void *)(c->pool.base + pool);
    for (int i = 0; i < n_sequences; i++)
        cache_clear(c, i);
    *out = c;
    return ERR_OK;
}

void cache_free(struct cache **c)
{
    if (!*c)
        return;
    arena_unmap(&(*c)->pool);
    free(*c);
    *c = NULL;
}

/* ---- Pages -------------------------------------------------------------- */

void cache_set_page(struct cache *c, int seq, int64_t index, int32_t page)
{
    c->tables[seq * c->pages_per_sequence + index] = page;
}

void cache_clear(struct cache *c, int seq)
{
    for (int64_t i = 0; i < c->pages_per_sequence; i++)
        cache_set_page(c, seq, i, -1);
}

int cache_maps(const struct cache *c, int seq, int64_t n)
{
    const int32_t *table = c->tables + seq * c->pages_per_sequence;

    for (int64_t i = 0; i < cache_pages(n); i++)
        if (table[i] < 0)
            return 0;
    return 1;
}

static uint8_t *page_at(const struct cache *c, int layer, int32_t page)
{
    size_t index = (size_t)layer * (size_t)c->n_pages + (size_t)page;

    return c->pool.base + index * CACHE_PAGE * c->row_bytes;
}

void cache_copy_page(struct cache *c, int32_t from, int32_t to)
{
    for (int l = 0; l < c->shape.n_layers && from != to; l++)
        memcpy(page_at(c, l, to), page_at(c, l, from), CACHE_PAGE * c->row_bytes);
}

void cache_zero_page(struct cache *c, int32_t page)
{
    for (int l = 0; l < c->shape.n_layers; l++)
        memset(page_at(c, l, page), 0, CACHE_PAGE * c->row_bytes);
}

static uint8_t *row_at(const struct cache *c, int layer, int seq, int64_t pos)
{
    int32_t page = c->tables[seq * c->pages_per_sequence + pos / CACHE_PAGE];

    return page_at(c, layer, page) + (size_t)(pos % CACHE_PAGE) * c->row_bytes;
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
