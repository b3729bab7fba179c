/* SPDX-License-Identifier: MIT */
/* cli/json_out.h - what every --json has in common. */
#ifndef CLI_JSON_OUT_H
#define CLI_JSON_OUT_H

#include <jansson.h>

#include "base/err.h"
#include "base/str.h"

/* Appends text[n] as a JSON string with its quotes; a byte that is not UTF-8 becomes U+FFFD. */
void append_json_string(struct str *s, const char *text, size_t n);

/* Text of a file or of the command line as a JSON string; what is not UTF-8 is made printable. */
json_t *json_text(const char *text, size_t n);

/* Prints the object and a newline, and drops it.  Errors: ERR_NOMEM, also where root is NULL. */
enum err_code json_print(json_t *root, struct err *e);

#endif
