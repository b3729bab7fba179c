/* SPDX-License-Identifier: MIT */
/* rank/load_watch.h - shows how far the ranks of a group are while they load.
 *
 * A thread of rank 0 reads the figures of all (comm_figure): one line says the whole, its rate, and
 * which rank is the last.  It goes on while rank 0 has loaded and others have not.
 */
#ifndef RANK_LOAD_WATCH_H
#define RANK_LOAD_WATCH_H

#include "rank/comm.h"

struct load_watch;

/* Rank 0's.  NULL: there is no thread for it, and nothing is shown. */
struct load_watch *load_watch_begin(const struct comm *c);
void load_watch_end(struct load_watch *w);

/* That thread tells somebody else too, about five times a second.  To be said once, before loading;
 * fn NULL: nobody. */
typedef void load_watch_fn(void *arg, const struct comm *c);
void load_watch_tell(load_watch_fn *fn, void *arg);

#endif
