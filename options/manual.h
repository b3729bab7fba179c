/* SPDX-License-Identifier: MIT */
/* options/manual.h - manual pages and the example of the configuration file, from the table.
 *
 * A template is text in which a line that begins with '@' stands for a part of the table:
 *
 *     @commands            the subcommands of `latent`, for man
 *     @options COMMAND     its options, for man
 *     @keys COMMAND        its keys in a configuration file, for man
 *     @example COMMAND     the same as a configuration file, every key commented out
 *
 * and @VERSION@ inside of a line for the version.
 */
#ifndef OPTIONS_MANUAL_H
#define OPTIONS_MANUAL_H

#include <stdio.h>

#include "base/err.h"

/* Errors: ERR_FORMAT, a line that begins with '@' and is none of the above; ERR_IO; ERR_NOMEM. */
enum err_code manual_fill(FILE *in, FILE *out, struct err *e);

#endif
