/* SPDX-License-Identifier: MIT */
/* proto/limits.h - the bounds of the protocol: of a message, and of every field in it.
 *
 * A message is held against them before anything is allocated for its contents, by whoever
 * receives it and by whoever sends it.
 */
#ifndef PROTO_LIMITS_H
#define PROTO_LIMITS_H

#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

enum {
    PROTO_VERSION = 1,
    PROTO_QUESTION_MAX = 4 << 20,      /* bytes of a message to the daemon */
    PROTO_ANSWER_MAX = (1 << 20) - 64, /* from it: nanomsg drops what is above 1 MiB */
    PROTO_UNKNOWN_MAX = 64,            /* fields of a message that this version does not know */
    PROTO_WAIT_MAX_MS = 20000,         /* Next */
    PROTO_LIST_MAX = 1000,
    PROTO_LIST_DEFAULT = 100,
    PROTO_TEXT_MAX = 1000000, /* bytes of a long text in an answer; as in limits.def */
};

struct field_limit {
    const ProtobufCMessageDescriptor *message;
    const char *field;
    uint32_t bytes, count; /* see limits.def */
};

extern const struct field_limit field_limits[];
extern const int n_field_limits;

/* The row of a field, or NULL: it is neither a string nor repeated. */
const struct field_limit *field_limit_find(const ProtobufCMessageDescriptor *m,
                                           const ProtobufCFieldDescriptor *f);

#endif
