/* SPDX-License-Identifier: MIT */
#include "cli/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "values are written as they lie in memory: little endian only"
#endif

enum { HEADER_BYTES = 128 };

struct npy_writer {
    FILE *file;
    char *path;
    int64_t missing; /* values still to come */
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

enum err_code npy_create(struct npy_writer **out, const char *path, int64_t rows, int64_t columns,
                         struct err *e)
{
    char header[HEADER_BYTES];
    int64_t values;

    if (rows < 0 || columns < 0 || __builtin_mul_overflow(rows, columns, &values))
        return err_set(e, ERR_IO, "%s: a matrix of %" PRId64 " x %" PRId64 " is too large", path,
                       rows, columns);
    struct npy_writer *w = calloc(1, sizeof *w);
    if (!w || !(w->path = strdup(path))) {
        free(w);
        return err_set(e, ERR_NOMEM, "%s: no memory to write it", path);
    }
    w->missing = values;
    w->file = fopen(path, "wb");
    if (!w->file) {
        free(w->path);
        free(w);
        return err_sys(e, "%s: cannot be written", path);
    }
    make_header(header, rows, columns);
    if (fwrite(header, sizeof header, 1, w->file) != 1) {
        err_sys(e, "%s: cannot be written", path);
        npy_abandon(&w);
        return ERR_IO;
    }
    *out = w;
    return ERR_OK;
}

enum err_code npy_write(struct npy_writer *w, const float *values, int64_t n, struct err *e)
{
    if (n > w->missing)
        return err_set(e, ERR_IO, "%s: more values than the matrix holds", w->path);
    w->missing -= n;
    if (fwrite(values, sizeof *values, (size_t)n, w->file) != (size_t)n)
        return err_sys(e, "%s: cannot be written", w->path);
    return ERR_OK;
}

enum err_code npy_finish(struct npy_writer **w, struct err *e)
{
    enum err_code rc = ERR_OK;

    if ((*w)->missing)
        rc = err_set(e, ERR_IO, "%s: %" PRId64 " values are missing", (*w)->path, (*w)->missing);
    else if (fflush((*w)->file) || ferror((*w)->file))
        rc = err_sys(e, "%s: cannot be written", (*w)->path);
    if (rc != ERR_OK) {
        npy_abandon(w);
        return rc;
    }
    fclose((*w)->file);
    free((*w)->path);
    free(*w);
    *w = NULL;
    return ERR_OK;
}

void npy_abandon(struct npy_writer **w)
{
    struct stat st;

    if (!*w)
        return;
    int regular = fstat(fileno((*w)->file), &st) == 0 && S_ISREG(st.st_mode);
    fclose((*w)->file);
    if (regular)
        unlink((*w)->path);
    free((*w)->path);
    free(*w);
    *w = NULL;
}
