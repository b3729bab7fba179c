/* SPDX-License-Identifier: MIT */
/* daemon/server_wire.h - the SP request/reply protocol as it lies on ipc:// and tcp://.
 *
 *     greeting, both ways   00 'S' 'P' 00, u16 protocol (30 hex asks, 31 hex answers), 00 00
 *     frame on ipc://       01, u64 length, content
 *     frame on tcp://       u64 length, content
 *     content               words of 4 bytes up to one with its highest bit set, the id of the
 *                           question; then the message.  The answer begins with the same words.
 *
 * Integers are big-endian.  nanomsg and NNG send one word, forwarders put theirs in front.
 */
#ifndef DAEMON_SERVER_WIRE_H
#define DAEMON_SERVER_WIRE_H

#include <stddef.h>
#include <stdint.h>

enum {
    WIRE_GREETING = 8,
    WIRE_ID_MAX = 4 * 8, /* bytes: seven forwarders */
    WIRE_HEAD_MAX = 9,
};

extern const uint8_t wire_hello[WIRE_GREETING]; /* of the answering side */

/* Is this what somebody says who will ask? */
int wire_is_asker(const uint8_t greeting[WIRE_GREETING]);

/* A question within the bytes it was read from. */
struct wire_frame {
    const uint8_t *id, *body;
    size_t n_id, n_body;
};

/* Reads the frame at bytes[n].  Returns its length, 0 if it is not there as a whole yet, -1 if it
 * is none, or its message would have more than `max` bytes. */
int64_t wire_read(struct wire_frame *f, int tcp, const uint8_t *bytes, size_t n, size_t max);

/* Writes what stands in front of the id of an answer; returns its length. */
size_t wire_write_head(uint8_t head[WIRE_HEAD_MAX], int tcp, size_t n_id, size_t n_body);

#endif
