/* SPDX-License-Identifier: MIT */
/* rank/cache.h - the paged latent cache of one rank.
 *
 * MLA keeps one row per position and layer, whatever the number of heads:
 *
 *     row = [ latent c (kv_lora_rank) | rotated rope key (d_rope) ]          V3: 512 + 64 values
 *
 * Rows lie in pages of 64 positions.  A sequence has a table of pages, the same for every
 * layer:
 *
 *     pool     [n_layers][n_pages][64][row_bytes]
 *     tables   [n_sequences][pages_per_sequence], behind it
 *
 * The cache obeys: which page belongs to whom is decided by whoever drives the ranks
 * (rank/pager.h, rank/step.h).  n_layers are those that this rank attends in.
 *
 * Types: f32, f16, bf16, and q8_0: 8-bit integers with an f16 scale per 32 for the latent, while
 * the rope key stays f16, since its 64 values would bring more error than the 512 of the latent:
 *
 *     q8_0 row = [ d_latent int8 | d_latent / 32 f16 scales | d_rope f16 ]       V3: 672 bytes
 *
 * Called by the rank's own thread between steps; during a step the threads of the team
 * write distinct rows and read finished ones.
 */
#ifndef RANK_CACHE_H
#define RANK_CACHE_H

#include "base/arena.h"
#include "kernels/cpu/cpu_kernels.h"

enum cache_type { CACHE_F16, CACHE_BF16, CACHE_F32, CACHE_Q8_0 };
enum { CACHE_PAGE = 64 };

struct cache_shape {
    int n_layers;
    int64_t d_latent, d_rope;
    enum cache_type type;
};

struct cache;

/* The type called `name` ("f16", "bf16", "f32", "q8_0"), or -1. */
int cache_type_by_name(const char *name);
const char *cache_type_name(enum cache_type t);

/* Bytes of one row; of all layers of one page; of the tables of a cache. */
size_t cache_row_bytes(const struct cache_shape *s);
size_t cache_page_bytes(const struct cache_shape *s);
size_t cache_table_bytes(int n_sequences, int64_t pages_per_sequence);

/* n_sequences tables of pages_per_sequence pages each, all empty.
 * Errors: ERR_NOMEM; ERR_USAGE, q8_0 with a latent that 32 does not divide. */
enum err_code cache_create(struct cache **out, const struct cache_shape *s, int64_t n_pages,
                           int n_sequences, int64_t pages_per_sequence, struct err *e);
void cache_free(struct cache **c);

/* Pages of the pool for so many positions. */
static inline int64_t cache_pages(int64_t n_positions)
{
    return (n_positions + CACHE_PAGE - 1) / CACHE_PAGE;
}

/* Positions 64 * index .. of a sequence are in `page` from now on; several sequences may map
 * one page.  All indices are within what cache_create was told. */
void cache_set_page(struct cache *c, int seq, int64_t index, int32_t page);

/* Empties the table of a sequence. */
void cache_clear(struct cache *c, int seq);

/* Page `to` becomes a copy of `from`; a page becomes zeros.  In all layers. */
void cache_copy_page(struct cache *c, int32_t from, int32_t to);
void cache_zero_page(struct cache *c, int32_t page);

/* Whether every page of positions 0 .. n - 1 is mapped. */
int cache_maps(const struct cache *c, int seq, int64_t n);

/* Stores one row: latent[d_latent], rope[d_rope]. */
void cache_write(struct cache *c, const struct cpu_kernels *k, int layer, int seq, int64_t pos,
                 const float *latent, const float *rope);

/* Reads the rows of page `page` (positions 64*page .. +n-1) of a sequence as
 * [n][d_latent + d_rope] f32. */
void cache_read(const struct cache *c, const struct cpu_kernels *k, int layer, int seq,
                int64_t page, int n, float *rows);

#endif
