/* SPDX-License-Identifier: MIT */
/* proto/scan.c - see scan.h.
 *
 * Reading order: one field as it lies in the bytes; what a field may hold; a message.
 */
#include "proto/scan.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "proto/limits.h"

enum { MAX_FIELDS = 64 }; /* of one message of the schema; a test counts them */

enum wire { WIRE_VARINT = 0, WIRE_64BIT = 1, WIRE_BYTES = 2, WIRE_32BIT = 5 };

/* ---- One field ---------------------------------------------------------- */

struct cursor {
    const uint8_t *at, *end;
};

struct field {
    uint32_t id;
    enum wire wire;
    uint64_t value;       /* of a varint */
    const uint8_t *bytes; /* [n], of WIRE_BYTES */
    size_t n;
};

static int read_varint(struct cursor *c, uint64_t *out)
{
    uint64_t value = 0;

    for (int shift = 0; shift < 70 && c->at < c->end; shift += 7) {
        uint8_t byte = *c->at++;
        if (shift == 63 && byte > 1)
            return -1;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out = value;
            return 0;
        }
    }
    return -1;
}

static int skip(struct cursor *c, uint64_t n)
{
    if (n > (uint64_t)(c->end - c->at))
        return -1;
    c->at += n;
    return 0;
}

/* The next field; groups, which proto2 had once, are refused like any other broken byte. */
static int read_field(struct cursor *c, struct field *f)
{
    uint64_t tag, n;

    if (read_varint(c, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
        return -1;
    *f = (struct field){ .id = (uint32_t)(tag >> 3), .wire = (enum wire)(tag & 7) };
    switch (tag & 7) {
    case WIRE_VARINT:
        return read_varint(c, &f->value);
    case WIRE_64BIT:
        return skip(c, 8);
    case WIRE_32BIT:
        return skip(c, 4);
    case WIRE_BYTES:
        if (read_varint(c, &n))
            return -1;
        f->bytes = c->at;
        f->n = (size_t)n;
        return skip(c, n);
    default:
        return -1;
    }
}

int scan_find_varint(const uint8_t *bytes, size_t n, uint32_t id, uint64_t *value)
{
    struct cursor c = { bytes, bytes + n };
    struct field f;
    int found = 0;

    while (c.at < c.end) {
        if (read_field(&c, &f))
            return -1;
        if (f.id == id && f.wire == WIRE_VARINT && !found) {
            *value = f.value;
            found = 1;
        }
    }
    return found;
}

/* ---- What a field may hold ---------------------------------------------- */

static enum wire wire_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return WIRE_32BIT;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return WIRE_64BIT;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_BYTES;
    default:
        return WIRE_VARINT;
    }
}

/* Values in a packed field, or -1 if it is cut off. */
static int64_t count_packed(const struct field *f, enum wire wire)
{
    struct cursor c = { f->bytes, f->bytes + f->n };
    uint64_t value;
    int64_t n = 0;

    if (wire != WIRE_VARINT) {
        size_t size = wire == WIRE_32BIT ? 4 : 8;
        return f->n % size ? -1 : (int64_t)(f->n / size);
    }
    for (; c.at < c.end; n++)
        if (read_varint(&c, &value))
            return -1;
    return n;
}

/* What is gathered over one message. */
struct tally {
    const ProtobufCMessageDescriptor *message;
    uint64_t counts[MAX_FIELDS]; /* of values, by index of the field */
    int unknown;
};

static enum err_code check_text(const ProtobufCFieldDescriptor *d, const struct field *f,
                                const struct field_limit *limit, struct err *e)
{
    if (limit && f->n > limit->bytes)
        return err_set(e, ERR_FORMAT, "%s has %zu bytes; at most %u", d->name, f->n, limit->bytes);
    if (d->type != PROTOBUF_C_TYPE_STRING)
        return ERR_OK;
    if (f->n && memchr(f->bytes, 0, f->n))
        return err_set(e, ERR_FORMAT, "%s holds a NUL byte; it is text without", d->name);
    if (utf8_valid_prefix((const char *)f->bytes, f->n) != f->n)
        return err_set(e, ERR_FORMAT, "%s is not UTF-8", d->name);
    return ERR_OK;
}

/* The members of a oneof share the place that says which one it is. */
static const char *other_of_oneof(const struct tally *t, const ProtobufCFieldDescriptor *d)
{
    for (unsigned i = 0; (d->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) && i < t->message->n_fields;
         i++) {
        const ProtobufCFieldDescriptor *other = &t->message->fields[i];
        if (other != d && t->counts[i] && (other->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
            other->quantifier_offset == d->quantifier_offset)
            return other->name;
    }
    return NULL;
}

static enum err_code check_count(struct tally *t, const ProtobufCFieldDescriptor *d,
                                 const struct field *f, const struct field_limit *limit,
                                 struct err *e)
{
    uint64_t *count = &t->counts[d - t->message->fields];
    enum wire wire = wire_of(d->type);
    int64_t n = 1;
    const char *other = other_of_oneof(t, d);

    if (f->wire == WIRE_BYTES && wire != WIRE_BYTES && d->label == PROTOBUF_C_LABEL_REPEATED)
        n = count_packed(f, wire);
    else if (f->wire != wire)
        n = -1;
    if (n < 0)
        return err_set(e, ERR_FORMAT, "%s is not of its type", d->name);
    if (other)
        return err_set(e, ERR_FORMAT, "%s and %s are there; only one of them may", other, d->name);
    *count += (uint64_t)n;
    if (d->label != PROTOBUF_C_LABEL_REPEATED && *count > 1)
        return err_set(e, ERR_FORMAT, "%s is there twice", d->name);
    if (d->label == PROTOBUF_C_LABEL_REPEATED && limit && *count > limit->count)
        return err_set(e, ERR_FORMAT, "%s has more than %u entries", d->name, limit->count);
    return ERR_OK;
}

/* ---- A message ---------------------------------------------------------- */

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *m, uint32_t id)
{
    for (unsigned i = 0; i < m->n_fields; i++)
        if (m->fields[i].id == id)
            return &m->fields[i];
    return NULL;
}

static void path_push(struct scan_path *path, size_t *len, const char *name)
{
    int n = snprintf(path->text + *len, sizeof path->text - *len, "%s%s", *len ? "." : "", name);

    if (n > 0 && *len + (size_t)n < sizeof path->text)
        *len += (size_t)n;
}

static enum err_code scan_fields(const ProtobufCMessageDescriptor *m, const uint8_t *bytes,
                                 size_t n, struct scan_path *path, size_t path_len, struct err *e);

static enum err_code scan_field(struct tally *t, const struct field *f, struct scan_path *path,
                                size_t path_len, struct err *e)
{
    const ProtobufCFieldDescriptor *d = find_field(t->message, f->id);

    if (!d) {
        if (++t->unknown > PROTO_UNKNOWN_MAX)
            return err_set(e, ERR_FORMAT, "more than %d unknown fields", PROTO_UNKNOWN_MAX);
        return ERR_OK;
    }
    path_push(path, &path_len, d->name);
    const struct field_limit *limit = field_limit_find(t->message, d);
    TRY(check_count(t, d, f, limit, e));
    if (d->type == PROTOBUF_C_TYPE_STRING || d->type == PROTOBUF_C_TYPE_BYTES)
        TRY(check_text(d, f, limit, e));
    if (d->type == PROTOBUF_C_TYPE_MESSAGE)
        TRY(scan_fields(d->descriptor, f->bytes, f->n, path, path_len, e));
    path->text[path_len] = '\0';
    return ERR_OK;
}

static enum err_code scan_fields(const ProtobufCMessageDescriptor *m, const uint8_t *bytes,
                                 size_t n, struct scan_path *path, size_t path_len, struct err *e)
{
    struct tally t = { .message = m };
    struct cursor c = { bytes, bytes + n };
    struct field f;

    while (c.at < c.end) {
        path->text[path_len] = '\0';
        if (read_field(&c, &f))
            return err_set(e, ERR_FORMAT, "broken in its middle, at byte %zu of %s",
                           (size_t)(c.at - bytes), m->short_name);
        TRY(scan_field(&t, &f, path, path_len, e));
    }
    path->text[path_len] = '\0';
    return ERR_OK;
}

enum err_code scan_message(const ProtobufCMessageDescriptor *m, const uint8_t *bytes, size_t n,
                           struct scan_path *path, struct err *e)
{
    struct scan_path own = { "" };
    struct err inner = { 0 };
    enum err_code rc = scan_fields(m, bytes, n, &own, 0, &inner);

    if (rc == ERR_OK)
        return ERR_OK;
    if (path)
        *path = own;
    return err_set(e, rc, "message: %s%s%s", own.text, *own.text ? ": " : "", inner.msg);
}
