/* SPDX-License-Identifier: MIT */
#include "base/bind.h"

void bind_open(struct bind *b)
{
    *b = (struct bind){ .allowed = hwloc_bitmap_alloc() };
    if (b->allowed && hwloc_topology_init(&b->topology) != 0)
        b->topology = NULL;
    if (b->topology && (hwloc_topology_load(b->topology) != 0 ||
                        hwloc_get_cpubind(b->topology, b->allowed, HWLOC_CPUBIND_THREAD) != 0))
        bind_close(b);
}

void bind_close(struct bind *b)
{
    if (b->topology)
        hwloc_topology_destroy(b->topology);
    hwloc_bitmap_free(b->allowed);
    *b = (struct bind){ 0 };
}

int bind_part(const struct bind *b, int i, int n, int n_threads, hwloc_bitmap_t part)
{
    int pus = hwloc_get_nbobjs_inside_cpuset_by_type(b->topology, b->allowed, HWLOC_OBJ_PU);
    int begin = (int)((int64_t)pus * i / n), end = (int)((int64_t)pus * (i + 1) / n);

    if (n < 2 || pus < (int64_t)n * n_threads)
        return 0;
    hwloc_bitmap_zero(part);
    for (int p = begin; p < end; p++) {
        hwloc_obj_t pu =
            hwloc_get_obj_inside_cpuset_by_type(b->topology, b->allowed, HWLOC_OBJ_PU, (unsigned)p);
        hwloc_bitmap_or(part, part, pu->cpuset);
    }
    return 1;
}

void bind_thread(const struct bind *b, int i, int n, int n_threads)
{
    hwloc_bitmap_t part = b->topology ? hwloc_bitmap_alloc() : NULL;

    if (part && bind_part(b, i, n, n_threads, part))
        (void)hwloc_set_cpubind(b->topology, part, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(part);
}

void bind_release(const struct bind *b)
{
    if (b->topology)
        (void)hwloc_set_cpubind(b->topology, b->allowed, HWLOC_CPUBIND_THREAD);
}
