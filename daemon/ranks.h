/* SPDX-License-Identifier: MIT */
/* daemon/ranks.h - the processes of the ranks: started, watched, ended, started again.
 *
 * One rank is a child of this process; more are started by mpirun, or by the words of --launch.  In
 * a job of mpirun's (daemon/job.h) only rank 0 is a child, and when it has ended, so has the job.
 * Rank 0 reports at the door (door.h).  Everything happens in the main thread: the kernel ends a
 * child when the thread that made it ends.
 *
 *     ranks_start ... ranks_poll (often) ... ranks_stop
 */
#ifndef DAEMON_RANKS_H
#define DAEMON_RANKS_H

#include <poll.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/door.h"

struct ranks_options {
    const char *program;      /* path of latentd-rank */
    const char *const *words; /* [n_words], its options */
    int n_words, n_ranks;
    int crowded;         /* more threads than cores: those that wait must sleep at once */
    int in_job;          /* of mpirun: rank 0 is started here, the others there, and not again */
    const char *launch;  /* words of --launch, or NULL */
    const char *run_dir; /* for what mpirun leaves lying; emptied at each start */
    int start_ms;        /* in which rank 0 must report under mpirun; 0: 180000 */
    /* Rank 0 is there: takes the link. */
    void (*on_link)(void *arg, int fd);
    void *on_link_arg;
};

struct ranks;

/* Makes the socket.  Nothing is started yet: ranks_poll does that.  Borrows what o names.
 * Errors: ERR_IO; ERR_NOMEM; ERR_USAGE, the words of --launch. */
enum err_code ranks_create(struct ranks **out, const struct ranks_options *o, struct err *e);

/* Descriptors to wait for, at most RANKS_FDS, and how long at most (ms). */
enum { RANKS_FDS = DOOR_FDS + 2 };
int ranks_fds(struct ranks *r, struct pollfd *fds, int64_t *wait_ms);

/* Does what is due: starts, accepts, reads what children print, buries the dead.
 * Errors: ERR_CANCELLED, a rank of a job was told to end; ERR_PEER, a job has lost its ranks; the
 * first start failed before any rank was ready, in a way that another start would not mend:
 * ERR_USAGE, ERR_NOFIT (e has the words of the rank). */
enum err_code ranks_poll(struct ranks *r, struct err *e);

/* The group is of no use any more: end it and start another one after a while.  Any thread. */
void ranks_lost(struct ranks *r);

/* It has served: the next failure is no failed start.  Any thread. */
void ranks_served(struct ranks *r);

/* The process of rank 0, 0: none. */
pid_t ranks_pid(const struct ranks *r);

/* Ends the group: waits half a second for it to leave by itself, then SIGTERM, then SIGKILL.
 * Returns whether the last group left in order, with status 0. */
int ranks_stop(struct ranks **r);

#endif
