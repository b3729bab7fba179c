/* SPDX-License-Identifier: MIT */
/* rank/comm_wire.h - beats and faults between hosts, over TCP.
 *
 * The leaders of all hosts are connected each with each; the connections carry nothing but beats,
 * the line of a fault, and farewells, so that a host which is cut off or dead is noticed however
 * long MPI waits for it.  A number that only the group knows guards the listening socket, which is
 * closed when all are connected.
 */
#ifndef RANK_COMM_WIRE_H
#define RANK_COMM_WIRE_H

#include <poll.h>
#include <stdint.h>

#include "base/err.h"

enum { WIRE_MAX_ADDRESSES = 16 };

/* Where a leader listens. */
struct wire_address {
    uint64_t secret;
    uint16_t port; /* 0: nowhere */
    uint16_t n;
    struct {
        uint8_t is_v6, bytes[16];
    } at[WIRE_MAX_ADDRESSES];
};

struct comm;
struct comm_wire;

/* Errors: ERR_IO, no socket or no network; ERR_NOMEM. */
enum err_code comm_wire_listen(struct comm_wire **out, int host, int n_hosts,
                               struct wire_address *here, struct err *e);

/* Connects with all other leaders: of[n_hosts].  names: [n_hosts], for the errors.
 * Errors: ERR_PEER, a host cannot be reached; says which. */
enum err_code comm_wire_connect(struct comm_wire *w, const struct wire_address *of,
                                const char *const *names, struct err *e);
void comm_wire_free(struct comm_wire **w);

/* For the watch thread.  Fills n_hosts entries to poll; reads what came; sends a beat, or the fault
 * that this host knows; raises that a host is silent for the deadline.  `late_s`: how long the
 * watch itself was held up. */
void comm_wire_polled(const struct comm_wire *w, struct pollfd *polled);
void comm_wire_read(struct comm *c, const struct pollfd *polled);
void comm_wire_tick(struct comm *c, double now, double late_s);

/* The last message: this host leaves, or what its fault is. */
void comm_wire_leave(struct comm *c);

#endif
