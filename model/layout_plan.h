/* SPDX-License-Identifier: MIT */
/* model/layout_plan.h - which tensors a file in another layout has and what each is made of;
 * private to model/layout_*.c. */
#ifndef MODEL_LAYOUT_PLAN_H
#define MODEL_LAYOUT_PLAN_H

#include "model/model.h"

enum layout_how {
    PIECE_COPY, /* the bytes of `from`                       */
    PIECE_K,    /* attn_k_b of attn_kv_b                     */
    PIECE_V,    /* attn_v_b of attn_kv_b                     */
    PIECE_KV,   /* attn_kv_b of attn_k_b and attn_v_b        */
};

/* One tensor of the new file. */
struct layout_piece {
    enum layout_how how;
    char name[256];
    enum quant type;
    int n_dims;
    int64_t dim[GGUF_MAX_DIMS];
    const struct gguf_tensor *from, *from_v; /* borrowed; from_v: of PIECE_KV only */
};

/* A change of precision that befell some blocks, for one line at the end. */
struct layout_change {
    char text[160];
    int n_blocks;
};

struct layout_plan {
    const struct model *m; /* only its file and numbers: tensors are not looked for by role */
    enum attn_layout to;
    struct layout_piece *pieces; /* [n_pieces], owned, in the order of the new file */
    int n_pieces;
    struct layout_change changes[8];
    int n_changes;
};

/* Fills plan->pieces and changes; m and to are given.  End with layout_plan_free.
 * Errors: ERR_FORMAT, ERR_UNSUPPORTED, ERR_NOMEM as layout_convert's. */
enum err_code layout_plan_make(struct layout_plan *plan, struct err *e);
void layout_plan_free(struct layout_plan *plan);

#endif
