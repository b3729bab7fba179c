/* SPDX-License-Identifier: MIT */
/* rank/serve.h - rank 0 at work for the coordinator: steps in, tokens out.
 *
 * Sampling runs here, so that logits never leave the process.  What a request has produced is
 * kept per sequence for the penalties; it is a function of the frames alone.
 */
#ifndef RANK_SERVE_H
#define RANK_SERVE_H

#include "rank/comm.h"
#include "rank/engine.h"
#include "rank/link.h"

/* Carries out what the coordinator sends until it says QUIT.  ready: sent first.
 * Errors: ERR_IO, the coordinator is gone; ERR_FORMAT, a frame that makes no sense; ERR_PEER, a
 * rank failed; ERR_NOMEM.  The caller ends the group. */
enum err_code serve_run(int fd, struct engine *engine, const struct plan *plan,
                        const struct link_ready *ready, struct err *e);

/* Tells the coordinator what each rank is and has done. */
enum err_code serve_tell_ranks(int fd, const struct comm *c, const struct plan *plan,
                               struct err *e);

/* Tells the coordinator why this group ends. */
void serve_fault(int fd, const char *why);

#endif
