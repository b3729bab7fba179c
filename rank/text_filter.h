/* SPDX-License-Identifier: MIT */
/* rank/text_filter.h - from the bytes of tokens to text that may be shown.
 *
 * A token may end inside a character, and a stop string may begin in one token and end
 * in another.  So bytes go in and text comes out a little later: whole UTF-8 characters
 * only, and nothing that may still become a stop string.  What comes out in all depends
 * on the bytes alone, not on how they were cut into tokens.
 *
 * Invalid UTF-8 becomes U+FFFD once it can no longer become valid: one for each maximal
 * part that began like a character, as web browsers do.
 */
#ifndef RANK_TEXT_FILTER_H
#define RANK_TEXT_FILTER_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

struct text_filter;

/* Copies the stop strings.  Errors: ERR_USAGE, a stop string that is empty or not UTF-8 (it
 * could never be found); ERR_NOMEM. */
enum err_code text_filter_create(struct text_filter **out, const char *const *stops, int n_stops,
                                 struct err *e);
void text_filter_free(struct text_filter **f);

/* Appends to `shown` what may be shown after these bytes.  Returns 1 once a stop string is
 * complete: the text ends before it, and later bytes are ignored.  The stop string that is
 * complete first counts; if several end at the same byte, the longest. */
int text_filter_push(struct text_filter *f, const char *bytes, size_t n, struct str *shown);

/* The end of generation: appends what was held back.  Later bytes are ignored. */
void text_filter_flush(struct text_filter *f, struct str *shown);

#endif
