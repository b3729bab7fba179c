/* SPDX-License-Identifier: MIT */
/* model/layout_convert.h - rewrites how a file stores attention's K and V projections. */
#ifndef MODEL_LAYOUT_CONVERT_H
#define MODEL_LAYOUT_CONVERT_H

#include "model/hparams.h"

enum layout_convert_flags {
    LAYOUT_OVERWRITE = 1, /* replace `out` if it exists */
};

/* Writes the model in `in` (a split one becomes one file) to `out` in the layout `to`: the
 * projections of every block, and the keys that describe them.  All other tensors and keys
 * are copied byte for byte.
 *
 * attn_v_b and the V rows of attn_kv_b are the same rows and are moved as they are.  K is
 * transposed between attn_k_b and attn_kv_b, which float types survive exactly; blocks of a
 * quantised type cannot be turned and become F16.  attn_kv_b made of two types takes one
 * that holds both.  Every such change is logged, as is progress.
 *
 * The file takes the name `out` at the end (base/draft.h), so that `out` is never half a file.
 * Errors: those of gguf_open and hparams_read; ERR_USAGE, `out` exists, or is
 * a device or folder; ERR_FORMAT, a block
 * whose projections are incomplete or misshapen; ERR_UNSUPPORTED, their type cannot be
 * decoded; ERR_NUMERIC, a weight does not fit into F16; ERR_IO; ERR_NOMEM. */
enum err_code layout_convert(const char *in, const char *out, enum attn_layout to, unsigned flags,
                             struct err *e);

#endif
