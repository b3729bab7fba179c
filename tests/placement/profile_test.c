/* SPDX-License-Identifier: MIT */
/* tests/placement/profile_test.c - profiles there and back, and files that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "placement/profile.h"
#include "tests/support/temp_dir.h"

static const struct profile sample = {
    .cpu = "Test CPU",
    .cores = 4,
    .numa = 2,
    .reads = {{ 1, 0, 10e9 },         { 4, PROFILE_ALL_NODES, 44e9 }, { 2, PROFILE_ALL_NODES, 30e9 }},
    .n_reads = 3,
    .int8_ops_per_s = 5e11,
    .bf16_ops_per_s = 2e11,
    .f32_ops_per_s = 1e11,
    .disk_bytes_per_s = 3e9,
    .sums = { { 8, 1, 30, 20, 1e9 }, { 2, 1, 8, 3, 5e9 },            { 3, 3, 90, 80, 1e8 }         },
    .n_sums = 3,
};

static const char path[] = "devices.json";

static void there_and_back(void **state)
{
    struct profile p;
    struct err e = { 0 };

    (void)state;
    assert_int_equal(profile_write(&sample, path, &e), ERR_OK);
    assert_int_equal(profile_read(&p, path, &e), ERR_OK);
    assert_string_equal(p.cpu, "Test CPU");
    assert_int_equal(p.n_reads, 3);
    assert_int_equal(p.reads[1].node, PROFILE_ALL_NODES);
    assert_true(p.reads[1].bytes_per_s == 44e9 && p.int8_ops_per_s == 5e11);
    assert_true(p.disk_bytes_per_s == 3e9 && p.cores == 4 && p.numa == 2);
    assert_int_equal(p.n_sums, 3);
    assert_true(p.sums[2].ranks == 3 && p.sums[2].hosts == 3 && p.sums[2].row_us == 90);
    assert_true(p.sums[2].latency_us == 80 && p.sums[2].bytes_per_s == 1e8);
}

static void only_this_machine(void **state)
{
    struct inventory m = { 0 };
    struct err e = { 0 };

    (void)state;
    assert_int_equal(inventory_read(&m, "host(ram=1G,bw=1G,cores=4,numa=2)", &e), ERR_OK);
    m.guessed = 1;
    assert_true(profile_apply(&sample, &m, 2));
    assert_true(m.hosts[0].ram_bw == 44e9 && m.hosts[0].int8_rate == 5e11);
    assert_true(m.hosts[0].disk_bw == 3e9 && !m.guessed);
    assert_true(m.hosts[0].sum_us == 3 && m.hosts[0].sum_bw == 5e9); /* of 2 ranks */
    m.hosts[0].cores = 5;
    m.hosts[0].ram_bw = 1;
    assert_false(profile_apply(&sample, &m, 2));
    assert_true(m.hosts[0].ram_bw == 1);
    inventory_free(&m);
}

static void newer_sums_replace_older(void **state)
{
    struct profile p = sample;

    (void)state;
    profile_add_sum(&p, &(struct profile_sum){ 2, 1, 9, 4, 6e9 });
    assert_int_equal(p.n_sums, 3);
    assert_true(p.sums[0].ranks == 8 && p.sums[1].ranks == 3 && p.sums[2].row_us == 9);
    for (int ranks = 10; ranks < 40; ranks++)
        profile_add_sum(&p, &(struct profile_sum){ ranks, 1, 9, 4, 6e9 });
    assert_int_equal(p.n_sums, PROFILE_MAX_SUMS);
    assert_true(p.sums[0].ranks == 24 && p.sums[PROFILE_MAX_SUMS - 1].ranks == 39);
}

static void files_that_are_none(void **state)
{
#define REST \
    "\"int8_ops_per_s\":1e12,\"bf16_ops_per_s\":0,\"f32_ops_per_s\":0,\"disk_bytes_per_s\":0}"
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"",                                                                                     "devices.json:1"},
        { "[]",                                                                                  "version"       },
        { "{\"version\":2}",                                                                     "version 2"     },
        { "{\"version\":1,\"cpu\":3,\"cores\":0",                                                "devices.json:1"},
        { "{\"version\":1,\"cores\":0}",                                                         "cores"         },
        { "{\"version\":1,\"cores\":1e9}",                                                       "cores"         },
        { "{\"version\":1,\"cores\":1,\"numa\":1}",                                              "reads"         },
        { "{\"version\":1,\"cores\":1,\"numa\":1,\"reads\":[]," REST,                            "reads"         },
        { "{\"version\":1,\"cores\":1,\"numa\":1,\"reads\":[7]," REST,                           "threads"       },
        { "{\"version\":1,\"cores\":1,\"numa\":1,\"reads\":[{\"threads\":1,\"node\":-2}]," REST,
         "node"                                                                                                  },
        { "{\"version\":1,\"cores\":1,\"numa\":1,\"reads\":[{\"threads\":1,\"node\":0,"
          "\"bytes_per_s\":1e300}]," REST,
         "bytes_per_s"                                                                                           },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct profile p = sample;
        struct err e = { 0 };
        assert_int_equal(temp_file(path, rows[i].text), 0);
        if (profile_read(&p, path, &e) != ERR_FORMAT)
            fail_msg("'%s' is accepted", rows[i].text);
        if (!strstr(e.msg, rows[i].says))
            fail_msg("'%s': '%s' does not say '%s'", rows[i].text, e.msg, rows[i].says);
        assert_int_equal(p.n_reads, sample.n_reads); /* untouched */
    }
    struct profile p;
    struct err e = { 0 };
    assert_int_equal(profile_read(&p, "/nonexistent/profile", &e), ERR_IO);
    assert_int_equal(profile_write(&sample, "/nonexistent/profile", &e), ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(only_this_machine),
        cmocka_unit_test(newer_sums_replace_older),
        cmocka_unit_test(files_that_are_none),
    };

    return cmocka_run_group_tests(tests, temp_dir_enter, temp_dir_remove);
}
