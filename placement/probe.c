/* SPDX-License-Identifier: MIT */
/* placement/probe.c - see probe.h. */
#include "placement/probe.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/bind.h"
#include "base/sysmem.h"

/* What memory of an unknown kind reads: 6 GB/s for each core, at most 40 GB/s a NUMA node. */
static double assumed_bandwidth(int cores, int numa)
{
    double by_core = 6e9 * cores, by_node = 40e9 * numa;

    return by_core < by_node ? by_core : by_node;
}

static int count_cores(const struct bind *b)
{
    int n = hwloc_get_nbobjs_inside_cpuset_by_type(b->topology, b->allowed, HWLOC_OBJ_CORE);

    return n > 0 ? n : 1;
}

/* Memory that is bound to nodes, as by numactl --membind: only what is left there. */
static void bind_memory(struct host *h, hwloc_topology_t t)
{
    hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    hwloc_membind_policy_t policy = HWLOC_MEMBIND_DEFAULT;
    int64_t bytes = 0;
    int node;

    if (nodes &&
        hwloc_get_membind(t, nodes, &policy, HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) == 0 &&
        policy == HWLOC_MEMBIND_BIND) {
        h->memory_nodes = hwloc_bitmap_to_ulong(nodes);
        hwloc_bitmap_foreach_begin(node, nodes) bytes += sysmem_node_available(node);
        hwloc_bitmap_foreach_end();
        h->ram_bytes = bytes < h->ram_bytes ? bytes : h->ram_bytes;
    }
    hwloc_bitmap_free(nodes);
}

static void fill_host(struct host *h, const struct bind *b)
{
    int numa = bind_count_nodes(b);
    int64_t available = sysmem_available();
    hwloc_obj_t root = hwloc_get_root_obj(b->topology);

    if (available == INT64_MAX && root)
        available = (int64_t)root->total_memory;
    *h = (struct host){ .ram_bytes = available,
                        .cores = count_cores(b),
                        .numa = numa,
                        .ranks = numa,
                        .link_bw = 1.25e9,
                        .link_us = 50,
                        .disk_bw = 2e9 };
    h->ram_bw = assumed_bandwidth(h->cores, h->numa);
    h->int8_rate = cpu_int8_rate(h->cores);
    (void)gethostname(h->name, sizeof h->name - 1);
    bind_memory(h, b->topology);
}

enum err_code inventory_probe(struct inventory *m, struct err *e)
{
    struct bind b;

    *m = (struct inventory){ 0 };
    bind_open(&b);
    if (!b.topology)
        return err_set(e, ERR_IO, "the topology of this machine cannot be read; use --devices");
    m->hosts = calloc(1, sizeof *m->hosts);
    if (m->hosts)
        fill_host(&m->hosts[0], &b);
    bind_close(&b);
    if (!m->hosts)
        return err_set(e, ERR_NOMEM, "no memory for the description of this machine");
    m->n = m->probed = m->guessed = 1;
    return ERR_OK;
}

int probe_ranks(int n_threads)
{
    struct bind b;
    hwloc_bitmap_t part = hwloc_bitmap_alloc();

    bind_open(&b);
    int n = bind_count_nodes(&b);
    n = part && bind_part(&b, 0, n, n_threads, part) ? n : 1;
    bind_close(&b);
    hwloc_bitmap_free(part);
    return n;
}

void probe_cpu_name(char *name, size_t size)
{
    char line[256], value[64];
    FILE *f = fopen("/proc/cpuinfo", "r");

    snprintf(name, size, "unknown CPU");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %63[^\n]", value) == 1) {
            snprintf(name, size, "%s", value);
            break;
        }
    if (f)
        fclose(f);
}
