/* SPDX-License-Identifier: MIT */
/* tests/base/bind_test.c - how cores are dealt to ranks, on machines that are not here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bind.h"

static struct bind machine(const char *description, const char *allowed)
{
    struct bind b = { .allowed = hwloc_bitmap_alloc() };

    assert_int_equal(hwloc_topology_init(&b.topology), 0);
    assert_int_equal(hwloc_topology_set_synthetic(b.topology, description), 0);
    assert_int_equal(hwloc_topology_load(b.topology), 0);
    assert_int_equal(hwloc_bitmap_list_sscanf(b.allowed, allowed), 0);
    return b;
}

static void assert_part(const struct bind *b, int i, int n, int n_threads, const char *want)
{
    hwloc_bitmap_t part = hwloc_bitmap_alloc();
    char text[64] = "none";

    if (bind_part(b, i, n, n_threads, part))
        hwloc_bitmap_list_snprintf(text, sizeof text, part);
    assert_string_equal(text, want);
    hwloc_bitmap_free(part);
}

static void cores_are_dealt(void **state)
{
    struct bind b = machine("numa:2 core:4 pu:1", "0-7");

    (void)state;
    assert_part(&b, 0, 2, 4, "0-3");
    assert_part(&b, 1, 2, 4, "4-7");
    assert_part(&b, 1, 3, 2, "2-4");
    assert_part(&b, 0, 1, 8, "none"); /* a rank by itself runs where it is */
    assert_part(&b, 0, 2, 5, "none"); /* too few */
    bind_close(&b);
    b = machine("numa:2 core:4 pu:1", "1,3-5");
    assert_part(&b, 0, 2, 2, "1,3");
    assert_part(&b, 1, 2, 1, "4-5");
    bind_close(&b);
}

static void nodes_are_counted(void **state)
{
    static const struct {
        const char *machine, *allowed;
        int nodes;
    } rows[] = {
        {"numa:1 core:4 pu:2",                "0-7",   1},
        { "numa:2 core:4 pu:1",               "0-7",   2},
        { "numa:2 core:4 pu:1",               "0-3",   1},
        { "numa:4 core:2 pu:1",               "1,4-7", 3},
        { "pack:2 [numa] [numa] core:2 pu:1", "0-3",
         2                                              }, /* two kinds of memory beside the same cores */
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bind b = machine(rows[i].machine, rows[i].allowed);
        assert_int_equal(bind_count_nodes(&b), rows[i].nodes);
        bind_close(&b);
    }
    assert_int_equal(bind_count_nodes(&(struct bind){ 0 }), 1);
}

/* Part of a node is left: its rank has no core of the other, unless that takes too few threads. */
static void nodes_are_not_mixed(void **state)
{
    struct bind b = machine("numa:2 core:4 pu:1", "3-7");

    (void)state;
    assert_part(&b, 0, 2, 1, "3");
    assert_part(&b, 1, 2, 1, "4-7");
    assert_part(&b, 0, 2, 2, "3-4"); /* two threads each */
    assert_part(&b, 1, 2, 2, "5-7");
    assert_part(&b, 1, 3, 1, "4-5"); /* nodes do not divide the ranks */
    bind_close(&b);
    b = machine("numa:2 core:4 pu:1", "0-7");
    assert_part(&b, 1, 4, 2, "2-3");
    assert_part(&b, 2, 4, 2, "4-5");
    bind_close(&b);
}

/* Numbers of the system may alternate between nodes; a rank gets one node all the same. */
static void order_is_the_topology(void **state)
{
    struct bind b = machine("numa:2 core:2 pu:1(indexes=0,2,1,3)", "0-3");

    (void)state;
    assert_part(&b, 0, 2, 2, "0,2");
    assert_part(&b, 1, 2, 2, "1,3");
    bind_close(&b);
}

static void this_machine_binds_and_lets_go(void **state)
{
    struct bind b;
    hwloc_bitmap_t now = hwloc_bitmap_alloc();

    (void)state;
    bind_open(&b);
    bind_thread(&b, 0, 2, 1);
    bind_release(&b);
    if (b.topology) {
        assert_int_equal(hwloc_get_cpubind(b.topology, now, HWLOC_CPUBIND_THREAD), 0);
        assert_true(hwloc_bitmap_isequal(now, b.allowed));
    }
    hwloc_bitmap_free(now);
    bind_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_are_dealt),
        cmocka_unit_test(nodes_are_counted),
        cmocka_unit_test(nodes_are_not_mixed),
        cmocka_unit_test(order_is_the_topology),
        cmocka_unit_test(this_machine_binds_and_lets_go),
    };
    return cmocka_run_group_tests_name("base/bind", tests, NULL, NULL);
}
