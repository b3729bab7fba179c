/* SPDX-License-Identifier: MIT */
/* cli/npy.h - writes one float32 matrix as a NumPy file (format 1.0, C order).
 *
 * The shape goes first, rows follow as they are made, so that a matrix larger than memory can
 * be written.
 */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include <stdint.h>

#include "base/err.h"

struct npy_writer;

/* Creates (truncates) `path` for a matrix [rows, columns].  *out is set only on success; end
 * with npy_finish or npy_abandon.  Errors: ERR_IO, ERR_NOMEM. */
enum err_code npy_create(struct npy_writer **out, const char *path, int64_t rows, int64_t columns,
                         struct err *e);

/* Appends n values.  Errors: ERR_IO. */
enum err_code npy_write(struct npy_writer *w, const float *values, int64_t n, struct err *e);

/* Closes.  *w becomes NULL; on failure the file is removed.
 * Errors: ERR_IO, also when more or fewer values came than the shape holds. */
enum err_code npy_finish(struct npy_writer **w, struct err *e);

/* Gives up: closes and removes the file (if it is a regular one).  NULL is fine. */
void npy_abandon(struct npy_writer **w);

#endif
