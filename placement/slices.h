/* SPDX-License-Identifier: MIT */
/* placement/slices.h - where tensors may be cut (docs/design.md, section 6, Slices).
 *
 * Heads in groups of 256 / gcd(256, d_v), so that attn_output is cut between atoms of 256 columns;
 * the FFN in atoms of 256 columns of its down matrix; the vocabulary in 16 rows.  A quantisation
 * block that such an atom would cut widens it to their least common multiple.
 */
#ifndef PLACEMENT_SLICES_H
#define PLACEMENT_SLICES_H

#include "placement/account.h"

/* `total` heads, columns or rows in units of `unit`, the last of which may be smaller. */
struct slicing {
    int64_t total, unit;
};

struct slicing slicing_of_heads(const struct model *m, int layer);
struct slicing slicing_of_ffn(const struct model *m, int layer); /* dense, or the shared expert */
struct slicing slicing_of_vocab(const struct model *m);

static inline int64_t slicing_units(const struct slicing *s)
{
    return (s->total + s->unit - 1) / s->unit;
}

/* The share of the i-th of n: units floor(i U / n) to floor((i+1) U / n) - 1; may be empty. */
struct plan_range slicing_share(const struct slicing *s, int i, int n);

/* How much of the tensor the share is. */
struct extent slicing_extent(const struct model *m, const struct plan_tensor *t,
                             enum plan_axis axis, struct plan_range r);

/* Numbers of ranks up to `most` that divide the units evenly: "1, 2, 4, 8". */
void slicing_even_counts(const struct slicing *s, int most, char *out, size_t size);

#endif
