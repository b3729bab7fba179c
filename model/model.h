/* SPDX-License-Identifier: MIT */
/* model/model.h - an open model: its file, its numbers, its tensors by role.
 *
 * model_open verifies that every tensor the architecture needs is there with the
 * right shape and a type the engine can compute.  MTP blocks and tensors that are not
 * used are skipped with one log line.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "model/gguf.h"
#include "model/hparams.h"

/* Roles: tensors.def has the name pattern and shape of each. */
enum tensor_role {
#define X(ROLE, name, n_dims, d0, d1, d2, needed) ROLE_##ROLE,
#include "model/tensors.def"
#undef X
    ROLE_COUNT
};

struct model {
    struct gguf *gguf;
    struct hparams hp;
    /* [n_layers + 1][ROLE_COUNT], NULL where the layer has no such tensor; row n_layers holds
     * the global ones (embedding, output norm, output).  Use model_tensor. */
    const struct gguf_tensor **tensors;
};

/* overrides: [n_overrides] `KEY=TYPE:VALUE` texts, applied before anything is read.
 * *out is set only on success; end with model_close.
 * Errors: those of gguf_open, gguf_override, hparams_read; ERR_FORMAT for a tensor that is
 * missing or misshapen; ERR_UNSUPPORTED for a type that the engine refuses. */
enum err_code model_open(struct model **out, const char *path, unsigned gguf_flags,
                         const char *const *overrides, int n_overrides, struct err *e);
void model_close(struct model **m);

/* The tensor in this role; layer -1 for global ones.  NULL if the layer has none. */
const struct gguf_tensor *model_tensor(const struct model *m, int layer, enum tensor_role role);

/* Reads a whole tensor, turns interleaved types into plain rows, and checks for NaN and Inf
 * when `check` is set (ERR_FORMAT names tensor and row).  out: quant_row_bytes(plain type,
 * dim[0]) * rows bytes; *type receives the plain type. */
enum err_code model_read_rows(const struct model *m, const struct gguf_tensor *t, int64_t first_row,
                              int64_t n_rows, int check, uint8_t *out, struct err *e);

#endif
