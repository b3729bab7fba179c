/* SPDX-License-Identifier: MIT */
/* model/model.c - see model.h. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#include "model/model_tensors.h"

/* ---- Opening ------------------------------------------------------------ */

enum err_code model_open(struct model **out, const char *path, unsigned gguf_flags,
                         const char *const *overrides, int n_overrides, struct err *e)
{
    struct model *m = calloc(1, sizeof *m);
    enum err_code rc;

    if (!m)
        return err_set(e, ERR_NOMEM, "%s: no memory for a model", path);
    rc = gguf_open(&m->gguf, path, gguf_flags, e);
    for (int i = 0; rc == ERR_OK && i < n_overrides; i++)
        rc = gguf_override(m->gguf, overrides[i], e);
    if (rc == ERR_OK)
        rc = hparams_read(&m->hp, m->gguf, e);
    if (rc == ERR_OK)
        rc = model_find_tensors(m, e);
    if (rc == ERR_OK) {
        *out = m;
        m = NULL; /* the caller's now */
    }
    model_close(&m);
    return rc;
}

void model_close(struct model **m)
{
    if (!*m)
        return;
    free(m[0]->tensors);
    hparams_free(&m[0]->hp);
    gguf_close(&m[0]->gguf);
    free(*m);
    *m = NULL;
}

const struct gguf_tensor *model_tensor(const struct model *m, int layer, enum tensor_role role)
{
    int row = layer < 0 ? m->hp.n_layers : layer;
    return m->tensors[(size_t)row * ROLE_COUNT + role];
}

/* ---- Reading ------------------------------------------------------------ */

static enum err_code check_rows(const struct model *m, const struct gguf_tensor *t,
                                int64_t first_row, int64_t n_rows, const uint8_t *rows,
                                struct err *e)
{
    enum quant plain = quant_info[t->type].plain;
    size_t row_bytes = quant_row_bytes(plain, (size_t)t->dim[0]);

    for (int64_t i = 0; i < n_rows; i++) {
        int64_t at = quant_find_nonfinite(plain, rows + (size_t)i * row_bytes, t->dim[0]);
        long long row = first_row + i;
        if (at >= 0)
            return err_set(e, ERR_FORMAT,
                           "%s: %s: NaN or infinity in row %lld, column %lld; download or convert "
                           "the file again",
                           gguf_part_path(m->gguf, t->part), t->name, row, (long long)at);
    }
    return ERR_OK;
}

static enum err_code read_interleaved(const struct model *m, const struct gguf_tensor *t,
                                      int64_t first_row, int64_t n_rows, uint8_t *out,
                                      struct err *e)
{
    const struct quant_info *info = &quant_info[t->type];
    size_t file_row = quant_row_bytes(t->type, (size_t)t->dim[0]);
    size_t plain_row = quant_row_bytes(info->plain, (size_t)t->dim[0]);
    size_t group_bytes = file_row * info->interleave;
    uint8_t *groups = malloc((size_t)n_rows * file_row);
    enum err_code rc;

    if (!groups)
        return err_set(e, ERR_NOMEM, "%s: no memory to take apart its rows", t->name);
    rc = gguf_read(m->gguf, t, (uint64_t)first_row * file_row, groups, (uint64_t)n_rows * file_row,
                   e);
    for (int64_t row = 0; rc == ERR_OK && row < n_rows; row += info->interleave)
        quant_deinterleave(t->type, groups + (size_t)row / info->interleave * group_bytes,
                           t->dim[0], out + (size_t)row * plain_row);
    free(groups);
    return rc;
}

enum err_code model_read_rows(const struct model *m, const struct gguf_tensor *t, int64_t first_row,
                              int64_t n_rows, int check, uint8_t *out, struct err *e)
{
    uint32_t group = quant_info[t->type].interleave;
    int64_t total = tensor_rows(t);
    uint64_t row_bytes = quant_row_bytes(t->type, (size_t)t->dim[0]);

    if (first_row < 0 || n_rows < 0 || first_row > total || n_rows > total - first_row ||
        first_row % group != 0 || n_rows % group != 0)
        return err_set(e, ERR_USAGE, "%s: rows %lld and %lld more of %lld, in groups of %u",
                       t->name, (long long)first_row, (long long)n_rows, (long long)total, group);
    if (n_rows == 0)
        return ERR_OK;
    if (group > 1)
        TRY(read_interleaved(m, t, first_row, n_rows, out, e));
    else
        TRY(gguf_read(m->gguf, t, (uint64_t)first_row * row_bytes, out,
                      (uint64_t)n_rows * row_bytes, e));
    return check ? check_rows(m, t, first_row, n_rows, out, e) : ERR_OK;
}

enum err_code model_read_floats(const struct model *m, const struct gguf_tensor *t,
                                int64_t first_row, int64_t n_rows, float *out, struct err *e)
{
    enum quant plain = quant_info[t->type].plain;
    size_t row_bytes = quant_row_bytes(plain, (size_t)t->dim[0]);
    uint8_t *rows = malloc(n_rows > 0 ? (size_t)n_rows * row_bytes : 1);
    enum err_code rc;

    if (!rows)
        return err_set(e, ERR_NOMEM, "%s: no memory to decode its rows", t->name);
    rc = model_read_rows(m, t, first_row, n_rows, 0, rows, e);
    for (int64_t i = 0; rc == ERR_OK && i < n_rows; i++)
        quant_dequantize_row(plain, rows + (size_t)i * row_bytes, t->dim[0], out + i * t->dim[0]);
    free(rows);
    return rc;
}
