/* SPDX-License-Identifier: MIT */
/* session/processes.c - see processes.h.
 *
 * Every rank looks at its own machine; all get all answers and draw the same conclusions, so
 * that every rank makes the same plan by itself.
 */
#include "session/processes.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bind.h"
#include "model/digest.h"

/* What one rank says about its host, and where its threads may run. */
struct answer {
    struct host host;
    cpu_set_t cpus;
};

/* Ranks of one host that stand one after the other are a host of the plan, so that rank r of the
 * plan is rank r of the group.  Cores: ranks that are bound apart have their own. */
static struct host join(const struct answer *a, int n)
{
    struct host h = a[0].host;
    int cores = 0;

    h.ranks = n;
    for (int i = 0; i < n; i++) {
        if (a[i].host.ram_bytes < h.ram_bytes)
            h.ram_bytes = a[i].host.ram_bytes;
        cores += a[i].host.cores;
        if (i > 0 && CPU_EQUAL(&a[i].cpus, &a[0].cpus))
            cores = a[0].host.cores;
    }
    h.int8_rate *= (double)cores / h.cores;
    h.cores = cores;
    return h;
}

/* Ranks of a host that are not together share its memory all the same. */
static int ranks_of_host(const struct comm *c, int rank)
{
    int n = 1;

    for (int r = 0; r < comm_size(c); r++)
        n += r != rank && comm_host_index(c, r) == comm_host_index(c, rank);
    return n;
}

static int are_apart(const struct comm *c, const struct answer *a)
{
    int me = comm_rank(c);

    for (int r = 0; r < comm_size(c); r++)
        if (comm_host_index(c, r) == comm_host_index(c, me) && !CPU_EQUAL(&a[r].cpus, &a[me].cpus))
            return 1;
    return 0;
}

static void join_all(struct inventory *m, const struct comm *c, const struct answer *a)
{
    int size = comm_size(c);

    m->n = 0;
    for (int r = 0, next; r < size; r = next) {
        for (next = r + 1; next < size && comm_host_index(c, next) == comm_host_index(c, r);)
            next++;
        struct host h = join(a + r, next - r);
        h.ram_bytes = h.ram_bytes / ranks_of_host(c, r) * (next - r);
        m->hosts[m->n++] = h;
    }
}

/* Looks at this machine and gathers what all say: all[size]. */
static enum err_code ask_all(struct planning *x, struct comm *c, struct answer *all, struct err *e)
{
    struct answer mine = { 0 };
    enum err_code rc = planning_probe(x, e);

    if (rc == ERR_OK) {
        mine.host = x->inventory.hosts[0];
        (void)sched_getaffinity(0, sizeof mine.cpus, &mine.cpus);
    }
    TRY(comm_share_error(c, rc, e));
    comm_all_gather(c, &mine, sizeof mine, all);
    return comm_check(c, e);
}

enum err_code processes_inventory(struct planning *x, struct comm *c, int *apart, struct err *e)
{
    size_t size = (size_t)comm_size(c);
    struct answer *all = calloc(size, sizeof *all);
    struct host *hosts = calloc(size, sizeof *hosts);
    enum err_code rc = ERR_NOMEM;

    if (all && hosts) {
        rc = ask_all(x, c, all, e);
    } else {
        (void)err_set(e, rc, "no memory to plan for %d ranks", comm_size(c));
        (void)comm_share_error(c, rc, e);
    }
    if (rc == ERR_OK) {
        free(x->inventory.hosts);
        x->inventory.hosts = hosts;
        hosts = NULL;
        join_all(&x->inventory, c, all);
        *apart = are_apart(c, all);
    }
    free(hosts);
    free(all);
    return rc;
}

void processes_bind(const struct comm *c, const struct plan *p)
{
    struct bind b;
    int me = comm_rank(c), before = 0;

    for (int r = 0; r < me; r++)
        before += comm_host_index(c, r) == comm_host_index(c, me);
    bind_open(&b);
    bind_thread(&b, before, ranks_of_host(c, me), p->ranks[me].n_threads);
    bind_close(&b);
}

enum err_code processes_agree(struct comm *c, const struct model *m, const struct options *o,
                              struct err *e)
{
    char text[256];

    model_digest(m->gguf, text);
    TRY(comm_agree(c, "model", text, e));
    (void)snprintf(text, sizeof text,
                   "-c %" PRId64 " -ub %" PRId64 " -np %" PRId64 " -ctk %d -mla %" PRId64
                   " -amb %" PRId64 " -t %" PRId64 " exact %d groups %d isa %d reduce %d rules %zu",
                   o->ctx_size, o->ubatch, o->parallel, o->cache_type, o->mla, o->amb, o->threads,
                   o->exact_math, o->router_groups, o->cpu_isa, o->reduce,
                   o->override_tensor.n + o->rules.n);
    return comm_agree(c, "options", text, e);
}
