/* SPDX-License-Identifier: MIT */
/* model/digest.h - one number for one model, to tell files apart. */
#ifndef MODEL_DIGEST_H
#define MODEL_DIGEST_H

#include "model/gguf.h"

enum { MODEL_DIGEST_SIZE = 33 };

/* 32 hexadecimal digits over all metadata, over names, types, shapes and places of all tensors, and
 * over a sample of the weights: 2 KB of every tensor, at a place that differs from one to the next
 * (of more than 2048 tensors, as many evenly chosen).  So files that were quantised or trained
 * otherwise, or copied with a hole, differ; a few changed bytes may not show.  Against accidents,
 * not against forgery.  Errors: ERR_IO. */
enum err_code model_digest(const struct gguf *g, char hex[MODEL_DIGEST_SIZE], struct err *e);

#endif
