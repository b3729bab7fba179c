/* SPDX-License-Identifier: MIT */
/* tests/tools/filler_vocab.h - a vocabulary of any size that tokenizes any text. */
#ifndef TESTS_TOOLS_FILLER_VOCAB_H
#define TESTS_TOOLS_FILLER_VOCAB_H

#include "model/gguf_write.h"

enum { FILLER_VOCAB_MIN = 320 };

/* Writes the tokenizer keys: control tokens BOS 0, EOS 1, padding 2; the 256 bytes from id 3 on;
 * some two-letter words with their merges; then unused tokens up to `size`.
 * Errors: ERR_NOMEM. */
enum err_code filler_vocab_write(struct gguf_writer *w, int size, struct err *e);

#endif
