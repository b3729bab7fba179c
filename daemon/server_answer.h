/* SPDX-License-Identifier: MIT */
/* daemon/server_answer.h - how the methods of server_call.c answer.
 *
 * A method fills an Envelope and sends it, or refuses; either way the call has its answer and the
 * method returns 1.  It returns 0 where there is none yet and the waiter is kept.
 */
#ifndef DAEMON_SERVER_ANSWER_H
#define DAEMON_SERVER_ANSWER_H

#include "daemon/server_call.h"

enum { ANSWER_RETRY_MS = 1000 };

typedef int server_method(struct server_call *c, struct requests_waiter *w, Latentd__Envelope *a);

server_method method_submit, method_next, method_cancel, method_list; /* server_requests.c */
server_method method_tokenize, method_detokenize;                     /* server_about.c */
server_method method_plan, method_status, method_health, method_metrics, method_drain;

/* An answer without a body, and its bytes once it has one. */
void answer_begin(const struct server_call *c, Latentd__Envelope *a);
int answer_send(struct server_call *c, const Latentd__Envelope *a);

/* What the book said, or a function that failed. */
int answer_no(struct server_call *c, enum answer from, const struct err *e);
int answer_err(struct server_call *c, enum err_code rc, const char *field, const struct err *e);

/* A text of a bounded array, which may end in half a character: that goes.  NULL if empty. */
char *answer_text(char *text);

/* Sets an optional field. */
#define PUT(m, field, v) ((m)->has_##field = 1, (m)->field = (v))

#endif
