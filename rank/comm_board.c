/* SPDX-License-Identifier: MIT */
/* rank/comm_board.c - broadcast, gather and what is built on them.
 *
 * All of them are one operation: every rank writes some bytes into its slot of the board, and the
 * slots reach the other hosts.  What is longer than a slot goes in several passes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rank/comm_room.h"

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- One pass ------------------------------------------------------------------- */

/* The leader sends the slots of its host to `to` (or all), and receives theirs. */
static void swap_slots(struct comm *c, uint8_t *board, const size_t *bytes_of, int to)
{
    struct comm_piece *pieces = calloc((size_t)c->size * (size_t)c->n_hosts, sizeof *pieces);
    int n = 0;

    if (!pieces) {
        comm_abort(c, "no memory for a message between hosts");
        return;
    }
    for (int r = 0; r < c->size; r++) {
        uint8_t *slot = board + (size_t)r * COMM_BOARD;
        int from = c->places[r].host;
        for (int h = 0; h < c->n_hosts; h++)
            if (from == c->host && h != c->host && (to == h || to == COMM_ALL_HOSTS))
                pieces[n++] = (struct comm_piece){ .host = h, .send = slot, .n_send = bytes_of[r] };
        if (from != c->host && (to == c->host || to == COMM_ALL_HOSTS))
            pieces[n++] = (struct comm_piece){ .host = from, .recv = slot, .n_recv = bytes_of[r] };
    }
    comm_exchange(c, pieces, n);
    free(pieces);
}

const uint8_t *comm_board_pass(struct comm *c, const void *mine, const size_t *bytes_of, int to)
{
    if (comm_failed(c))
        return NULL;
    c->board_turn ^= 1;
    uint8_t *board = c->board + (size_t)c->board_turn * (size_t)c->size * COMM_BOARD;
    if (mine && bytes_of[c->rank] > 0)
        memcpy(board + (size_t)c->rank * COMM_BOARD, mine, bytes_of[c->rank]);
    comm_host_gate(c, 0, 1);
    if (c->n_hosts > 1) {
        if (comm_is_leader(c))
            swap_slots(c, board, bytes_of, to);
        comm_host_gate(c, 0, 1);
    }
    return comm_failed(c) ? NULL : board;
}

/* ---- Any length ------------------------------------------------------------------- */

/* What remains of everybody's bytes after `done` of each, as far as a slot holds; returns whether
 * anything does. */
static int next_pass(const struct comm *c, const size_t *bytes_of, size_t done, size_t *now)
{
    int any = 0;

    for (int r = 0; r < c->size; r++) {
        now[r] = bytes_of[r] > done ? min_size(bytes_of[r] - done, COMM_BOARD) : 0;
        any |= now[r] > 0;
    }
    return any;
}

/* Slots to where they belong: those before them take bytes_of whole. */
static void collect(const struct comm *c, const uint8_t *board, const size_t *bytes_of,
                    const size_t *now, size_t done, uint8_t *all)
{
    for (int r = 0; r < c->size; r++) {
        if (now[r] > 0)
            memcpy(all + done, board + (size_t)r * COMM_BOARD, now[r]);
        all += bytes_of[r];
    }
}

static void gather(struct comm *c, const void *mine, const size_t *bytes_of, int to, void *all)
{
    size_t *now = calloc((size_t)c->size, sizeof *now);

    if (!now) {
        comm_abort(c, "no memory to gather with");
        return;
    }
    for (size_t done = 0; next_pass(c, bytes_of, done, now); done += COMM_BOARD) {
        const void *from = now[c->rank] > 0 ? (const uint8_t *)mine + done : NULL;
        const uint8_t *board = comm_board_pass(c, from, now, to);
        if (!board)
            break;
        if (all)
            collect(c, board, bytes_of, now, done, all);
    }
    free(now);
}

void comm_gather(struct comm *c, const void *mine, const size_t *bytes_of, void *all)
{
    gather(c, mine, bytes_of, c->places[0].host, c->rank == 0 ? all : NULL);
}

void comm_all_gather(struct comm *c, const void *mine, size_t bytes, void *all)
{
    size_t *bytes_of = calloc((size_t)c->size, sizeof *bytes_of);

    if (!bytes_of) {
        comm_abort(c, "no memory to gather with");
        return;
    }
    for (int r = 0; r < c->size; r++)
        bytes_of[r] = bytes;
    gather(c, mine, bytes_of, COMM_ALL_HOSTS, all);
    free(bytes_of);
}

void comm_broadcast(struct comm *c, void *data, size_t bytes, int root)
{
    size_t *bytes_of = calloc((size_t)c->size, sizeof *bytes_of);

    if (!bytes_of) {
        comm_abort(c, "no memory to broadcast with");
        return;
    }
    bytes_of[root] = bytes;
    gather(c, data, bytes_of, COMM_ALL_HOSTS, c->rank == root ? NULL : data);
    free(bytes_of);
}

void comm_barrier(struct comm *c)
{
    uint8_t token = 0;
    uint8_t *all = calloc((size_t)c->size, 1);

    if (!all) {
        comm_abort(c, "no memory to meet with");
        return;
    }
    comm_all_gather(c, &token, 1, all);
    free(all);
}

/* ---- Verdicts ------------------------------------------------------------------------ */

enum { TEXT = 1024 };

struct text {
    char of[TEXT];
};

/* Everybody's [size], or NULL: rc says why. */
static struct text *gather_texts(struct comm *c, const char *mine, enum err_code *rc, struct err *e)
{
    struct text *all = calloc((size_t)c->size, sizeof *all), text = { { 0 } };

    if (!all) {
        comm_abort(c, "no memory to compare ranks");
        *rc = err_set(e, ERR_NOMEM, "no memory to compare ranks");
        return NULL;
    }
    (void)snprintf(text.of, sizeof text.of, "%s", mine);
    comm_all_gather(c, &text, sizeof text, all);
    *rc = comm_check(c, e);
    if (*rc == ERR_OK)
        return all;
    free(all);
    return NULL;
}

/* What all ranks have compared ends all of them: see `ends` of struct comm. */
static enum err_code end_together(struct comm *c, enum err_code rc)
{
    if (rc != ERR_OK)
        atomic_store(&c->ends, 1);
    return rc;
}

enum err_code comm_agree(struct comm *c, const char *what, const char *text, struct err *e)
{
    enum err_code rc;
    struct text *all = gather_texts(c, text, &rc, e);

    for (int r = 1; all && r < c->size && rc == ERR_OK; r++)
        if (strncmp(all[r].of, all[0].of, TEXT) != 0)
            rc = err_set(e, ERR_PEER,
                         "%s: rank %d on host %s has %.120s, rank 0 on host %s has %.120s; start "
                         "all ranks with the same",
                         what, r, comm_host(c, r), all[r].of, comm_host(c, 0), all[0].of);
    free(all);
    return end_together(c, rc);
}

/* Whether the list has the word of n characters. */
static int has_word(const char *list, const char *word, size_t n)
{
    for (list += strspn(list, " "); *list; list += strspn(list, " ")) {
        size_t length = strcspn(list, " ");
        if (length == n && memcmp(list, word, n) == 0)
            return 1;
        list += length;
    }
    return 0;
}

static enum err_code compare_claims(const struct comm *c, int a, int b, const char *of_a,
                                    const char *of_b, struct err *e)
{
    for (of_a += strspn(of_a, " "); *of_a; of_a += strspn(of_a, " ")) {
        size_t n = strcspn(of_a, " ");
        if (has_word(of_b, of_a, n))
            return err_set(e, ERR_USAGE,
                           "ranks %d and %d on host %s both use device %.*s; give each rank its "
                           "own, or start fewer ranks",
                           a, b, comm_host(c, a), (int)n, of_a);
        of_a += n;
    }
    return ERR_OK;
}

enum err_code comm_claim_devices(struct comm *c, const char *devices, struct err *e)
{
    enum err_code rc;
    struct text *all = gather_texts(c, devices, &rc, e);

    for (int b = 1; all && b < c->size && rc == ERR_OK; b++)
        for (int a = 0; a < b && rc == ERR_OK; a++)
            if (c->places[a].host == c->places[b].host)
                rc = compare_claims(c, a, b, all[a].of, all[b].of, e);
    free(all);
    return end_together(c, rc);
}

/* The first failure of all. */
static enum err_code first_error(struct comm *c, struct err *all, struct err *e)
{
    for (int r = 0; r < c->size; r++) {
        all[r].msg[sizeof all[r].msg - 1] = '\0';
        if (all[r].code != ERR_OK)
            return err_set(e, all[r].code, "rank %d on host %s: %s", r, comm_host(c, r),
                           all[r].msg);
    }
    return ERR_OK;
}

enum err_code comm_share_error(struct comm *c, enum err_code rc, struct err *e)
{
    struct err mine = { .code = rc };

    if (c->size == 1)
        return rc;
    struct err *all = calloc((size_t)c->size, sizeof *all);
    if (!all) {
        comm_abort(c, "no memory to compare ranks");
        return err_set(e, ERR_NOMEM, "no memory to compare ranks");
    }
    if (rc != ERR_OK && e)
        mine = *e;
    mine.code = rc;
    comm_all_gather(c, &mine, sizeof mine, all);
    if (!comm_failed(c))
        rc = first_error(c, all, e);
    else if (rc == ERR_OK)
        rc = comm_check(c, e);
    free(all);
    return end_together(c, rc);
}
