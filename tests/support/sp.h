/* SPDX-License-Identifier: MIT */
/* tests/support/sp.h - the SP request/reply wire by hand, for tests that break it. */
#ifndef TESTS_SUPPORT_SP_H
#define TESTS_SUPPORT_SP_H

#include <stddef.h>
#include <stdint.h>

#include "proto/envelope.h"

/* So long may a machine take that does much else; more is a failure. */
enum { SP_PATIENCE_MS = 60000 };

/* Connects to ipc://PATH or tcp://127.0.0.1:PORT and no more; -1: failed. */
int sp_connect_bare(const char *address);

/* Connects and exchanges greetings as a REQ socket does; -1: failed. */
int sp_connect(const char *address);

/* Sends a frame of a question with this request id.  tcp: without the byte that ipc has. */
int sp_send(int fd, int tcp, uint32_t id, const void *bytes, size_t n);

/* The next answer, or NULL at the end of the connection or of all patience.  *id: of its
 * question.  The caller frees it. */
uint8_t *sp_recv(int fd, int tcp, uint32_t *id, size_t *n);

/* Both with an Envelope.  The answer is the caller's; NULL: there was none, or it is malformed. */
int sp_ask(int fd, int tcp, uint32_t id, const Latentd__Envelope *m);
Latentd__Envelope *sp_answer(int fd, int tcp, uint32_t *id);

#endif
