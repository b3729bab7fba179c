/* SPDX-License-Identifier: MIT */
/* rank/comm_room.h - inside of comm.h; included by the comm_*.c files alone.
 *
 * Ranks of one host meet in a room: memory that all of them map, as threads of one process or
 * as processes.  They wait for each other at a gate, which opens when all have arrived; what was
 * written before arriving is seen by everybody after it has opened.  Hosts are joined by the
 * operations of a back end: the leader of a host, its lowest rank, exchanges pieces of memory with
 * the other leaders while its companions wait at the next gate.
 *
 *     room      gate, fault, seats [ranks of the host]
 *     figures   [size][COMM_FIGURES], what each rank shows of itself
 *     board     [2][size][COMM_BOARD], what broadcast and gather pass
 *     rows      [ranks of the host][2][max_rows][width + COMM_EXTRA] i64, partial sums
 *     sums      f32 [max_rows][width], finished sums on their way to everybody
 *     outbox    one message, the sum of this host
 *     inbox     [hosts] messages, those of the others
 *
 * Two boards and two row buffers alternate: who writes the second has passed a gate after which
 * nobody reads the first any more.
 */
#ifndef RANK_COMM_ROOM_H
#define RANK_COMM_ROOM_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "rank/comm.h"

enum { COMM_LINE = 64, COMM_NAME = 64, COMM_BOARD = 128 << 10, COMM_TICK_MS = 200 };
enum { FIGURES_ROW = COMM_LINE / 8 }; /* a line for each rank */
enum { COMM_MAX_RANKS = 1024, COMM_MAX_HOSTS = 256, COMM_ALL_HOSTS = -1 };

struct gate {
    _Alignas(COMM_LINE) _Atomic uint32_t arrived;
    _Alignas(COMM_LINE) _Atomic uint32_t epoch; /* a futex */
    _Atomic uint32_t sleepers;
};

/* What a rank shows to the others of its host, and to its own watch. */
struct seat {
    _Alignas(COMM_LINE) _Atomic uint32_t beat; /* by the watch thread                        */
    _Atomic uint32_t left;                     /* in comm_free, orderly                      */
    _Atomic int pid;
    _Alignas(COMM_LINE) _Atomic int64_t step; /* the last that began                        */
    _Atomic uint32_t in_step;
    _Atomic uint32_t progress; /* one more with every call                   */
    _Atomic uint32_t waiting;  /* all threads of the rank have arrived at a gate */
};

enum { FAULT_NONE, FAULT_WRITING, FAULT_KNOWN };

struct room {
    struct gate gate;
    _Alignas(COMM_LINE) _Atomic uint32_t fault;
    int fault_rank, fault_signal; /* the signal that told the rank to end, or 0 */
    char why[sizeof((struct err *)0)->msg];
    struct seat seats[]; /* [ranks of the host] */
};

/* Where a rank sits. */
struct comm_place {
    char host_name[COMM_NAME];
    int host, local;
};

/* Memory to send to, and to receive from, one other host; pieces of one pair of hosts are met in
 * the order of the list.  Pieces of no bytes and of the own host are skipped. */
struct comm_piece {
    int host;
    const void *send;
    size_t n_send;
    void *recv;
    size_t n_recv;
};

/* How other ranks of the host find memory that their leader has mapped. */
struct comm_token {
    int64_t word[2];
};

struct comm_ops {
    const char *name;
    int processes; /* ranks may end, and have to, and log faults */
    /* The leader maps zeroed memory; its companions map the same. */
    enum err_code (*offer)(struct comm *c, size_t bytes, void **out, struct comm_token *t,
                           struct err *e);
    enum err_code (*take)(struct comm *c, size_t bytes, const struct comm_token *t, void **out,
                          struct err *e);
    /* Leaders only: begins an exchange, and polls whether it is complete. */
    void (*exchange)(struct comm *c, const struct comm_piece *pieces, int n);
    int (*exchanged)(struct comm *c);
    /* Tells the other hosts of a fault that this rank was the first to know; NULL: the watch does.
     */
    void (*tell)(struct comm *c, int culprit, const char *line);
    /* Orderly, after the last barrier; NULL: nothing to do. */
    void (*leave)(struct comm *c);
    /* Unmaps and closes; the group struct goes with its last rank. */
    void (*close)(struct comm *c);
};

struct comm_memory {
    int64_t max_rows, width, stride; /* stride: width + COMM_EXTRA */
    size_t message;                  /* bytes of a whole host's sum */
    uint8_t *base;
    int64_t *rows;
    float *sums;
    uint8_t *outbox, *inbox;
    size_t bytes;
};

struct comm_watch;
struct comm_wire;

struct comm {
    const struct comm_ops *ops;
    void *back; /* of the back end */
    struct comm_options opt;
    int rank, size, local, n_local, host, n_hosts;
    struct comm_place *places; /* [size]                    */
    int *leaders;              /* [n_hosts] ranks           */
    struct room *room;
    _Atomic int64_t *figures; /* [size][FIGURES_ROW] */
    uint8_t *board;
    int board_turn;
    struct comm_memory memory;
    int turn;           /* which of the two row buffers is current */
    int64_t dirty[2];   /* rows of each that are not zero          */
    int oversubscribed; /* more threads on this host than cores    */
    int64_t spin_ns;
    double sum_us, shown_sum_us; /* shown: of it, what the figures have */
    struct comm_watch *watch;
    _Atomic int ends; /* all ranks know of a failure: who is told to end now has nothing to say */
    const volatile sig_atomic_t *told; /* the signal that tells this process to end; or NULL */
    struct comm_wire *wire;            /* to the other hosts; leaders of mpi groups only */
    double step_began_s, step_s[15];   /* the last steps, for their median */
    int n_steps;
    _Atomic int64_t hang_ms;
    struct gate team;   /* of this rank's threads, in a sum */
    struct gate inside; /* the same, between sums: comm_team_barrier */
};

/* ---- comm_group.c: what every back end creates and frees. ---- */

struct comm *comm_group_alloc(const struct comm_ops *ops); /* zero; NULL without memory */

/* Fills in places, leaders and what follows from them; host_of and names: [size].  The room and
 * the board come later, in memory of comm_group_bytes. */
enum err_code comm_group_init(struct comm *c, const struct comm_options *o, int rank, int size,
                              const int *host_of, const char (*names)[COMM_NAME], struct err *e);
size_t comm_group_bytes(const struct comm *c);
void comm_group_set_memory(struct comm *c, void *base);

/* n_threads of all ranks of the host, cores of the host that they may use. */
void comm_group_set_spin(struct comm *c, int n_threads, int n_cores);
void comm_group_fini(struct comm *c);

/* Buffers of the sums: bytes that a host shares, and where they are. */
size_t comm_memory_bytes(const struct comm *c, int64_t max_rows, int64_t width);
void comm_memory_set(struct comm *c, int64_t max_rows, int64_t width, void *base);
enum err_code comm_memory_check(int64_t max_rows, int64_t width, struct err *e);

/* ---- comm_gate.c: waiting and faults. ---- */

/* All n_threads of this rank; the last to arrive carries out `last`, if any, before the others
 * go on. */
void comm_team_gate(struct comm *c, int n_threads, void (*last)(struct comm *c));

/* All threads of all ranks of the host. */
void comm_host_gate(struct comm *c, int thread, int n_threads);

/* The leader's thread 0: exchanges and waits for the end. */
void comm_exchange(struct comm *c, const struct comm_piece *pieces, int n);

static inline int comm_is_leader(const struct comm *c)
{
    return c->local == 0;
}

static inline int comm_failed(const struct comm *c)
{
    return atomic_load_explicit(&c->room->fault, memory_order_acquire) != FAULT_NONE;
}

/* Makes the fault of the group known to this host, if there is none yet: "rank R on host H WHAT in
 * step S: WHY". */
void comm_raise(struct comm *c, int culprit, const char *what, const char *why);

/* The same: this rank was told to end. */
void comm_raise_signal(struct comm *c, int number);

/* The same for a line from elsewhere. */
void comm_raise_line(struct comm *c, int culprit, int number, const char *line);

/* Only writes it into a room; 0 if there was a fault already. */
int comm_room_raise(struct room *r, int culprit, int number, const char *line);

/* ---- comm_watch.c: the thread that beats and watches. ---- */

enum err_code comm_watch_start(struct comm *c, struct err *e);
void comm_watch_stop(struct comm *c);

/* ---- comm_board.c ---- */

/* Everybody's bytes_of[rank] <= COMM_BOARD bytes reach the boards of all hosts, or of host `to`;
 * returns the board, [size][COMM_BOARD], or NULL if the group has failed. */
const uint8_t *comm_board_pass(struct comm *c, const void *mine, const size_t *bytes_of, int to);

#endif
