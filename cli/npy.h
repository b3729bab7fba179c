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

/* Begins a matrix [rows, columns] in `path`, which is complete or not there (base/draft.h); "-" is
 * standard output.  *out is set only on success; end with npy_finish or npy_abandon.
 * Errors: ERR_IO, ERR_NOMEM; of standard output also those of output_write. */
enum err_code npy_create(struct npy_writer **out, const char *path, int64_t rows, int64_t columns,
                         struct err *e);

/* Appends n values.  Errors: as above. */
enum err_code npy_write(struct npy_writer *w, const float *values, int64_t n, struct err *e);

/* Closes.  *w becomes NULL; on failure there is no file.
 * Errors: as above, also when fewer values came than the shape holds. */
enum err_code npy_finish(struct npy_writer **w, struct err *e);

/* Gives up: there is no file.  NULL is fine. */
void npy_abandon(struct npy_writer **w);

#endif
