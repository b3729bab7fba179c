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

/* The cores of node `index` that may be used, to *cpus; returns the number of nodes. */
static int find_node(const struct bind *b, int index, hwloc_bitmap_t cpus)
{
    hwloc_bitmap_t left = hwloc_bitmap_dup(b->allowed);
    hwloc_obj_t node = NULL;
    int n = 0;

    while (left && (node = hwloc_get_next_obj_by_type(b->topology, HWLOC_OBJ_NUMANODE, node))) {
        if (!hwloc_bitmap_intersects(left, node->cpuset))
            continue;
        if (n++ == index)
            hwloc_bitmap_and(cpus, left, node->cpuset);
        hwloc_bitmap_andnot(left, left, node->cpuset);
    }
    hwloc_bitmap_free(left);
    return n;
}

int bind_count_nodes(const struct bind *b)
{
    int n = b->topology ? find_node(b, -1, NULL) : 0;

    return n > 0 ? n : 1;
}

static int count_pus(const struct bind *b, hwloc_const_bitmap_t cpus)
{
    return hwloc_get_nbobjs_inside_cpuset_by_type(b->topology, cpus, HWLOC_OBJ_PU);
}

/* Part i of n of these cores. */
static void deal(const struct bind *b, hwloc_const_bitmap_t cpus, int i, int n, hwloc_bitmap_t part)
{
    int64_t pus = count_pus(b, cpus);

    hwloc_bitmap_zero(part);
    for (int p = (int)(pus * i / n); p < (int)(pus * (i + 1) / n); p++) {
        hwloc_obj_t pu =
            hwloc_get_obj_inside_cpuset_by_type(b->topology, cpus, HWLOC_OBJ_PU, (unsigned)p);
        hwloc_bitmap_or(part, part, pu->cpuset);
    }
}

/* Whether every node has cores for its share of n ranks. */
static int fit_nodes(const struct bind *b, int n, int n_threads, hwloc_bitmap_t node)
{
    int nodes = bind_count_nodes(b), fits = n % nodes == 0;

    for (int k = 0; fits && k < nodes; k++) {
        (void)find_node(b, k, node);
        fits = count_pus(b, node) >= (int64_t)(n / nodes) * n_threads;
    }
    return fits;
}

int bind_part(const struct bind *b, int i, int n, int n_threads, hwloc_bitmap_t part)
{
    hwloc_bitmap_t node;

    if (n < 2 || !b->topology || count_pus(b, b->allowed) < (int64_t)n * n_threads ||
        !(node = hwloc_bitmap_alloc()))
        return 0;
    if (fit_nodes(b, n, n_threads, node)) {
        int per_node = n / bind_count_nodes(b);
        (void)find_node(b, i / per_node, node);
        deal(b, node, i % per_node, per_node, part);
    } else {
        deal(b, b->allowed, i, n, part);
    }
    hwloc_bitmap_free(node);
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
