/* SPDX-License-Identifier: MIT */
/* placement/account.h - bytes of everything that lies in memory, as the engine maps it.
 *
 * Host memory holds matrices in the x16 form and vectors as f32, every piece rounded up to 64
 * bytes; a GPU holds the bytes of the file.  rank/ carves the same pieces; a test compares.
 */
#ifndef PLACEMENT_ACCOUNT_H
#define PLACEMENT_ACCOUNT_H

#include "placement/plan.h"

/* How much of a tensor: rows and columns of each slab (expert, head), and slabs. */
struct extent {
    int64_t rows, cols, slabs;
};

/* The whole of a tensor in this role. */
struct extent extent_whole(const struct model *m, const struct plan_tensor *t);

/* Bytes in memory, and of the file, of such a piece. */
int64_t account_memory(const struct plan *p, const struct plan_tensor *t, enum device_kind kind,
                       struct extent x);
int64_t account_file(const struct plan_tensor *t, struct extent x);

/* One layer of a latent cache of n_context positions. */
int64_t account_cache_layer(const struct hparams *hp, enum plan_cache_type type, int64_t n_context);
int64_t account_cache_row(const struct hparams *hp, enum plan_cache_type type);

/* The most that a rank computes of any layer, and its rows of the vocabulary. */
struct account_rank {
    int rank, n_ranks, n_threads;
    int64_t heads, columns, vocab;
};

/* Page tables of all sequences, which every rank has. */
int64_t account_page_tables(const struct hparams *hp, const struct plan_options *o);

/* Its activations; rank 0's also hold logits, and what a token is chosen with. */
int64_t account_activations(const struct hparams *hp, const struct plan_options *o,
                            const struct account_rank *r);

/* Inputs, sums and expert buffers in host memory of a rank that attends on a GPU. */
int64_t account_expert_buffers(const struct hparams *hp, const struct plan_options *o);

/* While loading: every thread reads some megabytes at a time. */
int64_t account_staging(int n_threads);

/* Rows of partial sums, and where ranks meet: what a host's ranks share is its first one's, the
 * leader's. */
int64_t account_comm(const struct plan *p, int rank);

/* Kept free for the process itself; for the CUDA context. */
int64_t account_reserve(enum device_kind kind);

#endif
