/* SPDX-License-Identifier: MIT */
/* model/hparams_reader.h - what the steps of hparams_read share; private to model/.
 *
 * The steps run in the order of this header, each on what the earlier ones settled.
 */
#ifndef MODEL_HPARAMS_READER_H
#define MODEL_HPARAMS_READER_H

#include "model/settings.h"

struct hparams_reader {
    const struct gguf *gguf;
    const char *path; /* of the first shard, for messages */
    struct settings set;
    struct hparams *hp; /* being filled */
    int has_bias;       /* the router has a bias: exp_probs_b */
    struct err *err;
};

/* "blk.LAYER.NAME", or NULL if the file has no such tensor. */
const struct gguf_tensor *hparams_tensor(const struct hparams_reader *r, int layer,
                                         const char *name);

/* Fills the error with "FILE: ARCHITECTURE.KEY: TEXT" and returns `code`. */
enum err_code hparams_refuse(const struct hparams_reader *r, enum err_code code,
                             enum setting_key key, const char *text, ...)
    __attribute__((format(printf, 4, 5)));

/* ERR_FORMAT: a tensor has another shape than the keys that `because` names ask for.  d1 is 0
 * for a vector, d2 for a matrix. */
enum err_code hparams_misshapen(const struct hparams_reader *r, const struct gguf_tensor *t,
                                int64_t d0, int64_t d1, int64_t d2, const char *because);

/* hparams_attention.c: the layout, and d_c, d_n, d_r, d_v from shapes and keys. */
enum err_code hparams_find_attention(struct hparams_reader *r);

/* hparams_router.c: experts, gating, groups, weights. */
enum err_code hparams_find_router(struct hparams_reader *r);

/* hparams_rope.c: frequencies, YaRN, query temperature. */
enum err_code hparams_find_rope(struct hparams_reader *r);

#endif
