/* SPDX-License-Identifier: MIT */
#include "cli/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/draft.h"
#include "cli/output.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "values are written as they lie in memory: little endian only"
#endif

enum { HEADER_BYTES = 128 };

struct npy_writer {
    FILE *file;         /* stdout, or the draft's */
    struct draft draft; /* empty for stdout */
    int64_t missing;    /* values still to come */
};

/* The magic, the version, the length of the rest, and a Python literal padded to HEADER_BYTES
 * with blanks and a newline. */
static void make_header(char header[HEADER_BYTES], int64_t rows, int64_t columns)
{
    enum { PREFIX = 10 };
    static const char start[PREFIX] = "\x93NUMPY\x01\x00\x76\x00";
    _Static_assert(HEADER_BYTES - PREFIX == 0x76, "the length in `start`");

    memcpy(header, start, PREFIX);
    int n =
        snprintf(header + PREFIX, HEADER_BYTES - PREFIX,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }",
                 rows, columns);
    memset(header + PREFIX + n, ' ', (size_t)(HEADER_BYTES - PREFIX - n));
    header[HEADER_BYTES - 1] = '\n';
}

static const char *name(const struct npy_writer *w)
{
    return w->draft.path ? w->draft.path : "standard output";
}

static enum err_code put(struct npy_writer *w, const void *bytes, size_t n, struct err *e)
{
    if (w->file == stdout)
        return output_put(bytes, n, e);
    if (fwrite(bytes, 1, n, w->file) != n)
        return err_sys(e, "%s: cannot be written", name(w));
    return ERR_OK;
}

enum err_code npy_create(struct npy_writer **out, const char *path, int64_t rows, int64_t columns,
                         struct err *e)
{
    char header[HEADER_BYTES];
    int64_t values;

    if (rows < 0 || columns < 0 || __builtin_mul_overflow(rows, columns, &values))
        return err_set(e, ERR_IO, "%s: a matrix of %" PRId64 " x %" PRId64 " is too large", path,
                       rows, columns);
    struct npy_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, ERR_NOMEM, "%s: no memory to write it", path);
    w->missing = values;
    enum err_code rc = ERR_OK;
    if (strcmp(path, "-") == 0)
        w->file = stdout;
    else if ((rc = draft_open(&w->draft, path, e)) == ERR_OK)
        w->file = w->draft.file;
    make_header(header, rows, columns);
    if (rc == ERR_OK)
        rc = put(w, header, sizeof header, e);
    if (rc == ERR_OK)
        *out = w;
    else
        npy_abandon(&w);
    return rc;
}

enum err_code npy_write(struct npy_writer *w, const float *values, int64_t n, struct err *e)
{
    if (n > w->missing)
        return err_set(e, ERR_IO, "%s: more values than the matrix holds", name(w));
    w->missing -= n;
    return put(w, values, (size_t)n * sizeof *values, e);
}

enum err_code npy_finish(struct npy_writer **w, struct err *e)
{
    enum err_code rc;

    if ((*w)->missing)
        rc = err_set(e, ERR_IO, "%s: %" PRId64 " values are missing", name(*w), (*w)->missing);
    else if ((*w)->file == stdout)
        rc = output_flush(e);
    else
        rc = draft_keep(&(*w)->draft, e);
    npy_abandon(w);
    return rc;
}

void npy_abandon(struct npy_writer **w)
{
    if (!*w)
        return;
    draft_drop(&(*w)->draft);
    free(*w);
    *w = NULL;
}
