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

/* A rectangle of a tensor. */
struct area {
    int64_t row, n_rows, col, n_cols;
};

static enum err_code check_rows(const struct model *m, const struct gguf_tensor *t, struct area a,
                                const uint8_t *rows, struct err *e)
{
    enum quant plain = quant_info[t->type].plain;
    size_t row_bytes = quant_row_bytes(plain, (size_t)a.n_cols);

    for (int64_t i = 0; i < a.n_rows; i++) {
        int64_t at = quant_find_nonfinite(plain, rows + (size_t)i * row_bytes, a.n_cols);
        long long row = a.row + i, col = a.col + at;
        if (at >= 0)
            return err_set(e, ERR_FORMAT,
                           "%s: %s: NaN or infinity in row %lld, column %lld; download or convert "
                           "the file again",
                           gguf_part_path(m->gguf, t->part), t->name, row, col);
    }
    return ERR_OK;
}

/* The area as it is in the file, without what stands beside it.  Rows of an interleaved type come
 * in groups: the headers of the group's rows, then blocks of all of them for the same columns. */
static enum err_code read_file_rows(const struct model *m, const struct gguf_tensor *t,
                                    struct area a, uint8_t *out, struct err *e)
{
    const struct quant_info *info = &quant_info[t->type];
    size_t group = info->interleave;
    size_t from = group * quant_row_bytes(t->type, (size_t)t->dim[0]);
    size_t to = group * quant_row_bytes(t->type, (size_t)a.n_cols), header = group * info->header;
    size_t skipped = group * (size_t)a.col / info->values * info->bytes;
    uint64_t at = (uint64_t)a.row / group * from;

    if (a.n_cols == t->dim[0])
        return gguf_read(m->gguf, t, at, out, (uint64_t)a.n_rows / group * from, e);
    for (int64_t row = 0; row < a.n_rows; row += (int64_t)group, at += from, out += to) {
        if (header > 0)
            TRY(gguf_read(m->gguf, t, at, out, header, e));
        TRY(gguf_read(m->gguf, t, at + header + skipped, out + header, to - header, e));
    }
    return ERR_OK;
}

static enum err_code read_interleaved(const struct model *m, const struct gguf_tensor *t,
                                      struct area a, uint8_t *out, struct err *e)
{
    const struct quant_info *info = &quant_info[t->type];
    size_t file_row = quant_row_bytes(t->type, (size_t)a.n_cols);
    size_t plain_row = quant_row_bytes(info->plain, (size_t)a.n_cols);
    uint8_t *groups = malloc((size_t)a.n_rows * file_row);

    if (!groups)
        return err_set(e, ERR_NOMEM, "%s: no memory to take apart its rows", t->name);
    enum err_code rc = read_file_rows(m, t, a, groups, e);
    for (int64_t row = 0; rc == ERR_OK && row < a.n_rows; row += info->interleave)
        quant_deinterleave(t->type, groups + (size_t)row * file_row, a.n_cols,
                           out + (size_t)row * plain_row);
    free(groups);
    return rc;
}

static int within(int64_t first, int64_t n, int64_t total, int64_t unit)
{
    return first >= 0 && n >= 0 && first <= total && n <= total - first && first % unit == 0 &&
           n % unit == 0;
}

enum err_code model_read_columns(const struct model *m, const struct gguf_tensor *t,
                                 int64_t first_row, int64_t n_rows, int64_t first_col,
                                 int64_t n_cols, int check, uint8_t *out, struct err *e)
{
    const struct quant_info *info = &quant_info[t->type];
    struct area a = { first_row, n_rows, first_col, n_cols };
    int64_t total = tensor_rows(t);

    if (!within(first_row, n_rows, total, info->interleave))
        return err_set(e, ERR_USAGE, "%s: rows %lld and %lld more of %lld, in groups of %u",
                       t->name, (long long)first_row, (long long)n_rows, (long long)total,
                       info->interleave);
    if (!within(first_col, n_cols, t->dim[0], info->values))
        return err_set(e, ERR_USAGE, "%s: columns %lld and %lld more of %lld, in blocks of %u",
                       t->name, (long long)first_col, (long long)n_cols, (long long)t->dim[0],
                       info->values);
    if (n_rows == 0 || n_cols == 0)
        return ERR_OK;
    if (info->interleave > 1)
        TRY(read_interleaved(m, t, a, out, e));
    else
        TRY(read_file_rows(m, t, a, out, e));
    return check ? check_rows(m, t, a, out, e) : ERR_OK;
}

enum err_code model_read_rows(const struct model *m, const struct gguf_tensor *t, int64_t first_row,
                              int64_t n_rows, int check, uint8_t *out, struct err *e)
{
    return model_read_columns(m, t, first_row, n_rows, 0, t->dim[0], check, out, e);
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
