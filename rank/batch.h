/* SPDX-License-Identifier: MIT */
/* rank/batch.h - one step as plain data.
 *
 * A batch is a list of tokens of any number of sequences.  Tokens of one sequence come
 * in ascending positions without gaps, and consecutively in the list.  Nothing about a
 * token's result depends on its neighbours in the batch.
 */
#ifndef RANK_BATCH_H
#define RANK_BATCH_H

#include <stdint.h>

/* How attention is computed for a position (docs/design.md, section 7). */
enum mla_form {
    MLA_EXPANDED, /* keys and values per head, materialised from the latent */
    MLA_ABSORBED, /* in latent space: one shared head                      */
};

struct batch_token {
    int32_t id;
    int sampled; /* id: the one that rank 0 has chosen last for this sequence; it fills it in */
    int seq;
    int64_t pos;
    enum mla_form form;
    int produced; /* sampled, not of the prompt: decides the order of sums */
    int want_logits;
    int32_t bad_layer; /* result: 1 + the layer in which a sum was not a number or out of
                          range (the last + 1: in the output), 0 if all was well */
};

struct batch {
    int n;
    struct batch_token *tokens; /* [n] */
};

#endif
