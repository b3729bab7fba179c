/* SPDX-License-Identifier: MIT */
#include "cli/numa.h"

#include <hwloc.h>

/* The first CPU of every core of a node that this process may run on. */
static void add_node(struct numa *n, hwloc_topology_t t, hwloc_const_bitmap_t node, int index,
                     hwloc_const_bitmap_t allowed)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();

    for (hwloc_obj_t core = NULL;
         set && (core = hwloc_get_next_obj_inside_cpuset_by_type(t, node, HWLOC_OBJ_CORE, core));) {
        hwloc_bitmap_and(set, core->cpuset, allowed);
        int cpu = hwloc_bitmap_first(set);
        if (cpu < 0 || n->n_cpus == NUMA_MAX_CPUS)
            continue;
        n->cpus[n->n_cpus] = cpu;
        n->node[n->n_cpus++] = index;
    }
    hwloc_bitmap_free(set);
}

enum err_code numa_read(struct numa *n, struct err *e)
{
    hwloc_topology_t t;
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();

    n->n_cpus = 0;
    n->n_nodes = 0;
    if (!allowed || hwloc_topology_init(&t) != 0) {
        hwloc_bitmap_free(allowed);
        return err_set(e, ERR_NOMEM, "no memory for the topology of this machine");
    }
    if (hwloc_topology_load(t) == 0 && hwloc_get_cpubind(t, allowed, HWLOC_CPUBIND_PROCESS) == 0) {
        for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, o));)
            add_node(n, t, o->cpuset, n->n_nodes++, allowed);
    }
    hwloc_topology_destroy(t);
    hwloc_bitmap_free(allowed);
    if (n->n_cpus == 0)
        return err_set(e, ERR_IO,
                       "the cores of this machine cannot be listed; its devices cannot "
                       "be measured");
    return ERR_OK;
}
