/* SPDX-License-Identifier: MIT */
/* proto/sp.h - the SP request/reply protocol of nanomsg and NNG, as it lies on ipc:// and tcp://.
 *
 *     greeting, both ways   00 'S' 'P' 00, u16 protocol (30 hex asks, 31 hex answers), 00 00
 *     frame on ipc://       01, u64 length, content
 *     frame on tcp://       u64 length, content
 *     content               words of 4 bytes up to one with its highest bit set, the id of the
 *                           question; then the message.  The answer begins with the same words.
 *
 * Integers are big-endian.  nanomsg and NNG send one word, forwarders put theirs in front.
 */
#ifndef PROTO_SP_H
#define PROTO_SP_H

#include <stddef.h>
#include <stdint.h>

enum {
    SP_GREETING = 8,
    SP_ID_MAX = 4 * 8, /* bytes: seven forwarders */
    SP_HEAD_MAX = 9,
};

/* The greetings of the two sides. */
extern const uint8_t sp_asker[SP_GREETING], sp_answerer[SP_GREETING];

/* A question or an answer within the bytes it was read from. */
struct sp_frame {
    const uint8_t *id, *body;
    size_t n_id, n_body;
};

/* Reads the frame at bytes[n].  Returns its length, 0 if it is not there as a whole yet, -1 if it
 * is none, or its message would have more than `max` bytes. */
int64_t sp_read(struct sp_frame *f, int tcp, const uint8_t *bytes, size_t n, size_t max);

/* Writes what stands in front of the id; returns its length. */
size_t sp_write_head(uint8_t head[SP_HEAD_MAX], int tcp, size_t n_id, size_t n_body);

#endif
