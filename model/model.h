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

/* Reads rows [first_row, first_row + n_rows) of a tensor, its dimensions above the first
 * counted as one, as rows of the plain type quant_info[t->type].plain: interleaved types are
 * taken apart, which needs first_row and n_rows in whole groups of quant_info[].interleave.
 * out: n_rows * quant_row_bytes(plain type, dim[0]) bytes.  With `check` every row is searched
 * for NaN and Inf.  Safe from several threads.
 * Errors: ERR_IO; ERR_NOMEM; ERR_FORMAT, a value that is not finite: names tensor and row;
 * ERR_USAGE, rows that the tensor does not have or that cut a group. */
enum err_code model_read_rows(const struct model *m, const struct gguf_tensor *t, int64_t first_row,
                              int64_t n_rows, int check, uint8_t *out, struct err *e);

/* Columns [first_col, first_col + n_cols) of the same rows, in whole blocks of the type: rows of
 * n_cols, each with its header where the type has one.  Only these bytes are read. */
enum err_code model_read_columns(const struct model *m, const struct gguf_tensor *t,
                                 int64_t first_row, int64_t n_rows, int64_t first_col,
                                 int64_t n_cols, int check, uint8_t *out, struct err *e);

/* The same rows as f32: out has n_rows * dim[0] values.  For norms, biases and routers. */
enum err_code model_read_floats(const struct model *m, const struct gguf_tensor *t,
                                int64_t first_row, int64_t n_rows, float *out, struct err *e);

/* Rows of a tensor: the product of its dimensions above the first. */
static inline int64_t tensor_rows(const struct gguf_tensor *t)
{
    return t->dim[1] * t->dim[2] * t->dim[3];
}

#endif
