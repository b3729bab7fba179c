/* SPDX-License-Identifier: MIT */
/* model/gguf_part.h - one file of a model, its header parsed; private to model/gguf*.c.
 *
 * The header (all that lies in front of the tensor data) is read with pread into
 * a buffer of the part, in growing pieces that never exceed the file.  It is not
 * mapped: a mapping of a file that somebody truncates ends in SIGBUS.  Strings,
 * arrays and names are borrowed from that buffer until gguf_part_close.
 */
#ifndef MODEL_GGUF_PART_H
#define MODEL_GGUF_PART_H

#include <string.h>

#include "model/gguf.h"

struct gguf_override;

struct gguf {
    struct gguf_part *parts; /* [n_parts], owned; the metadata is that of parts[0]   */
    int n_parts;
    struct gguf_tensor *tensors; /* [n_tensors], owned, of all parts                 */
    struct gguf_name *names;     /* [n_tensors], owned, sorted                       */
    int n_tensors;
    char architecture[64];
    struct gguf_override *overrides; /* owned list of what gguf_override allocated   */
};

/* Real headers stay below 20 MB (160,000 tokens with merges). */
enum { GGUF_HEADER_MAX = 256 << 20 };

/* An entry of a list that is sorted by name; `at` is the index of what is named. */
struct gguf_name {
    struct gguf_string name;
    int at;
};

struct gguf_part {
    char *path;        /* owned; NULL: nothing is open             */
    const char *label; /* the end of a long path, for messages     */
    int fd;
    uint64_t bytes;      /* size of the file                         */
    uint8_t *header;     /* owned                                    */
    uint64_t data_start; /* file offset of the data section          */
    uint64_t alignment;
    struct gguf_kv *kv;     /* [n_kv], owned, in file order             */
    struct gguf_name *keys; /* [n_kv], owned, sorted                */
    int n_kv;
    struct gguf_tensor *tensors; /* [n_tensors], owned, in file order; `part` is 0 */
    int n_tensors;
};

/* Opens `path` and parses its header.  *p is overwritten; on failure nothing is
 * left open.  Errors: ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED, ERR_NOMEM. */
enum err_code gguf_part_open(struct gguf_part *p, const char *path, struct err *e);
void gguf_part_close(struct gguf_part *p);

/* Used by gguf_part_open: fills the directory from the first `have` bytes of the file, which
 * are in p->header.  ERR_FULL: *want of them are needed. */
enum err_code gguf_part_parse(struct gguf_part *p, uint64_t have, uint64_t *want, struct err *e);

/* Fails with ERR_FORMAT if a tensor ends behind the end of the file. */
enum err_code gguf_part_check_data(const struct gguf_part *p, struct err *e);

/* The record with this key, or NULL. */
struct gguf_kv *gguf_part_find(const struct gguf_part *p, struct gguf_string key);

/* File offset of the record that begins with this name. */
static inline uint64_t gguf_part_offset(const struct gguf_part *p, const char *name)
{
    return (uint64_t)((const uint8_t *)name - p->header) - sizeof(uint64_t);
}

/* Opens `path` and, if it is a shard, its siblings.  *parts: [*n_parts] in the order of
 * split.no, owned by the caller (gguf_part_close each, then free); set only on success.
 * Errors: those of gguf_part_open; ERR_FORMAT, the set is incomplete or contradicts itself. */
enum err_code gguf_shards_open(struct gguf_part **parts, int *n_parts, const char *path,
                               struct err *e);

/* ---- Names -------------------------------------------------------------- */

/* Sorts; returns the index of the first entry that equals the one before it, or -1. */
int gguf_names_sort(struct gguf_name *names, int n);

/* Index of `name` in the sorted list, or (negative) -1 - where it would have to be inserted. */
int gguf_names_find(const struct gguf_name *names, int n, struct gguf_string name);

static inline struct gguf_string gguf_text(const char *s)
{
    return (struct gguf_string){ s, strlen(s) };
}

/* Reads general.architecture into g->architecture.  Errors: ERR_FORMAT. */
enum err_code gguf_set_architecture(struct gguf *g, struct err *e);

void gguf_free_overrides(struct gguf *g);

/* ---- Values and messages ------------------------------------------------ */

static inline uint32_t gguf_load_u32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t gguf_load_u64(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

enum { GGUF_TYPES = GGUF_F64 + 1 };

/* "u32" ...; bytes of a scalar, 0 for strings and arrays.  t must be a valid type. */
const char *gguf_type_name(enum gguf_type t);
unsigned gguf_type_bytes(enum gguf_type t);

/* Bytes of a tensor whose dimensions are positive and whose dim[0] suits the type;
 * 0 if they are more than 2^64-1. */
uint64_t gguf_measure(enum quant type, const int64_t dim[GGUF_MAX_DIMS]);

/* A name from a file as it may stand in a message: on one line, printable, not too long. */
struct gguf_quoted {
    char text[128];
};
struct gguf_quoted gguf_quote(struct gguf_string s);

#endif
