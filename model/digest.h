/* SPDX-License-Identifier: MIT */
/* model/digest.h - one number for one model, to tell files apart. */
#ifndef MODEL_DIGEST_H
#define MODEL_DIGEST_H

#include "model/gguf.h"

enum { MODEL_DIGEST_SIZE = 33 };

/* 32 hexadecimal digits over all metadata, and over names, types, shapes and places of all tensors,
 * but not over weights, which would all have to be read.  Against accidents, not against forgery.
 */
void model_digest(const struct gguf *g, char hex[MODEL_DIGEST_SIZE]);

#endif
