/* SPDX-License-Identifier: MIT */
/* tests/placement/devices_test.c - descriptions of machines that are not here. */
#include <unistd.h>

#include "placement/probe.h"
#include "support.h"
#include "tests/support/temp_dir.h"

static struct inventory read_inventory(const char *spec)
{
    struct inventory m;
    struct err e = { 0 };

    if (inventory_read(&m, spec, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return m;
}

static void the_example_of_the_manual(void **state)
{
    struct inventory m = read_inventory("2*host(ram=512G,bw=400G,gpus=4*H200,link=50G/3us)");

    (void)state;
    assert_int_equal(m.n, 2);
    assert_int_equal(inventory_gpus(&m), 8);
    assert_int_equal(inventory_ranks(&m), 8);
    const struct host *h = &m.hosts[1];
    assert_int_equal(h->ram_bytes, 512000000000);
    assert_true(h->ram_bw == 400e9 && h->link_bw == 50e9 && h->link_us == 3);
    assert_string_equal(h->gpus[3]->name, "H200");
    assert_int_equal(h->gpus[3]->memory_bytes, 141LL << 30);
    inventory_free(&m);
}

static void units_kinds_and_mixtures(void **state)
{
    struct inventory m = read_inventory(
        "host(ram=64Gi, bw=2*DDR4-3200, cores=8, numa=2),\n"
        "host( ram = 1.5T , bw=460.8GB, gpus=2*rtx4090+RTX3090, ranks=1, link=100M/0.1ms )");

    (void)state;
    assert_int_equal(m.hosts[0].ram_bytes, 64LL << 30);
    assert_true(m.hosts[0].ram_bw == 51.2e9);
    assert_int_equal(m.hosts[0].cores, 8);
    assert_int_equal(m.hosts[0].ranks, 2);
    assert_int_equal(m.hosts[1].ram_bytes, 1500000000000);
    assert_int_equal(m.hosts[1].n_gpus, 3);
    assert_string_equal(m.hosts[1].gpus[2]->name, "RTX3090");
    assert_int_equal(m.hosts[1].ranks, 1);
    assert_true(m.hosts[1].link_us == 100);
    inventory_free(&m);
}

static void one_clear_line_each(void **state)
{
    static const struct {
        const char *spec, *says;
    } rows[] = {
        {"",                                                 "no host"                },
        { "host()",                                          "a name is expected"     },
        { "host",                                            "a host is written host("},
        { "box(ram=1G,bw=1G)",                               "a host is written host("},
        { "host(ram=1G)",                                    "a host needs bw="       },
        { "host(bw=1G)",                                     "a host needs ram="      },
        { "host(ram=1G,bw=1G",                               "',' or ')' is missing"  },
        { "host(ram=1G,bw=1G)x",                             "the end is expected"    },
        { "host(ram=1G,bw=1G),",                             "a host is written"      },
        { "host(ram=-5G,bw=1G)",                             "ram is negative"        },
        { "host(ram=0,bw=1G)",                               "cannot be"              },
        { "host(ram=99999999T,bw=1G)",                       "cannot be"              },
        { "host(ram=1e99,bw=1G)",                            "units are"              },
        { "host(ram=nan,bw=1G)",                             "a number such as"       },
        { "host(ram=1X,bw=1G)",                              "units are"              },
        { "host(ram=1.2.3G,bw=1G)",                          "a number such as"       },
        { "host(ram=1G,ram=2G,bw=1G)",                       "ram is given twice"     },
        { "host(ram=1G,bw=1G,gpu=H200)",                     "the nearest is gpus"    },
        { "host(ram=1G,bw=1G,gpus=4*H200x)",                 "the nearest is H200"    },
        { "host(ram=1G,bw=1G,gpus=0*H200)",                  "1 to 64"                },
        { "host(ram=1G,bw=1G,gpus=-1*H200)",                 "1 to 64"                },
        { "host(ram=1G,bw=1G,gpus=65*H200)",                 "1 to 64"                },
        { "host(ram=1G,bw=1G,gpus=40*H200+40*H100)",         "more than 64 GPUs"      },
        { "host(ram=1G,bw=4*DDR9-1)",                        "no memory called DDR9-1"},
        { "host(ram=1G,bw=1G,ranks=0)",                      "1 to 1024"              },
        { "host(ram=1G,bw=1G,cores=x)",                      "a number of cores"      },
        { "host(ram=1G,bw=1G,link=5G)",                      "BANDWIDTH/LATENCY"      },
        { "host(ram=1G,bw=1G,link=5G/3)",                    "ns, us, ms or s"        },
        { "0*host(ram=1G,bw=1G)",                            "1 to 1024"              },
        { "-1*host(ram=1G,bw=1G)",                           "1 to 1024"              },
        { "99999999999999999999*host(ram=1G,bw=1G)",         "1 to 1024"              },
        { "1000*host(ram=1G,bw=1G,ranks=3)",                 "at most 2048 of each"   },
        { "64*host(ram=1G,bw=1G,gpus=64*H200)",              "at most 2048 of each"   },
        { "1000*host(ram=1G,bw=1G),1000*host(ram=1G,bw=1G)", "more than 1024 hosts"   },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct inventory m;
        struct err e = { 0 };
        if (inventory_read(&m, rows[i].spec, &e) != ERR_USAGE)
            fail_msg("'%s' is accepted", rows[i].spec);
        if (!strstr(e.msg, rows[i].says))
            fail_msg("'%s': '%s' does not say '%s'", rows[i].spec, e.msg, rows[i].says);
        assert_null(m.hosts);
    }
}

static void files_with_comments(void **state)
{
    struct inventory m;
    struct err e = { 0 };

    (void)state;
    assert_int_equal(temp_file("boxes", "# two boxes\nhost(ram=1G, # small\n  bw=10G),\n"
                                        "host(ram=2G,bw=zz)\n"),
                     0);
    assert_int_equal(inventory_read(&m, "@boxes", &e), ERR_USAGE);
    assert_non_null(strstr(e.msg, ":4: bw wants a number"));
    assert_int_equal(temp_file("boxes", "host(ram=1G, # small\n  bw=10G)\n"), 0);
    assert_int_equal(inventory_read(&m, "@boxes", &e), ERR_OK);
    assert_int_equal(m.n, 1);
    inventory_free(&m);
    assert_int_equal(inventory_read(&m, "@/nonexistent", &e), ERR_IO);
}

static void ranks_over_hosts(void **state)
{
    struct inventory m = read_inventory("host(ram=1G,bw=1G,ranks=3),2*host(ram=1G,bw=1G,ranks=1)");
    struct err e = { 0 };

    (void)state;
    assert_int_equal(inventory_set_ranks(&m, 2, &e), ERR_USAGE);
    assert_int_equal(inventory_set_ranks(&m, 3, &e), ERR_OK);
    for (int h = 0; h < 3; h++)
        assert_int_equal(m.hosts[h].ranks, 1);
    inventory_free(&m);
    m = read_inventory("host(ram=1G,bw=1G,ranks=3),2*host(ram=1G,bw=1G,ranks=1)");
    assert_int_equal(inventory_set_ranks(&m, 10, &e), ERR_OK);
    assert_int_equal(m.hosts[0].ranks, 6);
    assert_int_equal(m.hosts[1].ranks, 2);
    assert_int_equal(m.hosts[2].ranks, 2);
    inventory_free(&m);
}

static void this_machine(void **state)
{
    struct inventory m;
    struct err e = { 0 };

    (void)state;
    assert_int_equal(inventory_probe(&m, &e), ERR_OK);
    assert_int_equal(m.n, 1);
    assert_true(m.probed && m.guessed);
    assert_true(m.hosts[0].ram_bytes > 1 << 20 && m.hosts[0].cores >= 1 && m.hosts[0].ranks >= 1);
    assert_int_equal(m.hosts[0].n_gpus, 0);
    inventory_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_the_manual), cmocka_unit_test(units_kinds_and_mixtures),
        cmocka_unit_test(one_clear_line_each),       cmocka_unit_test(files_with_comments),
        cmocka_unit_test(ranks_over_hosts),          cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests(tests, temp_dir_enter, temp_dir_remove);
}
