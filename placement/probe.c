/* SPDX-License-Identifier: MIT */
/* placement/probe.c - see probe.h. */
#include "placement/probe.h"

#include <hwloc.h>
#include <stdlib.h>

#include "base/sysmem.h"

/* What memory of an unknown kind reads: 6 GB/s for each core, at most 40 GB/s a NUMA node. */
static double assumed_bandwidth(int cores, int numa)
{
    double by_core = 6e9 * cores, by_node = 40e9 * numa;

    return by_core < by_node ? by_core : by_node;
}

static int count_cores(hwloc_topology_t t)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int n = 0;

    if (set && hwloc_get_cpubind(t, set, HWLOC_CPUBIND_PROCESS) == 0)
        n = hwloc_get_nbobjs_inside_cpuset_by_type(t, set, HWLOC_OBJ_CORE);
    hwloc_bitmap_free(set);
    if (n <= 0)
        n = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE);
    return n > 0 ? n : 1;
}

static void fill_host(struct host *h, hwloc_topology_t t)
{
    int numa = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE);
    int64_t available = sysmem_available();
    hwloc_obj_t root = hwloc_get_root_obj(t);

    if (available == INT64_MAX && root)
        available = (int64_t)root->total_memory;
    *h = (struct host){ .ram_bytes = available,
                        .cores = count_cores(t),
                        .numa = numa > 0 ? numa : 1,
                        .ranks = numa > 0 ? numa : 1,
                        .link_bw = 1.25e9,
                        .link_us = 50,
                        .disk_bw = 2e9 };
    h->ram_bw = assumed_bandwidth(h->cores, h->numa);
    h->int8_rate = cpu_int8_rate(h->cores);
}

enum err_code inventory_probe(struct inventory *m, struct err *e)
{
    hwloc_topology_t t;

    *m = (struct inventory){ 0 };
    if (hwloc_topology_init(&t) != 0)
        return err_set(e, ERR_NOMEM, "no memory for the topology of this machine");
    if (hwloc_topology_load(t) != 0) {
        hwloc_topology_destroy(t);
        return err_set(e, ERR_IO, "the topology of this machine cannot be read; use --devices");
    }
    m->hosts = calloc(1, sizeof *m->hosts);
    if (m->hosts)
        fill_host(&m->hosts[0], t);
    hwloc_topology_destroy(t);
    if (!m->hosts)
        return err_set(e, ERR_NOMEM, "no memory for the description of this machine");
    m->n = m->probed = m->guessed = 1;
    return ERR_OK;
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
