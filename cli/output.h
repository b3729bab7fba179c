/* SPDX-License-Identifier: MIT */
/* cli/output.h - results on stdout, with every failure to write them noticed. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stddef.h>

#include "base/err.h"

/* Writes the bytes, which may stay in the buffer until output_flush.  Errors: as output_flush. */
enum err_code output_put(const void *bytes, size_t n, struct err *e);

/* Writes the bytes and flushes, so that a reader sees text as it is made. */
enum err_code output_write(const char *bytes, size_t n, struct err *e);

/* Flushes what printf left.
 * Errors: ERR_IO; ERR_CANCELLED without a message when the reader has gone away. */
enum err_code output_flush(struct err *e);

#endif
