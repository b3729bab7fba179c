/* SPDX-License-Identifier: MIT */
/* proto/client_wire.h - liblatent's way to the daemon: a socket that is opened again when it
 * breaks.
 *
 * There is one question at a time.  It is sent again over every new connection, and over the same
 * one after resend_ms without an answer; answers to older questions are passed over.  No thread, no
 * signal, and nothing that a peer sends can do more than end the connection.
 */
#ifndef PROTO_CLIENT_WIRE_H
#define PROTO_CLIENT_WIRE_H

#include "proto/latent.h"

struct client_wire;

/* endpoint: ipc://PATH or tcp://HOST:PORT; connects nowhere yet.  LATENT_USAGE (another form),
 * LATENT_NO_MEMORY. */
enum latent_code client_wire_open(struct client_wire **out, const char *endpoint,
                                  struct latent_error *e);
void client_wire_close(struct client_wire **w);

/* Tries to get a connection, up to `ms` milliseconds or a signal.  Returns whether there is one. */
int client_wire_connect(struct client_wire *w, int ms);

/* Whether there is a connection now; why not. */
int client_wire_connected(const struct client_wire *w);
const char *client_wire_why(const struct client_wire *w);

/* Ends the connection, and so the question. */
void client_wire_drop(struct client_wire *w);

/* Makes n bytes, copied, the question.  -1: no memory. */
int client_wire_ask(struct client_wire *w, const uint8_t *bytes, size_t n);

/* Waits for its answer, up to `ms` milliseconds or a signal.  1: *answer[*n], valid until the next
 * question; 0: not yet; -1: the peer sends what is no answer. */
int client_wire_await(struct client_wire *w, int ms, unsigned resend_ms, const uint8_t **answer,
                      size_t *n);

#endif
