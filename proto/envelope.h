/* SPDX-License-Identifier: MIT */
/* proto/envelope.h - messages to bytes and back, within the limits.
 *
 * The only way in and out: what does not pass here is never unpacked, and never sent.
 */
#ifndef PROTO_ENVELOPE_H
#define PROTO_ENVELOPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/latentd.pb-c.h"
#include "proto/limits.h"
#include "proto/scan.h"

/* Reads a message of n bytes, at most `max`.  *out is the caller's: envelope_free.  path: see
 * scan.h; may be NULL.
 * Errors: ERR_FORMAT, malformed or beyond a limit (e names the field); ERR_UNSUPPORTED, another
 * version of the protocol (e has both). */
enum err_code envelope_decode(Latentd__Envelope **out, const void *bytes, size_t n, size_t max,
                              struct scan_path *path, struct err *e);
void envelope_free(Latentd__Envelope **m);

/* Writes a message; *out [*n] is the caller's: free.
 * Errors: ERR_FULL, it would have more than `max` bytes (e has both numbers); ERR_FORMAT, a field
 * is beyond its limit; ERR_NOMEM. */
enum err_code envelope_encode(uint8_t **out, size_t *n, const Latentd__Envelope *m, size_t max,
                              struct err *e);

/* A method as it is called in lines for people: "submit"; "?" for one that does not exist. */
const char *envelope_method_name(Latentd__Method method);

#endif
