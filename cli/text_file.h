/* SPDX-License-Identifier: MIT */
/* cli/text_file.h - reads a whole text as bytes. */
#ifndef CLI_TEXT_FILE_H
#define CLI_TEXT_FILE_H

#include "base/str.h"
#include "base/err.h"

/* Appends every byte of `path` (a file, a pipe; "-" is standard input) as it stands: NUL,
 * invalid UTF-8 and lines of any length included.
 * Errors: ERR_IO; ERR_USAGE, more than TEXT_FILE_MAX bytes; ERR_NOMEM. */
enum { TEXT_FILE_MAX = 1 << 30 };
enum err_code text_file_read(const char *path, struct str *out, struct err *e);

#endif
