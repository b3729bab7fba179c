/* SPDX-License-Identifier: MIT */
/* model/gguf_header.c - parses the header of one GGUF file.
 *
 *     magic "GGUF", u32 version, u64 tensors, u64 keys
 *     keys:     string key, u32 type, value            string = u64 length, bytes
 *     tensors:  string name, u32 dimensions, u64 sizes, u32 type, u64 offset of the data
 *     padding to general.alignment, then the data section
 *
 * Nothing says how long that is, so the parser runs over the first bytes of the
 * file, and the caller starts it again over more when these turn out to be too few.
 *
 * Reading order: the cursor, which cannot leave the file; one function per
 * structure; the header as a whole.
 */
#include "model/gguf_part.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    KEY_MAX = 65535,      /* by the format */
    NAME_MAX_BYTES = 255, /* ggml allows 63, forks up to 255 */
    KV_MIN_BYTES = 8 + 1 + 4 + 1,
    TENSOR_MIN_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
};

/* ---- The cursor --------------------------------------------------------- */

/* The first `have` bytes of the header are in memory; it cannot be longer than `end`.
 * rc is ERR_FULL when `want` bytes are needed; the caller then reads them and starts over. */
struct cursor {
    struct gguf_part *part;
    uint64_t at, have, end, want;
    char what[160]; /* the record being read, for messages */
    struct err *e;
    enum err_code rc;
};

__attribute__((format(printf, 3, 4))) static void fail(struct cursor *c, enum err_code code,
                                                       const char *fmt, ...)
{
    char why[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    c->rc = err_set(c->e, code, "%s: %s: %s", c->part->label, c->what, why);
}

/* The next n bytes, or NULL with rc set. */
static const uint8_t *take(struct cursor *c, uint64_t n, const char *kind)
{
    if (n > c->end - c->at) {
        if (c->end < c->part->bytes)
            fail(c, ERR_UNSUPPORTED,
                 "%s of %" PRIu64 " bytes at offset %" PRIu64
                 " makes the header larger than %d MiB",
                 kind, n, c->at, GGUF_HEADER_MAX >> 20);
        else
            fail(c, ERR_FORMAT,
                 "%s of %" PRIu64 " bytes at offset %" PRIu64 " runs past the end of the file at "
                 "%" PRIu64 "; it is damaged or cut off",
                 kind, n, c->at, c->part->bytes);
        return NULL;
    }
    if (n > c->have - c->at) {
        c->want = c->at + n;
        c->rc = ERR_FULL;
        return NULL;
    }
    const uint8_t *p = c->part->header + c->at;
    c->at += n;
    return p;
}

static uint32_t take_u32(struct cursor *c)
{
    const uint8_t *p = take(c, sizeof(uint32_t), "a field");

    return p ? gguf_load_u32(p) : 0;
}

static uint64_t take_u64(struct cursor *c)
{
    const uint8_t *p = take(c, sizeof(uint64_t), "a field");

    return p ? gguf_load_u64(p) : 0;
}

static struct gguf_string take_string(struct cursor *c)
{
    uint64_t len = take_u64(c);
    const uint8_t *p = c->rc ? NULL : take(c, len, "a string");

    return (struct gguf_string){ (const char *)p, p ? (size_t)len : 0 };
}

/* A key or tensor name. */
static struct gguf_string take_name(struct cursor *c, size_t max)
{
    uint64_t start = c->at;
    struct gguf_string s = take_string(c);

    if (c->rc)
        return s;
    if (s.len == 0)
        fail(c, ERR_FORMAT, "the name at offset %" PRIu64 " is empty", start);
    else if (s.len > max)
        fail(c, ERR_FORMAT, "the name at offset %" PRIu64 " has %zu bytes, at most %zu are allowed",
             start, s.len, max);
    else if (memchr(s.data, 0, s.len))
        fail(c, ERR_FORMAT, "the name at offset %" PRIu64 " holds a NUL byte", start);
    return s;
}

/* ---- Keys --------------------------------------------------------------- */

static enum gguf_type take_type(struct cursor *c, const char *of)
{
    uint64_t start = c->at;
    uint32_t type = take_u32(c);

    if (!c->rc && type >= GGUF_TYPES)
        fail(c, ERR_FORMAT, "%s type %u at offset %" PRIu64 " is unknown, expected 0 to %d", of,
             type, start, GGUF_TYPES - 1);
    return c->rc ? GGUF_U8 : (enum gguf_type)type;
}

static void check_bools(struct cursor *c, const uint8_t *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1) {
            fail(c, ERR_FORMAT, "bool at offset %" PRIu64 " is %u, expected 0 or 1",
                 (uint64_t)(p + i - c->part->header), p[i]);
            return;
        }
}

static void parse_array(struct cursor *c, struct gguf_value *v)
{
    uint64_t start = c->at;

    v->element = take_type(c, "array element");
    v->count = c->rc ? 0 : take_u64(c);
    if (c->rc)
        return;
    if (v->element == GGUF_ARRAY) {
        fail(c, ERR_FORMAT, "array of arrays at offset %" PRIu64 "; nesting is not allowed", start);
        return;
    }
    int is_string = v->element == GGUF_STRING;
    uint64_t least = is_string ? sizeof(uint64_t) : gguf_type_bytes(v->element);
    if (v->count > (c->end - c->at) / least) {
        fail(c, ERR_FORMAT,
             "array of %" PRIu64 " elements (%s) at offset %" PRIu64 ", but at most %" PRIu64
             " fit into the rest of the file; it is damaged or cut off",
             v->count, gguf_type_name(v->element), start, (c->end - c->at) / least);
        return;
    }
    v->data = c->part->header + c->at;
    if (is_string)
        for (uint64_t i = 0; i < v->count && !c->rc; i++)
            take_string(c);
    else
        take(c, v->count * least, "an array");
    if (!c->rc && v->element == GGUF_BOOL)
        check_bools(c, v->data, v->count);
}

static void parse_value(struct cursor *c, struct gguf_value *v)
{
    v->type = take_type(c, "value");
    if (c->rc)
        return;
    if (v->type == GGUF_ARRAY) {
        parse_array(c, v);
        return;
    }
    v->data = c->part->header + c->at;
    if (v->type == GGUF_STRING)
        take_string(c);
    else
        take(c, gguf_type_bytes(v->type), "a value");
    if (!c->rc && v->type == GGUF_BOOL)
        check_bools(c, v->data, 1);
}

static void index_keys(struct cursor *c)
{
    struct gguf_part *p = c->part;

    for (int i = 0; i < p->n_kv; i++)
        p->keys[i] = (struct gguf_name){ p->kv[i].key, i };
    int twice = gguf_names_sort(p->keys, p->n_kv);
    if (twice > 0)
        c->rc = err_set(c->e, ERR_FORMAT,
                        "%s: key %s at offset %" PRIu64 " was already given at offset %" PRIu64,
                        p->label, gguf_quote(p->keys[twice].name).text,
                        gguf_part_offset(p, p->keys[twice].name.data),
                        gguf_part_offset(p, p->keys[twice - 1].name.data));
}

static void parse_keys(struct cursor *c)
{
    struct gguf_part *p = c->part;

    for (int i = 0; i < p->n_kv; i++) {
        struct gguf_kv *kv = &p->kv[i];
        snprintf(c->what, sizeof c->what, "key %d of %d", i + 1, p->n_kv);
        kv->key = take_name(c, KEY_MAX);
        if (c->rc)
            return;
        snprintf(c->what, sizeof c->what, "key %s", gguf_quote(kv->key).text);
        parse_value(c, &kv->value);
        if (c->rc)
            return;
    }
    index_keys(c);
}

static void find_alignment(struct cursor *c)
{
    struct gguf_part *p = c->part;
    const struct gguf_kv *kv = gguf_part_find(p, gguf_text("general.alignment"));

    p->alignment = 32;
    if (!kv)
        return;
    snprintf(c->what, sizeof c->what, "general.alignment at offset %" PRIu64,
             gguf_part_offset(p, kv->key.data));
    if (kv->value.type != GGUF_U32) {
        fail(c, ERR_FORMAT, "the value is of type %s, expected u32",
             gguf_type_name(kv->value.type));
        return;
    }
    uint32_t a = gguf_load_u32(kv->value.data);
    if (a < 8 || (a & (a - 1)))
        fail(c, ERR_FORMAT, "the value is %u, expected a power of two, 8 or more", a);
    p->alignment = a;
}

/* ---- Tensors ------------------------------------------------------------ */

/* Number of elements of one row times the rows, that is all of them, must fit an int64. */
static void parse_shape(struct cursor *c, struct gguf_tensor *t)
{
    uint64_t start = c->at;
    uint32_t n = take_u32(c);
    int64_t elements = 1;

    if (c->rc)
        return;
    if (n < 1 || n > GGUF_MAX_DIMS) {
        fail(c, ERR_FORMAT, "%u dimensions at offset %" PRIu64 ", expected 1 to %d", n, start,
             GGUF_MAX_DIMS);
        return;
    }
    t->n_dims = (int)n;
    for (int i = 0; i < GGUF_MAX_DIMS; i++)
        t->dim[i] = 1;
    for (int i = 0; i < t->n_dims; i++) {
        uint64_t at = c->at, dim = take_u64(c);
        if (c->rc)
            return;
        if (dim == 0 || dim > INT64_MAX) {
            fail(c, ERR_FORMAT,
                 "dimension %d at offset %" PRIu64 " is %" PRIu64 ", expected 1 to 2^63-1", i, at,
                 dim);
            return;
        }
        t->dim[i] = (int64_t)dim;
        if (__builtin_mul_overflow(elements, t->dim[i], &elements)) {
            fail(c, ERR_FORMAT, "the dimensions at offset %" PRIu64 " multiply to more than 2^63-1",
                 start);
            return;
        }
    }
}

/* Bytes of the tensor from its type and shape. */
static void measure(struct cursor *c, struct gguf_tensor *t, uint64_t type_at)
{
    const struct quant_info *q = &quant_info[t->type];

    t->bytes = 0;
    if (t->dim[0] % q->values)
        fail(c, ERR_FORMAT,
             "rows of %" PRId64 " values, but type %s at offset %" PRIu64 " has blocks of %u",
             t->dim[0], q->name, type_at, q->values);
    else if (t->dim[1] % q->interleave)
        fail(c, ERR_FORMAT,
             "%" PRId64 " rows, but type %s at offset %" PRIu64 " interleaves groups of %u",
             t->dim[1], q->name, type_at, q->interleave);
    else if ((t->bytes = gguf_measure(t->type, t->dim)) == 0)
        fail(c, ERR_FORMAT, "type %s at offset %" PRIu64 " makes it larger than 2^64 bytes",
             q->name, type_at);
}

/* t->offset becomes relative to the data section, as the file has it. */
static void parse_tensor(struct cursor *c, struct gguf_tensor *t)
{
    struct gguf_string name = take_name(c, NAME_MAX_BYTES);

    if (c->rc)
        return;
    t->name = name.data;
    snprintf(c->what, sizeof c->what, "tensor %s", gguf_quote(name).text);
    parse_shape(c, t);
    if (c->rc)
        return;

    uint64_t type_at = c->at;
    uint32_t id = take_u32(c);
    if (c->rc)
        return;
    t->type = quant_by_id(id);
    if (t->type == QUANT_COUNT) {
        fail(c, ERR_UNSUPPORTED, "type id %u at offset %" PRIu64 " is retired or unknown", id,
             type_at);
        return;
    }
    measure(c, t, type_at);

    uint64_t offset_at = c->at;
    t->offset = c->rc ? 0 : take_u64(c);
    if (!c->rc && t->offset % c->part->alignment)
        fail(c, ERR_FORMAT,
             "the data offset %" PRIu64 " at offset %" PRIu64 " is not a multiple of %" PRIu64,
             t->offset, offset_at, c->part->alignment);
}

static void parse_tensors(struct cursor *c)
{
    struct gguf_part *p = c->part;

    for (int i = 0; i < p->n_tensors && !c->rc; i++) {
        snprintf(c->what, sizeof c->what, "tensor %d of %d", i + 1, p->n_tensors);
        parse_tensor(c, &p->tensors[i]);
    }
}

/* Offsets become those of the file, names get their NUL: the byte behind a name, the
 * first of n_dims, has been read and is free. */
static void finish_tensors(struct cursor *c)
{
    struct gguf_part *p = c->part;

    /* `at` is below 2^28 and the alignment below 2^32: no overflow */
    p->data_start = (c->at + p->alignment - 1) / p->alignment * p->alignment;
    for (int i = 0; i < p->n_tensors; i++) {
        struct gguf_tensor *t = &p->tensors[i];
        uint64_t end, name_at = gguf_part_offset(p, t->name) + sizeof(uint64_t);
        p->header[name_at + gguf_load_u64(p->header + name_at - sizeof(uint64_t))] = 0;
        if (__builtin_add_overflow(t->offset, p->data_start, &t->offset) ||
            __builtin_add_overflow(t->offset, t->bytes, &end)) {
            snprintf(c->what, sizeof c->what, "tensor %s", gguf_quote(gguf_text(t->name)).text);
            fail(c, ERR_FORMAT, "data offset plus %" PRIu64 " bytes is more than 2^64", t->bytes);
            return;
        }
    }
}

/* ---- The header --------------------------------------------------------- */

static void check_magic(struct cursor *c)
{
    const uint8_t *m = take(c, 4, "the magic");

    if (c->rc || memcmp(m, "GGUF", 4) == 0)
        return;
    if (memcmp(m, "vers", 4) == 0)
        fail(c, ERR_FORMAT, "not a GGUF file but perhaps a Git LFS pointer to one");
    else
        fail(c, ERR_FORMAT,
             "not a GGUF file: it begins with %02x %02x %02x %02x, expected 47 47 55 46", m[0],
             m[1], m[2], m[3]);
}

static void check_version(struct cursor *c)
{
    uint32_t version = take_u32(c);

    if (c->rc || version == 2 || version == 3)
        return;
    if ((version & 0xffff) == 0 && version != 0)
        fail(c, ERR_UNSUPPORTED,
             "version 0x%08x at offset 4: the file is big endian, expected little", version);
    else
        fail(c, ERR_UNSUPPORTED, "version %u at offset 4, expected 2 or 3%s", version,
             version == 1 ? "; convert the model again" : "");
}

/* A number of records, none larger than the rest of the file could hold. */
static int take_count(struct cursor *c, const char *of, unsigned least)
{
    uint64_t start = c->at, n = take_u64(c);

    if (!c->rc && n > (c->end - c->at) / least)
        fail(c, ERR_FORMAT,
             "%" PRIu64 " %s at offset %" PRIu64 ", but at most %" PRIu64
             " fit into the rest of the file; it is damaged or cut off",
             n, of, start, (c->end - c->at) / least);
    return c->rc ? 0 : (int)n; /* GGUF_HEADER_MAX keeps it within an int */
}

static enum err_code allocate_directory(struct cursor *c, int n_kv, int n_tensors)
{
    struct gguf_part *p = c->part;

    p->kv = calloc((size_t)n_kv + 1, sizeof *p->kv);
    p->keys = calloc((size_t)n_kv + 1, sizeof *p->keys);
    p->tensors = calloc((size_t)n_tensors + 1, sizeof *p->tensors);
    if (!p->kv || !p->keys || !p->tensors)
        return err_set(c->e, ERR_NOMEM, "%s: no memory for %d keys and %d tensors", p->label, n_kv,
                       n_tensors);
    p->n_kv = n_kv;
    p->n_tensors = n_tensors;
    return ERR_OK;
}

enum err_code gguf_part_parse(struct gguf_part *p, uint64_t have, uint64_t *want, struct err *e)
{
    uint64_t end = p->bytes < GGUF_HEADER_MAX ? p->bytes : GGUF_HEADER_MAX;
    struct cursor c = {
        .part = p, .have = have, .end = end, .e = e, .rc = ERR_OK, .what = "header"
    };

    check_magic(&c);
    if (!c.rc)
        check_version(&c);
    int n_tensors = c.rc ? 0 : take_count(&c, "tensors", TENSOR_MIN_BYTES);
    int n_kv = c.rc ? 0 : take_count(&c, "keys", KV_MIN_BYTES);
    if (!c.rc)
        c.rc = allocate_directory(&c, n_kv, n_tensors);
    if (!c.rc)
        parse_keys(&c);
    if (!c.rc)
        find_alignment(&c);
    if (!c.rc)
        parse_tensors(&c);
    if (!c.rc)
        finish_tensors(&c);
    *want = c.want;
    return c.rc;
}
