/* SPDX-License-Identifier: MIT */
/* proto/scan.h - is this a message that may be unpacked?
 *
 * Walks protobuf's bytes along the descriptors that protobuf-c generated and holds every length,
 * count, wire type and string against the limits.  Allocates nothing.  What passes costs
 * protobuf-c a bounded amount of memory, and its strings are UTF-8 without NUL.  It recurses
 * only into fields of the schema, which is four messages deep.
 */
#ifndef PROTO_SCAN_H
#define PROTO_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "base/err.h"

/* Where a message is wrong: "submit.sampling.bias", "" for the message itself. */
struct scan_path {
    char text[128];
};

/* path: set when it fails; may be NULL.  Errors: ERR_FORMAT, e names the field and the limit. */
enum err_code scan_message(const ProtobufCMessageDescriptor *m, const uint8_t *bytes, size_t n,
                           struct scan_path *path, struct err *e);

/* Finds the first varint field `id` of the outermost message.  Returns 1 with its value, 0 if
 * there is none, -1 if the bytes are no protobuf message. */
int scan_find_varint(const uint8_t *bytes, size_t n, uint32_t id, uint64_t *value);

#endif
