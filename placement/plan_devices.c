/* SPDX-License-Identifier: MIT */
/* placement/plan_devices.c - ranks and memories of a plan.
 *
 * A rank begins with an even share of its host's memory.  It may take more than that if others take
 * less: at the end what a host has left is what counts, and is shared out evenly.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/team.h"
#include "placement/place.h"

static void set_host_memory(struct plan *p, int r, const struct host *h)
{
    struct plan_device *d = &p->devices[r];

    *d = (struct plan_device){ .kind = DEVICE_HOST,
                               .host = p->ranks[r].host,
                               .rank = r,
                               .read_bw = h->ram_bw / h->ranks,
                               .int8_rate = h->int8_rate / h->ranks,
                               .capacity_bytes = h->ram_bytes / h->ranks };
    snprintf(d->name, sizeof d->name, "RANK%d", r);
}

static void set_gpu(struct plan *p, int index, int r, const struct gpu_kind *kind)
{
    struct plan_device *d = &p->devices[p->n_ranks + index];

    *d = (struct plan_device){ .kind = DEVICE_GPU,
                               .host = p->ranks[r].host,
                               .rank = r,
                               .gpu = kind,
                               .read_bw = kind->memory_bw,
                               .int8_rate = kind->int8_rate,
                               .capacity_bytes = kind->memory_bytes };
    snprintf(d->name, sizeof d->name, "CUDA%d", index);
}

/* Threads of a rank: given, or its share of the cores; of this machine what a team would take. */
static int threads_of(const struct plan *p, const struct inventory *inv, const struct host *h)
{
    struct team team;
    int n = p->opt.n_threads;

    if (n == 0 && inv->probed && h->ranks == 1) {
        team_init(&team, 0);
        n = team.n_threads;
    } else if (n == 0) {
        n = h->cores / h->ranks;
    }
    return n < 1 ? 1 : n > 1024 ? 1024 : n;
}

static void set_rank(struct plan *p, const struct inventory *inv, int r, int local, int *gpus)
{
    int host = p->ranks[r].host;
    const struct host *h = &inv->hosts[host];
    int g0 = (int)((int64_t)h->n_gpus * local / h->ranks);
    int g1 = (int)((int64_t)h->n_gpus * (local + 1) / h->ranks);

    p->ranks[r] = (struct plan_rank){ .host = host,
                                      .memory = r,
                                      .main = g1 > g0 ? p->n_ranks + *gpus : r,
                                      .n_threads = threads_of(p, inv, h) };
    set_host_memory(p, r, h);
    for (int g = g0; g < g1; g++)
        set_gpu(p, (*gpus)++, r, h->gpus[g]);
}

enum err_code place_devices(struct plan *p, const struct inventory *inv, struct err *e)
{
    int gpus = 0, host = 0;
    int *dealt = calloc((size_t)inv->n, sizeof *dealt); /* ranks of each host so far */

    p->n_ranks = inventory_ranks(inv);
    p->n_gpus = inventory_gpus(inv);
    p->n_devices = p->n_ranks + p->n_gpus;
    p->ranks = calloc((size_t)p->n_ranks, sizeof *p->ranks);
    p->devices = calloc((size_t)p->n_devices, sizeof *p->devices);
    if (!dealt || !p->ranks || !p->devices) {
        free(dealt);
        return err_set(e, ERR_NOMEM, "no memory to plan for %d ranks", p->n_ranks);
    }
    for (int r = 0; r < p->n_ranks; r++) {
        host += !inv->host_of && dealt[host] == inv->hosts[host].ranks;
        p->ranks[r].host = inv->host_of ? inv->host_of[r] : host;
        set_rank(p, inv, r, dealt[p->ranks[r].host]++, &gpus);
    }
    free(dealt);
    return ERR_OK;
}

void place_share_memory(struct plan *p)
{
    for (int h = 0; h < p->inventory->n; h++) {
        struct plan_memory m;
        if (!plan_memory_at(p, h, &m))
            continue;
        int64_t left = m.available_bytes - m.needed_bytes;
        for (int r = 0, more = m.n_ranks; r < p->n_ranks; r++) {
            struct plan_device *d = &p->devices[r];
            if (d->host != h)
                continue;
            d->capacity_bytes = plan_used(d) + left / more;
            left -= left / more--;
        }
    }
}

int plan_memory_at(const struct plan *p, int i, struct plan_memory *m)
{
    const struct host *hosts = p->inventory->hosts;

    *m = (struct plan_memory){ .n_ranks = 0 };
    if (i >= p->inventory->n) {
        const struct plan_device *d = &p->devices[i - p->inventory->n];
        m->needed_bytes = plan_used(d);
        m->available_bytes = d->capacity_bytes;
        (void)snprintf(m->name, sizeof m->name, "%s", d->name);
        return d->kind == DEVICE_GPU || hosts[d->host].apart;
    }
    for (int r = 0; r < p->n_ranks; r++)
        if (p->ranks[r].host == i) {
            m->needed_bytes += plan_used(&p->devices[r]);
            m->first_rank = m->n_ranks++ ? m->first_rank : r;
        }
    m->available_bytes = hosts[i].ram_bytes;
    if (*hosts[i].name)
        (void)snprintf(m->name, sizeof m->name, "host %s", hosts[i].name);
    else
        (void)snprintf(m->name, sizeof m->name, "host %d", i);
    return !hosts[i].apart;
}
