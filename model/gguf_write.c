/* SPDX-License-Identifier: MIT */
/* model/gguf_write.c - see gguf_write.h.
 *
 * Keys and tensor records are collected in two strings.  The first byte of data (or the
 * end) writes them out, behind which the data streams; after each tensor come zeros up
 * to the next multiple of 32.
 */
#include "model/gguf_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/draft.h"
#include "base/str.h"
#include "model/gguf_part.h"

enum { VERSION = 3, ALIGNMENT = 32 };

struct gguf_writer {
    struct draft draft;
    struct str keys, tensors; /* records, as they will lie in the file                  */
    uint64_t n_keys, n_tensors;
    uint64_t *bytes;     /* [n_tensors] of each tensor's data, owned                   */
    uint64_t data_bytes; /* of all tensors declared, with padding: the next one's offset */
    int header_written;
    uint64_t current, written; /* the tensor whose data comes next; what of it is there */
    struct err err;            /* the first failure                                     */
};

static void fail(struct gguf_writer *w, enum err_code code, const char *what)
{
    if (w->err.code == ERR_OK)
        err_set(&w->err, code, "%s: %s", w->draft.path, what);
}

/* ---- Bytes -------------------------------------------------------------- */

static void put(struct gguf_writer *w, const void *data, size_t n)
{
    if (w->err.code == ERR_OK && n && fwrite(data, 1, n, w->draft.file) != n)
        err_sys(&w->err, "%s: cannot write", w->draft.path);
}

static uint64_t padding(uint64_t n)
{
    return (ALIGNMENT - n % ALIGNMENT) % ALIGNMENT;
}

static void put_padding(struct gguf_writer *w, uint64_t n)
{
    static const uint8_t zeros[ALIGNMENT];

    put(w, zeros, padding(n));
}

static void append_u32(struct str *s, uint32_t v)
{
    str_append(s, (const char *)&v, sizeof v);
}

static void append_u64(struct str *s, uint64_t v)
{
    str_append(s, (const char *)&v, sizeof v);
}

static void append_string(struct str *s, const char *data, size_t len)
{
    append_u64(s, len);
    str_append(s, data, len);
}

/* ---- Keys --------------------------------------------------------------- */

/* Begins a record; its value follows. */
static void begin_key(struct gguf_writer *w, const char *key, size_t len, enum gguf_type type)
{
    if (w->header_written)
        fail(w, ERR_FORMAT, "a key was given after the first data");
    w->n_keys++;
    append_string(&w->keys, key, len);
    append_u32(&w->keys, type);
}

static void write_scalar(struct gguf_writer *w, const char *key, enum gguf_type type, const void *v)
{
    begin_key(w, key, strlen(key), type);
    str_append(&w->keys, v, gguf_type_bytes(type));
}

void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    write_scalar(w, key, GGUF_U32, &v);
}

void gguf_write_i32(struct gguf_writer *w, const char *key, int32_t v)
{
    write_scalar(w, key, GGUF_I32, &v);
}

void gguf_write_u16(struct gguf_writer *w, const char *key, uint16_t v)
{
    write_scalar(w, key, GGUF_U16, &v);
}

void gguf_write_f32(struct gguf_writer *w, const char *key, float v)
{
    write_scalar(w, key, GGUF_F32, &v);
}

void gguf_write_bool(struct gguf_writer *w, const char *key, int v)
{
    uint8_t byte = v != 0;

    write_scalar(w, key, GGUF_BOOL, &byte);
}

void gguf_write_string(struct gguf_writer *w, const char *key, const char *data, size_t len)
{
    begin_key(w, key, strlen(key), GGUF_STRING);
    append_string(&w->keys, data, len);
}

static void begin_array(struct gguf_writer *w, const char *key, enum gguf_type element, uint64_t n)
{
    begin_key(w, key, strlen(key), GGUF_ARRAY);
    append_u32(&w->keys, element);
    append_u64(&w->keys, n);
}

void gguf_write_strings(struct gguf_writer *w, const char *key, const struct gguf_string *s,
                        uint64_t n)
{
    begin_array(w, key, GGUF_STRING, n);
    for (uint64_t i = 0; i < n; i++)
        append_string(&w->keys, s[i].data, s[i].len);
}

void gguf_write_array(struct gguf_writer *w, const char *key, enum gguf_type element,
                      const void *data, uint64_t n)
{
    begin_array(w, key, element, n);
    str_append(&w->keys, data, n * gguf_type_bytes(element));
}

void gguf_write_kv(struct gguf_writer *w, const struct gguf_kv *kv)
{
    const struct gguf_value *v = &kv->value;
    enum gguf_type scalar = v->type == GGUF_ARRAY ? v->element : v->type;
    uint64_t n = v->type == GGUF_ARRAY ? v->count : 1, bytes = n * gguf_type_bytes(scalar);

    if (scalar == GGUF_STRING) {
        const uint8_t *end = v->data;
        for (uint64_t i = 0; i < n; i++)
            gguf_next_string(&end);
        bytes = (uint64_t)(end - v->data);
    }
    begin_key(w, kv->key.data, kv->key.len, v->type);
    if (v->type == GGUF_ARRAY) {
        append_u32(&w->keys, v->element);
        append_u64(&w->keys, v->count);
    }
    str_append(&w->keys, (const char *)v->data, bytes);
}

/* ---- Tensors ------------------------------------------------------------ */

/* 0: the shape is impossible. */
static uint64_t tensor_bytes(enum quant type, int n_dims, const int64_t *dim)
{
    int64_t all[GGUF_MAX_DIMS] = { 1, 1, 1, 1 };

    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS)
        return 0;
    for (int i = 0; i < n_dims; i++) {
        if (dim[i] < 1)
            return 0;
        all[i] = dim[i];
    }
    if (all[0] % quant_info[type].values || all[1] % quant_info[type].interleave)
        return 0;
    return gguf_measure(type, all);
}

void gguf_write_tensor(struct gguf_writer *w, const char *name, enum quant type, int n_dims,
                       const int64_t *dim)
{
    uint64_t bytes = tensor_bytes(type, n_dims, dim);
    uint64_t *grown = realloc(w->bytes, (w->n_tensors + 1) * sizeof *grown);

    if (!grown) {
        fail(w, ERR_NOMEM, "no memory for the tensor list");
        return;
    }
    w->bytes = grown;
    w->bytes[w->n_tensors++] = bytes;
    if (bytes == 0) {
        if (w->err.code == ERR_OK)
            err_set(&w->err, ERR_FORMAT, "%s: tensor %s: this shape is impossible in type %s",
                    w->draft.path, name, quant_info[type].name);
        return;
    }
    if (w->header_written)
        fail(w, ERR_FORMAT, "a tensor was given after the first data");

    append_string(&w->tensors, name, strlen(name));
    append_u32(&w->tensors, (uint32_t)n_dims);
    for (int i = 0; i < n_dims; i++)
        append_u64(&w->tensors, (uint64_t)dim[i]);
    append_u32(&w->tensors, quant_info[type].gguf_id);
    append_u64(&w->tensors, w->data_bytes);
    w->data_bytes += bytes + padding(bytes);
}

static void write_header(struct gguf_writer *w)
{
    const uint32_t version = VERSION;

    w->header_written = 1;
    if (w->keys.failed || w->tensors.failed)
        fail(w, ERR_NOMEM, "no memory for the header");
    put(w, "GGUF", 4);
    put(w, &version, sizeof version);
    put(w, &w->n_tensors, sizeof w->n_tensors);
    put(w, &w->n_keys, sizeof w->n_keys);
    put(w, w->keys.data, w->keys.len);
    put(w, w->tensors.data, w->tensors.len);
    put_padding(w, 4 + sizeof version + 16 + w->keys.len + w->tensors.len);
}

void gguf_write_data(struct gguf_writer *w, const void *data, uint64_t bytes)
{
    if (!w->header_written)
        write_header(w);
    if (w->current == w->n_tensors || bytes > w->bytes[w->current] - w->written) {
        fail(w, ERR_FORMAT, "more data was given than the tensor has");
        return;
    }
    put(w, data, bytes);
    w->written += bytes;
    if (w->written == w->bytes[w->current]) {
        put_padding(w, w->written);
        w->current++;
        w->written = 0;
    }
}

/* ---- Life --------------------------------------------------------------- */

enum err_code gguf_writer_create(struct gguf_writer **out, const char *path, struct err *e)
{
    struct gguf_writer *w = calloc(1, sizeof *w);

    if (!w)
        return err_set(e, ERR_NOMEM, "%s: no memory", path);
    enum err_code rc = draft_open(&w->draft, path, e);
    if (rc == ERR_OK)
        *out = w;
    else
        free(w);
    return rc;
}

int gguf_writer_failed(const struct gguf_writer *w)
{
    return w->err.code != ERR_OK;
}

/* Closes and frees; on failure, the first of which is returned, nothing is left. */
static enum err_code close_writer(struct gguf_writer *w, struct err *e)
{
    enum err_code rc = w->err.code;

    if (rc == ERR_OK)
        rc = draft_keep(&w->draft, e);
    else if (e)
        *e = w->err;
    draft_drop(&w->draft);
    str_free(&w->keys);
    str_free(&w->tensors);
    free(w->bytes);
    free(w);
    return rc;
}

enum err_code gguf_writer_finish(struct gguf_writer **w, struct err *e)
{
    struct gguf_writer *old = *w;

    *w = NULL;
    if (!old->header_written)
        write_header(old);
    if (old->current < old->n_tensors)
        fail(old, ERR_FORMAT, "a tensor has less data than its shape needs");
    return close_writer(old, e);
}

void gguf_writer_abandon(struct gguf_writer **w)
{
    struct gguf_writer *old = *w;

    if (!old)
        return;
    *w = NULL;
    fail(old, ERR_CANCELLED, "given up");
    close_writer(old, NULL);
}
