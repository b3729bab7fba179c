/* SPDX-License-Identifier: MIT */
/* rank/group.c - see group.h. */
#include "rank/group.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/bind.h"

struct member {
    struct group *group;
    int rank;
    struct comm *comm;
    pthread_t thread;
};

struct group {
    const struct plan *plan;
    struct engine_options opt;
    struct engine *engine;  /* of rank 0 */
    struct member *members; /* [n_ranks] */
    struct bind bind;
    int n_ranks, n_threads; /* threads: ranks 1 .. that were started */
};

static void bind_rank(const struct group *g, int rank)
{
    bind_thread(&g->bind, rank, g->n_ranks, g->plan->ranks[rank].n_threads);
}

static void *follow(void *arg)
{
    struct member *m = arg;
    struct engine *engine = NULL;
    struct err e = { 0 };

    bind_rank(m->group, m->rank);
    if (engine_create_rank(&engine, m->group->plan, m->comm, &m->group->opt, &e) == ERR_OK)
        (void)engine_follow(engine, &e); /* what fails here fails on rank 0 too */
    engine_free(&engine);
    comm_free(&m->comm);
    return NULL;
}

static enum err_code create_comms(struct group *g, struct err *e)
{
    struct comm **comms = calloc((size_t)g->n_ranks, sizeof(struct comm *));
    struct comm_options o;

    if (!comms)
        return err_set(e, ERR_NOMEM, "no memory for %d ranks", g->n_ranks);
    comm_options_default(&o);
    o.reduce = g->opt.reduce;
    o.n_threads = g->plan->ranks[0].n_threads;
    enum err_code rc = comm_create_threads(comms, g->n_ranks, &o, e);
    for (int r = 0; r < g->n_ranks; r++)
        g->members[r] = (struct member){ .group = g, .rank = r, .comm = comms[r] };
    free(comms);
    return rc;
}

/* A rank without a thread would be waited for in vain. */
static enum err_code start_threads(struct group *g, struct err *e)
{
    for (int r = 1; r < g->n_ranks; r++, g->n_threads++) {
        if (pthread_create(&g->members[r].thread, NULL, follow, &g->members[r]) == 0)
            continue;
        comm_abort(g->members[0].comm, "a rank's thread could not be started");
        for (int left = r; left < g->n_ranks; left++)
            comm_free(&g->members[left].comm);
        return err_set(e, ERR_NOMEM, "no thread for rank %d of %d; use fewer --ranks", r,
                       g->n_ranks);
    }
    return ERR_OK;
}

enum err_code group_create(struct group **out, const struct plan *plan,
                           const struct engine_options *o, struct err *e)
{
    struct group *g = calloc(1, sizeof *g);
    enum err_code rc = ERR_NOMEM;

    if (g) {
        *g = (struct group){ .plan = plan, .opt = *o, .n_ranks = plan->n_ranks };
        g->members = calloc((size_t)g->n_ranks, sizeof *g->members);
    }
    if (!g || !g->members) {
        free(g);
        return err_set(e, rc, "no memory for a group of ranks");
    }
    bind_open(&g->bind);
    if ((rc = create_comms(g, e)) == ERR_OK && (rc = start_threads(g, e)) == ERR_OK) {
        bind_rank(g, 0);
        rc = engine_create_rank(&g->engine, plan, g->members[0].comm, &g->opt, e);
    }
    if (rc == ERR_OK)
        *out = g;
    else
        group_free(&g);
    return rc;
}

void group_free(struct group **g)
{
    if (!*g)
        return;
    if ((*g)->engine)
        engine_quit((*g)->engine);
    engine_free(&(*g)->engine);
    comm_free(&(*g)->members[0].comm);
    for (int r = 1; r <= (*g)->n_threads; r++)
        pthread_join((*g)->members[r].thread, NULL);
    bind_release(&(*g)->bind);
    bind_close(&(*g)->bind);
    free((*g)->members);
    free(*g);
    *g = NULL;
}

struct engine *group_engine(struct group *g)
{
    return g->engine;
}
