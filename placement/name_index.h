/* SPDX-License-Identifier: MIT */
/* placement/name_index.h - which names contain which pairs of bytes.
 *
 * One bitmap of the tensors for each pair (hashed).  The literal stretches of a pattern rule
 * out nearly all names before the pattern itself runs.
 */
#ifndef PLACEMENT_NAME_INDEX_H
#define PLACEMENT_NAME_INDEX_H

#include <stdint.h>

#include "placement/pattern.h"

/* A tensor of the file as rules see it. */
struct named_tensor {
    const char *name; /* borrowed */
    int64_t bytes;    /* in the file */
};

enum { NAME_INDEX_PAIRS = 4096 };

struct name_index {
    uint64_t *bits; /* [NAME_INDEX_PAIRS][n_words] */
    int n_words, n_names;
};

/* Errors: ERR_NOMEM. */
enum err_code name_index_init(struct name_index *x, const struct named_tensor *tensors,
                              int n_tensors, struct err *e);
void name_index_free(struct name_index *x);

/* Writes the names that may contain all of the literals: [n_words] bits, all others clear.
 * Returns their number. */
int name_index_candidates(const struct name_index *x, const struct pattern_literals *l,
                          uint64_t *out);

#endif
