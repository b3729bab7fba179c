/* SPDX-License-Identifier: MIT */
/* model/gguf.h - reads GGUF files: metadata, tensor directory, tensor bytes.
 *
 * Versions 2 and 3, little endian, one file or the shards of a split one.  Only
 * headers are kept in memory; weights are read with gguf_read.  Everything is checked on
 * opening (counts, lengths, offsets, alignment, sizes against the types, the set of
 * shards), with checked arithmetic and no allocation beyond the file's own size, so
 * that nobody after this file has to.
 *
 * A `struct gguf` is immutable after gguf_open and gguf_override, and may then be
 * used by several threads.
 */
#ifndef MODEL_GGUF_H
#define MODEL_GGUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/quants.h"

struct gguf;

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

/* Bytes with a length, borrowed from the gguf; not NUL-terminated. */
struct gguf_string {
    const char *data;
    size_t len;
};

struct gguf_value {
    enum gguf_type type;
    enum gguf_type element; /* of an array                                    */
    uint64_t count;         /* of an array                                    */
    const uint8_t *data;    /* the value's first byte; of an array, its first element's */
};

struct gguf_kv {
    struct gguf_string key;
    struct gguf_value value;
    int overridden; /* by gguf_override */
};

enum { GGUF_MAX_DIMS = 4 };

struct gguf_tensor {
    const char *name; /* NUL-terminated, owned by the gguf                   */
    enum quant type;
    int n_dims;
    int64_t dim[GGUF_MAX_DIMS]; /* dim[0] is the contiguous one; unused are 1 */
    int part;                   /* index of the shard that holds it                    */
    uint64_t offset;            /* of its first byte in that shard's file              */
    uint64_t bytes;
};

enum gguf_open_flags {
    GGUF_HEADERS_ONLY = 1, /* tensor data may be missing: a file cut after its tensor table */
};

/* Opens `path`, any shard of a split file included (siblings lie beside it).
 * *out is set only on success; end with gguf_close.
 * Errors: ERR_IO; ERR_FORMAT and ERR_UNSUPPORTED with the file, what is wrong and at which
 * offset; ERR_NOMEM. */
enum err_code gguf_open(struct gguf **out, const char *path, unsigned flags, struct err *e);
void gguf_close(struct gguf **g);

/* Applies one `KEY=TYPE:VALUE` (types int, float, bool, str), replacing or adding a key.
 * Errors: ERR_USAGE. */
enum err_code gguf_override(struct gguf *g, const char *spec, struct err *e);

/* ---- Metadata ----------------------------------------------------------- */

int gguf_kv_count(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, int i);

/* The record with this key, or NULL.  `arch_key` of the next one is the part behind
 * "<general.architecture>.". */
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
const struct gguf_kv *gguf_find_arch(const struct gguf *g, const char *arch_key);

/* The general.architecture string, NUL-terminated ("" if the file has none). */
const char *gguf_architecture(const struct gguf *g);

/* Scalars, from any type that can hold the value exactly (any integer type for an integer,
 * any number for a float).  Return 0 on success, -1 if the type or range does not fit. */
int gguf_as_i64(const struct gguf_value *v, int64_t *out);
int gguf_as_f64(const struct gguf_value *v, double *out);
int gguf_as_bool(const struct gguf_value *v, int *out);
int gguf_as_string(const struct gguf_value *v, struct gguf_string *out);

/* Element i < count of an array, as a scalar value (for strings: O(1) only in order; use the
 * iterator for a walk). */
int gguf_element(const struct gguf_value *array, uint64_t i, struct gguf_value *out);

/* Walks an array of strings: `*at` starts as array->data; each call yields the next. */
struct gguf_string gguf_next_string(const uint8_t **at);

/* ---- Tensors ------------------------------------------------------------ */

int gguf_tensor_count(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, int i); /* in file order */
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name);

/* Reads `bytes` bytes of a tensor from byte `offset` of it into buf.
 * Safe from several threads.  Errors: ERR_IO, also when the file has become shorter. */
enum err_code gguf_read(const struct gguf *g, const struct gguf_tensor *t, uint64_t offset,
                        void *buf, uint64_t bytes, struct err *e);

/* Tells the kernel that these bytes will be read soon; what lies beyond the tensor is left out. */
void gguf_will_read(const struct gguf *g, const struct gguf_tensor *t, uint64_t offset,
                    uint64_t bytes);

/* Shards, 1 for an unsplit file; path of shard i; bytes of all. */
int gguf_part_count(const struct gguf *g);
const char *gguf_part_path(const struct gguf *g, int part);
uint64_t gguf_total_bytes(const struct gguf *g);

#endif
