/* SPDX-License-Identifier: MIT */
/* rank/cache.h - the paged latent cache of one rank.
 *
 * MLA keeps one row per position and layer, whatever the number of heads:
 *
 *     row = [ latent c (kv_lora_rank) | rotated rope key (d_rope) ]          V3: 512 + 64 values
 *
 * Rows lie in pages of 64 positions.  A sequence owns a list of pages, the same list
 * for every layer:
 *
 *     pool     [n_layers][n_pages][64][row_bytes]
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

/* Bytes of one row; of all layers of one page; of a cache of n_pages. */
size_t cache_row_bytes(const struct cache_shape *s);
size_t cache_page_bytes(const struct cache_shape *s);

/* n_positions is rounded up to whole pages; n_sequences may be open at once.
 * Errors: ERR_NOMEM; ERR_USAGE, q8_0 with a latent that 32 does not divide. */
enum err_code cache_create(struct cache **out, const struct cache_shape *s, int64_t n_positions,
                           int n_sequences, struct err *e);
void cache_free(struct cache **c);

/* Makes positions 0 .. n - 1 of sequence `seq` addressable.  Errors: ERR_FULL, too few free
 * pages; nothing is taken then. */
enum err_code cache_reserve(struct cache *c, int seq, int64_t n);

/* Gives all pages of a sequence back. */
void cache_release(struct cache *c, int seq);

/* Positions that free pages still hold. */
int64_t cache_free_positions(const struct cache *c);

/* Stores one row: latent[d_latent], rope[d_rope]. */
void cache_write(struct cache *c, const struct cpu_kernels *k, int layer, int seq, int64_t pos,
                 const float *latent, const float *rope);

/* Reads the rows of page `page` (positions 64*page .. +n-1) of a sequence as
 * [n][d_latent + d_rope] f32. */
void cache_read(const struct cache *c, const struct cpu_kernels *k, int layer, int seq,
                int64_t page, int n, float *rows);

#endif
