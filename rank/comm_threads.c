/* SPDX-License-Identifier: MIT */
/* rank/comm_threads.c - ranks as threads of one process, and the one rank of `self`.
 *
 * All ranks of a pretended host share one room.  Leaders of several pretended hosts exchange by
 * copying from each other's memory: each posts its list of pieces, takes what the others have
 * posted for it, and is done when the others have taken theirs.  The group struct goes with the
 * last rank that frees its comm.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "rank/comm_room.h"

enum { MAX_MAPS = 8 };

struct post {
    _Atomic uint32_t turn; /* of the pieces posted last */
    const struct comm_piece *pieces;
    int n;
};

struct group {
    _Atomic int users;
    struct host {
        struct arena room, maps[MAX_MAPS];
        int n_maps;
    } * hosts; /* [n_hosts] */
    int n_hosts;
    struct post *posts;      /* [n_hosts]                                              */
    _Atomic uint32_t *taken; /* [from][to] turn of what `to` has taken of `from`       */
};

static void group_free(struct group *g)
{
    for (int h = 0; g->hosts && h < g->n_hosts; h++) {
        for (int i = 0; i < g->hosts[h].n_maps; i++)
            arena_unmap(&g->hosts[h].maps[i]);
        arena_unmap(&g->hosts[h].room);
    }
    free(g->hosts);
    free(g->posts);
    free(g->taken);
    free(g);
}

/* For each rank, and for who creates them. */
static void group_drop(struct group *g)
{
    if (atomic_fetch_sub(&g->users, 1) == 1)
        group_free(g);
}

/* ---- Operations ----------------------------------------------------------------- */

static enum err_code threads_offer(struct comm *c, size_t bytes, void **out, struct comm_token *t,
                                   struct err *e)
{
    struct group *g = c->back;
    struct host *h = &g->hosts[c->host];
    struct arena map = { 0 };

    if (h->n_maps == MAX_MAPS)
        return err_set(e, ERR_NOMEM, "more than %d buffers in a group of ranks", MAX_MAPS);
    TRY(arena_map(&map, bytes, "sums of ranks", e));
    h->maps[h->n_maps++] = map;
    *out = map.base;
    t->word[0] = (int64_t)(intptr_t)map.base;
    return ERR_OK;
}

static enum err_code threads_take(struct comm *c, size_t bytes, const struct comm_token *t,
                                  void **out, struct err *e)
{
    (void)c, (void)bytes, (void)e;
    memcpy(out, &t->word[0], sizeof *out);
    return ERR_OK;
}

static void threads_exchange(struct comm *c, const struct comm_piece *pieces, int n)
{
    struct group *g = c->back;
    struct post *mine = &g->posts[c->host];

    mine->pieces = pieces;
    mine->n = n;
    atomic_fetch_add(&mine->turn, 1);
}

/* The pieces that host `from` has for us, to where ours say. */
static void take_pieces(const struct comm *c, const struct post *mine, const struct post *theirs,
                        int from)
{
    int j = 0;

    for (int i = 0; i < mine->n; i++) {
        if (mine->pieces[i].host != from || mine->pieces[i].n_recv == 0)
            continue;
        while (j < theirs->n &&
               (theirs->pieces[j].host != c->host || theirs->pieces[j].n_send == 0))
            j++;
        if (j < theirs->n)
            memcpy(mine->pieces[i].recv, theirs->pieces[j++].send, mine->pieces[i].n_recv);
    }
}

static int threads_exchanged(struct comm *c)
{
    struct group *g = c->back;
    struct post *mine = &g->posts[c->host];
    uint32_t turn = atomic_load(&mine->turn);
    int done = 1;

    for (int h = 0; h < c->n_hosts; h++) {
        _Atomic uint32_t *taken = &g->taken[h * c->n_hosts + c->host];
        if (h == c->host)
            continue;
        if (atomic_load(taken) != turn && atomic_load(&g->posts[h].turn) == turn) {
            take_pieces(c, mine, &g->posts[h], h);
            atomic_store(taken, turn);
        }
        done &=
            atomic_load(taken) == turn && atomic_load(&g->taken[c->host * c->n_hosts + h]) == turn;
    }
    return done;
}

static void threads_tell(struct comm *c, int culprit, const char *line)
{
    struct group *g = c->back;

    for (int h = 0; h < g->n_hosts; h++)
        if (h != c->host)
            comm_room_raise((struct room *)(void *)g->hosts[h].room.base, culprit, 0, line);
}

static void threads_close(struct comm *c)
{
    group_drop(c->back);
}

static const struct comm_ops threads_ops = { .name = "threads",
                                             .offer = threads_offer,
                                             .take = threads_take,
                                             .exchange = threads_exchange,
                                             .exchanged = threads_exchanged,
                                             .tell = threads_tell,
                                             .close = threads_close };

static const struct comm_ops self_ops = {
    .name = "self", .offer = threads_offer, .take = threads_take, .close = threads_close
};

/* ---- Creation -------------------------------------------------------------------- */

/* Ranks are dealt to the pretended hosts in consecutive parts. */
static int host_of_rank(int rank, int n, int hosts)
{
    return (int)((int64_t)rank * hosts / n);
}

static struct group *create_group(int hosts)
{
    struct group *g = calloc(1, sizeof *g);

    if (!g)
        return NULL;
    g->users = 1;
    g->n_hosts = hosts;
    g->hosts = calloc((size_t)hosts, sizeof *g->hosts);
    g->posts = calloc((size_t)hosts, sizeof *g->posts);
    g->taken = calloc((size_t)hosts * (size_t)hosts, sizeof *g->taken);
    if (g->hosts && g->posts && g->taken)
        return g;
    group_free(g);
    return NULL;
}

static enum err_code create_rank(struct comm *c, struct group *g, int rank, int n,
                                 const struct comm_options *o, struct err *e)
{
    int host_of[COMM_MAX_RANKS];
    char names[COMM_MAX_RANKS][COMM_NAME] = { { 0 } }, host_name[COMM_NAME] = { 0 };
    cpu_set_t set;

    c->back = g;
    atomic_fetch_add(&g->users, 1);
    if (gethostname(host_name, sizeof host_name - 1) != 0)
        (void)snprintf(host_name, sizeof host_name, "localhost");
    for (int r = 0; r < n; r++) {
        host_of[r] = host_of_rank(r, n, g->n_hosts);
        (void)snprintf(names[r], sizeof names[r], "%.40s", host_name);
        if (g->n_hosts > 1)
            (void)snprintf(names[r], sizeof names[r], "%.40s/%d", host_name, host_of[r]);
    }
    TRY(comm_group_init(c, o, rank, n, host_of, names, e));
    struct host *h = &g->hosts[c->host];
    if (!h->room.base)
        TRY(arena_map(&h->room, comm_group_bytes(c), "room of ranks", e));
    comm_group_set_memory(c, h->room.base);
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    comm_group_set_spin(c, n * o->n_threads, cores);
    return ERR_OK;
}

/* What comm_reserve does, for a rank that has no thread yet. */
static enum err_code reserve_rank(struct comm *c, struct err *e)
{
    const struct group *g = c->back;
    const struct host *h = &g->hosts[c->host];
    int64_t rows = c->opt.max_rows, width = c->opt.width;
    struct comm_token t;
    void *base = NULL;

    if (rows == 0)
        return ERR_OK;
    TRY(comm_memory_check(rows, width, e));
    if (comm_is_leader(c))
        TRY(threads_offer(c, comm_memory_bytes(c, rows, width), &base, &t, e));
    comm_memory_set(c, rows, width, h->maps[0].base);
    return ERR_OK;
}

/* Nobody uses them yet. */
static void drop_ranks(struct comm **out, int n)
{
    for (int r = 0; r < n; r++) {
        if (!out[r])
            continue;
        comm_watch_stop(out[r]);
        if (out[r]->back)
            group_drop(out[r]->back);
        comm_group_fini(out[r]);
        free(out[r]);
        out[r] = NULL;
    }
}

static enum err_code create_ranks(struct comm **out, int n, int hosts, const struct comm_ops *ops,
                                  const struct comm_options *o, struct err *e)
{
    struct group *g = create_group(hosts);
    enum err_code rc = n > 0 ? ERR_OK : ERR_USAGE;

    memset(out, 0, (size_t)n * sizeof *out);
    if (!g)
        return err_set(e, ERR_NOMEM, "no memory for a group of ranks");
    for (int r = 0; r < n && rc == ERR_OK; r++) {
        out[r] = comm_group_alloc(ops);
        if (!out[r]) {
            rc = err_set(e, ERR_NOMEM, "no memory for a rank");
            break;
        }
        rc = create_rank(out[r], g, r, n, o, e);
        if (rc == ERR_OK)
            rc = reserve_rank(out[r], e);
        if (rc == ERR_OK && n > 1)
            rc = comm_watch_start(out[r], e);
    }
    if (rc != ERR_OK)
        drop_ranks(out, n);
    group_drop(g);
    return rc;
}

enum err_code comm_create_threads(struct comm **out, int n, const struct comm_options *o,
                                  struct err *e)
{
    int most = n < COMM_MAX_HOSTS ? n : COMM_MAX_HOSTS;
    int hosts = o->hosts < 1 ? 1 : o->hosts > most ? most : o->hosts;

    if (n < 1 || n > COMM_MAX_RANKS)
        return err_set(e, ERR_USAGE, "%d ranks: 1 to %d are possible", n, COMM_MAX_RANKS);
    return create_ranks(out, n, hosts, &threads_ops, o, e);
}

enum err_code comm_create_self(struct comm **out, const struct comm_options *o, struct err *e)
{
    return create_ranks(out, 1, 1, &self_ops, o, e);
}
