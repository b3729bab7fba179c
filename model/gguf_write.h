/* SPDX-License-Identifier: MIT */
/* model/gguf_write.h - writes GGUF version 3 files: `latent convert` and the tests' models.
 *
 * Order of calls: create, all keys, all tensors (declares names, types, shapes), then the
 * data of each tensor in the order of declaration, then finish.  Nothing is kept in memory
 * but the header.
 */
#ifndef MODEL_GGUF_WRITE_H
#define MODEL_GGUF_WRITE_H

#include "model/gguf.h"

struct gguf_writer;

/* Begins a file that gets the name `path` when it is finished.  Errors: ERR_IO, ERR_NOMEM. */
enum err_code gguf_writer_create(struct gguf_writer **out, const char *path, struct err *e);

void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_write_i32(struct gguf_writer *w, const char *key, int32_t v);
void gguf_write_u16(struct gguf_writer *w, const char *key, uint16_t v);
void gguf_write_f32(struct gguf_writer *w, const char *key, float v);
void gguf_write_bool(struct gguf_writer *w, const char *key, int v);
void gguf_write_string(struct gguf_writer *w, const char *key, const char *data, size_t len);
/* n strings; and an array of any scalar type, n elements of it at `data`. */
void gguf_write_strings(struct gguf_writer *w, const char *key, const struct gguf_string *s,
                        uint64_t n);
void gguf_write_array(struct gguf_writer *w, const char *key, enum gguf_type element,
                      const void *data, uint64_t n);
/* A record of another file as it stands. */
void gguf_write_kv(struct gguf_writer *w, const struct gguf_kv *kv);

/* Declares a tensor.  dim: [n_dims], dim[0] contiguous. */
void gguf_write_tensor(struct gguf_writer *w, const char *name, enum quant type, int n_dims,
                       const int64_t *dim);

/* Appends data of the current tensor; the next tensor begins when this one is complete. */
void gguf_write_data(struct gguf_writer *w, const void *data, uint64_t bytes);

/* 1 once anything has failed: the work that is left is in vain. */
int gguf_writer_failed(const struct gguf_writer *w);

/* Writes what is left and closes.  The writer remembers its first failure and reports it here;
 * `path` is then as it was before.  *w becomes NULL.
 * Errors: ERR_IO, ERR_NOMEM, ERR_FORMAT (data missing or too much). */
enum err_code gguf_writer_finish(struct gguf_writer **w, struct err *e);

/* Gives up; `path` is as it was before.  NULL is fine. */
void gguf_writer_abandon(struct gguf_writer **w);

#endif
