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

/* Memory of the ranks of a host: all of it for all, or where they are bound to other NUMA nodes
 * than each other, for every rank as much as the least of them has. */
static void join_memory(struct host *h, const struct answer *const *a, int n)
{
    int64_t least = INT64_MAX;

    for (int i = 0; i < n; i++) {
        int sharing = 0;
        for (int k = 0; k < n; k++)
            sharing += a[k]->host.memory_nodes == a[i]->host.memory_nodes;
        int64_t own = a[i]->host.ram_bytes / sharing;
        least = own < least ? own : least;
        h->apart |= sharing < n;
    }
    h->ram_bytes = least * n;
}

/* Cores: ranks that are bound apart have their own. */
static struct host join(const struct answer *const *a, int n)
{
    struct host h = a[0]->host;
    int cores = 0;

    h.ranks = n;
    join_memory(&h, a, n);
    for (int i = 0; i < n; i++) {
        cores += a[i]->host.cores;
        if (i > 0 && CPU_EQUAL(&a[i]->cpus, &a[0]->cpus))
            cores = a[0]->host.cores;
    }
    h.int8_rate *= (double)cores / h.cores;
    h.cores = cores;
    return h;
}

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

/* Hosts are numbered by their first ranks.  of_host: room for an answer of every rank. */
static void join_all(struct inventory *m, const struct comm *c, const struct answer *all,
                     const struct answer **of_host)
{
    int size = comm_size(c);

    m->n = 0;
    for (int r = 0; r < size; r++) {
        int n = 1;
        m->host_of[r] = comm_host_index(c, r);
        if (m->host_of[r] < m->n)
            continue;
        of_host[0] = &all[r];
        for (int q = r + 1; q < size; q++)
            if (comm_host_index(c, q) == m->host_of[r])
                of_host[n++] = &all[q];
        m->hosts[m->n++] = join(of_host, n);
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
    const struct answer **of_host = calloc(size, sizeof *of_host);
    struct inventory joined = { .probed = 1,
                                .hosts = calloc(size, sizeof *joined.hosts),
                                .host_of = calloc(size, sizeof *joined.host_of) };
    enum err_code rc = ERR_NOMEM;

    if (all && of_host && joined.hosts && joined.host_of) {
        rc = ask_all(x, c, all, e);
    } else {
        (void)err_set(e, rc, "no memory to plan for %d ranks", comm_size(c));
        (void)comm_share_error(c, rc, e);
    }
    if (rc == ERR_OK) {
        joined.guessed = x->inventory.guessed;
        join_all(&joined, c, all, of_host);
        *apart = are_apart(c, all);
        inventory_free(&x->inventory);
        x->inventory = joined;
        joined = (struct inventory){ 0 };
    }
    inventory_free(&joined);
    free(of_host);
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

/* ---- Agreement ------------------------------------------------------------------ */

static enum err_code agree_number(struct comm *c, const char *name, int64_t value, struct err *e)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%" PRId64, value);
    return comm_agree(c, name, text, e);
}

/* Of a long list the beginning is compared: what it does to the plan is compared later. */
static enum err_code agree_list(struct comm *c, const char *name, const struct text_list *list,
                                struct err *e)
{
    char text[1000] = "none";
    size_t at = 0;

    for (size_t i = 0; i < list->n && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, i ? " %s" : "%s", list->v[i]);
    return comm_agree(c, name, text, e);
}

static enum err_code agree_words(struct comm *c, const struct options *o, struct err *e)
{
    static const struct {
        const char *name;
        enum option_id id;
    } words[] = {
        {"-ctk",             OPTION_cache_type   },
        { "--cpu-isa",       OPTION_cpu_isa      },
        { "--reduce",        OPTION_reduce       },
        { "--router-groups", OPTION_router_groups}
    };
    char text[16];

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        TRY(comm_agree(c, words[i].name, options_choice(o, words[i].id, text, sizeof text), e));
    return ERR_OK;
}

enum err_code processes_agree(struct comm *c, const struct model *m, const struct options *o,
                              struct err *e)
{
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"-c",            o->ctx_size  },
        { "-ub",          o->ubatch    },
        { "-np",          o->parallel  },
        { "-t",           o->threads   },
        { "-mla",         o->mla       },
        { "-amb",         o->amb       },
        { "--exact-math", o->exact_math},
        { "--cpu-moe",    o->cpu_moe   },
        { "--n-cpu-moe",  o->n_cpu_moe }
    };
    char digest[MODEL_DIGEST_SIZE], text[MODEL_DIGEST_SIZE + 32];

    TRY(comm_share_error(c, model_digest(m->gguf, digest, e), e));
    (void)snprintf(text, sizeof text, "%s (%" PRIu64 " bytes)", digest, gguf_total_bytes(m->gguf));
    TRY(comm_agree(c, "model", text, e));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        TRY(agree_number(c, numbers[i].name, numbers[i].value, e));
    TRY(agree_words(c, o, e));
    TRY(agree_list(c, "--override-kv", &o->override_kv, e));
    return agree_list(c, "-ot", &o->override_tensor, e);
}

static uint64_t mix(uint64_t h, int64_t v)
{
    for (int i = 0; i < 8; i++)
        h = (h ^ ((uint64_t)v >> 8 * i & 0xff)) * 0x100000001b3u;
    return h;
}

enum err_code processes_agree_on_plan(struct comm *c, const struct plan *p, struct err *e)
{
    uint64_t h = mix(0xcbf29ce484222325u, p->opt.n_context);
    char text[80];

    for (int i = 0; i < p->n_parts; i++) {
        const struct plan_part *part = &p->parts[i];
        h = mix(mix(mix(h, part->tensor), part->device), (int64_t)part->axis);
        for (int r = 0; r < part->n_ranges; r++) {
            h = mix(h, p->ranges[part->first_range + r].begin);
            h = mix(h, p->ranges[part->first_range + r].end);
        }
    }
    (void)snprintf(text, sizeof text, "%" PRIx64 " (files of --rules or --hot may differ)", h);
    return comm_agree(c, "plan", text, e);
}
