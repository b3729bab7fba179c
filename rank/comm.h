/* SPDX-License-Identifier: MIT */
/* rank/comm.h - what the ranks of a group say to each other.
 *
 * A group is n ranks that run the same steps in the same order.  Every call here is
 * collective: all ranks make it, in the same order.  Back ends: `self` (one rank, no MPI),
 * `threads` (ranks are threads of one process), `mpi` (processes; ranks of one host meet in
 * shared memory, hosts over MPI).  A seat for NCCL is left in struct comm_ops.
 *
 * Faults are sticky.  When a peer is dead, hung or cut off, the running call returns, every
 * later call returns at once, and comm_check tells what happened.  What a failed call left
 * in memory is worthless, so the caller checks once at the end of a step.
 */
#ifndef RANK_COMM_H
#define RANK_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/cpu/cpu_kernels.h"

/* How partial sums travel (--reduce): as the integers they are, which gives the same bits for any
 * number of ranks, or rounded first. */
enum comm_reduce { COMM_EXACT, COMM_F32, COMM_BF16 };

/* A row of partial sums is int64 [width + COMM_EXTRA]: the values in fixed point 2^-32, then the
 * number of partials that were out of range, then a digest of what this rank believes the step
 * to be (its sum must be n_ranks times one's own). */
enum { COMM_BAD, COMM_DIGEST, COMM_EXTRA };

struct comm;

struct comm_options {
    enum comm_reduce reduce;
    int deadline_ms;         /* no heartbeat for so long: the peer is dead; default 10000      */
    int hang_ms;             /* in a step, beats but no progress for so long (or for 20 median
                                steps): hung; default 30000                                    */
    int start_ms;            /* mpi: all ranks have come within it; default 120000             */
    int n_threads;           /* of this rank's team; default 1                                 */
    int spin_us;             /* how long a wait spins before it sleeps; -1: 1000 where all threads
                                of the host have a core of their own, otherwise 5              */
    int64_t max_rows, width; /* of comm_settle; 0: said later with comm_reserve                */
    int heed_signals; /* mpi: SIGTERM, SIGINT or SIGHUP to any rank ends all of them        */
    int hosts;        /* threads only, for tests: ranks pretend to sit on so many hosts */
    int delay_us;     /* for tests: what passes between hosts is so late                */
};

void comm_options_default(struct comm_options *o);

/* One rank. */
enum err_code comm_create_self(struct comm **out, const struct comm_options *o, struct err *e);

/* n ranks as threads of this process: out[n].  Each is then used by its own thread. */
enum err_code comm_create_threads(struct comm **out, int n, const struct comm_options *o,
                                  struct err *e);

/* The ranks that mpirun or srun started.  Calls MPI_Init_thread.
 * Errors: ERR_PEER, a rank of another build, or no MPI environment. */
enum err_code comm_create_mpi(struct comm **out, const struct comm_options *o, struct err *e);

/* What the environment says of the mpirun or srun that has started this process. */
struct comm_job {
    int rank;     /* of this process; -1: neither has */
    int size;     /* ranks; 0: not known */
    int one_host; /* all of them are on this host, as far as known */
};

/* Errors: ERR_PEER, it has ended, as in a shell that outlived it. */
enum err_code comm_find_job(struct comm_job *job, struct err *e);

/* Collective unless the group has failed: then it does not wait for anybody.  A process of a
 * failed mpi group leaves with _exit and comm_exit_status afterwards: MPI must not be finalized any
 * more.  (If it does not within two seconds, its watch thread does so.) */
void comm_free(struct comm **c);

/* Sizes the buffers of comm_settle; collective, once.  Errors, the same on all ranks: ERR_NOMEM. */
enum err_code comm_reserve(struct comm *c, int64_t max_rows, int64_t width, struct err *e);

int64_t comm_width(const struct comm *c); /* that was reserved; 0: none */

/* Bytes that one rank maps for a group: what is shared by a host is counted in its first rank. */
size_t comm_bytes(const struct comm *c, int64_t max_rows, int64_t width);

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
const char *comm_host(const struct comm *c, int rank);
int comm_host_index(const struct comm *c, int rank); /* 0 .. hosts - 1 in rank order */

/* Rows [max_rows][width + COMM_EXTRA] in which the engine gathers partial sums: memory of the
 * comm, zero at first, where ranks of one host can read each other's.  There are two; after every
 * comm_settle the other one is current. */
int64_t *comm_rows(struct comm *c);

/* x[i][0 .. width) += the sum over ranks of row i, rounded once to f32, for i < n_rows; all
 * ranks get the same bits.  Called by all threads of the rank's team with their thread number;
 * on return the x of all rows is complete for every thread, and the rows that comm_rows now
 * gives are zero.  bad[i] becomes the summed COMM_BAD of row i (0: all was well). */
void comm_settle(struct comm *c, const struct cpu_kernels *k, float *x, int64_t n_rows,
                 int64_t *bad, int thread, int n_threads);

/* The n_threads of this rank's team wait for each other, as long as comm.h lets a wait spin and
 * then asleep; also after a fault. */
void comm_team_barrier(struct comm *c, int n_threads);

/* The rest is called by one thread of each rank. */

/* data[bytes] of rank `root` to all. */
void comm_broadcast(struct comm *c, void *data, size_t bytes, int root);

/* Rank 0 gets everybody's bytes, in rank order: all[sum of bytes_of]; bytes_of: [size], the same
 * on every rank. */
void comm_gather(struct comm *c, const void *mine, const size_t *bytes_of, void *all);

/* Everybody gets everybody's `bytes`: all[size][bytes]. */
void comm_all_gather(struct comm *c, const void *mine, size_t bytes, void *all);

void comm_barrier(struct comm *c);

/* ---- Before anything is allocated: all ranks learn the same verdict. ---- */

/* Every rank must have said the same `text` (at most 1000 bytes) about `what` ("model", "build").
 * Errors: ERR_PEER, names the first rank that differs from rank 0, and both texts. */
enum err_code comm_agree(struct comm *c, const char *what, const char *text, struct err *e);

/* devices: the identities (a UUID, a PCI address) of what this rank alone may use, separated by
 * blanks, at most 1000 bytes.  Errors: ERR_USAGE, two ranks of one host claim the same: names both.
 */
enum err_code comm_claim_devices(struct comm *c, const char *devices, struct err *e);

/* rc, e: how something went here.  Returns the first rank's failure on all ranks, with its rank
 * and host before the message; ERR_OK if all went well; ERR_PEER if the group has failed. */
enum err_code comm_share_error(struct comm *c, enum err_code rc, struct err *e);

/* Gives up: tells the other ranks why, without waiting for them. */
void comm_abort(struct comm *c, const char *why);

/* ERR_OK, or ERR_PEER with one line that names rank, host and step of what failed.  In an mpi
 * group that line has been logged already, by one rank of each host. */
enum err_code comm_check(const struct comm *c, struct err *e);

/* How a process of a failed mpi group is to leave: 70, or 128 + N where a signal N has told a rank
 * to end. */
int comm_exit_status(const struct comm *c);

/* The step that begins, or -1 between steps: for the message of a fault, and since only a rank in
 * a step can hang.  Any number of ranks may wait for a step for any time. */
void comm_set_step(struct comm *c, int64_t step);

/* Any thread, in phases that may be longer than a rank may seem to hang. */
void comm_note_progress(struct comm *c);

/* Time spent in sums since the last call, of thread 0, in microseconds. */
double comm_take_sum_us(struct comm *c);

/* ---- What a rank shows of itself, to whoever looks after the group. ---- */

enum comm_figure {
    COMM_LOADED,     /* bytes of weights read so far                      */
    COMM_TO_LOAD,    /* of so many; 0: not known yet                      */
    COMM_STEPS,      /* steps with tokens                                 */
    COMM_COMPUTE_US, /* spent in these, but for the sums                  */
    COMM_SUM_US,     /* spent in their sums, the wait for others included */
    COMM_FIGURES,
};

/* Adds to a figure of this rank.  Any thread. */
void comm_add(struct comm *c, enum comm_figure f, int64_t n);

/* A step with tokens took `us` on this rank. */
void comm_add_step(struct comm *c, double us);

/* Of any rank; what is known of another host's is some beats old. */
int64_t comm_figure(const struct comm *c, int rank, enum comm_figure f);

#endif
