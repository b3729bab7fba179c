/* SPDX-License-Identifier: MIT */
/* placement/number_range.h - "layers 3 to 14" as a regular expression. */
#ifndef PLACEMENT_NUMBER_RANGE_H
#define PLACEMENT_NUMBER_RANGE_H

#include <stddef.h>

/* Writes a pattern that matches the decimal numbers lo..hi and no others between non-digits,
 * such as ([3-9]|1[0-4]).  0 <= lo <= hi <= 9999. */
void number_range_pattern(int lo, int hi, char *out, size_t size);

#endif
