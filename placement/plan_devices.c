/* SPDX-License-Identifier: MIT */
/* placement/plan_devices.c - ranks and memories of a plan. */
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

static void set_ranks(struct plan *p, const struct inventory *inv, int host, int first, int *gpus)
{
    const struct host *h = &inv->hosts[host];

    for (int i = 0; i < h->ranks; i++) {
        int r = first + i;
        int g0 = (int)((int64_t)h->n_gpus * i / h->ranks);
        int g1 = (int)((int64_t)h->n_gpus * (i + 1) / h->ranks);
        p->ranks[r] = (struct plan_rank){ .host = host,
                                          .memory = r,
                                          .main = g1 > g0 ? p->n_ranks + *gpus : r,
                                          .n_threads = threads_of(p, inv, h) };
        set_host_memory(p, r, h);
        for (int g = g0; g < g1; g++)
            set_gpu(p, (*gpus)++, r, h->gpus[g]);
    }
}

enum err_code place_devices(struct plan *p, const struct inventory *inv, struct err *e)
{
    int first = 0, gpus = 0;

    p->n_ranks = inventory_ranks(inv);
    p->n_gpus = inventory_gpus(inv);
    p->n_devices = p->n_ranks + p->n_gpus;
    p->ranks = calloc((size_t)p->n_ranks, sizeof *p->ranks);
    p->devices = calloc((size_t)p->n_devices, sizeof *p->devices);
    if (!p->ranks || !p->devices)
        return err_set(e, ERR_NOMEM, "no memory to plan for %d ranks", p->n_ranks);
    for (int h = 0; h < inv->n; h++) {
        set_ranks(p, inv, h, first, &gpus);
        first += inv->hosts[h].ranks;
    }
    return ERR_OK;
}
