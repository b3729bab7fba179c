/* SPDX-License-Identifier: MIT */
/* cli/chat_input.h - what both kinds of `latent chat` share. */
#ifndef CLI_CHAT_INPUT_H
#define CLI_CHAT_INPUT_H

#include "base/err.h"
#include "base/str.h"
#include "options/options.h"

/* Appends the next message of standard input: a line, and the following one for each that ends
 * in a backslash.  Returns 0 at the end of the input, or where Ctrl-C interrupts it. */
int chat_read_message(struct str *text);

/* A conversation through the daemon at --endpoint. */
enum err_code chat_remote(const struct options *o, struct err *e);

#endif
