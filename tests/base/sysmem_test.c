/* SPDX-License-Identifier: MIT */
/* tests/base/sysmem_test.c - limits of control groups, from files as the kernel writes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sysmem.h"
#include "tests/support/temp_dir.h"

/* Writes root/FOLDER/NAME, with the folders that it needs. */
static void put(const char *path, const char *text)
{
    char folder[256];

    (void)snprintf(folder, sizeof folder, "%s", path);
    for (char *at = strchr(folder, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        assert_true(mkdir(folder, 0755) == 0 || errno == EEXIST);
        *at = '/';
    }
    assert_int_equal(temp_file(path, text), 0);
}

static void put_group(const char *folder, const char *max, const char *high, const char *current,
                      const char *stat)
{
    const char *const names[] = { "max", "high", "current", "stat" };
    const char *const texts[] = { max, high, current, stat };
    char path[256];

    for (int i = 0; i < 4; i++) {
        (void)snprintf(path, sizeof path, "%s/memory.%s", folder, names[i]);
        put(path, texts[i]);
    }
}

static void the_nearest_limit_counts(void **state)
{
    static const char cached[] = "anon 5\nfile 400\ninactive_file 100\nactive_file 200\nshmem 50\n";

    (void)state;
    put_group("root/system.slice", "max\n", "max\n", "9000\n", cached);
    put_group("root/system.slice/latentd.service", "5000\n", "max\n", "1000\n", cached);
    put_group("root/system.slice/latentd.service/inner", "max\n", "max\n", "400\n", cached);
    put_group("root/high.slice", "5000\n", "2000\n", "1000\n", "inactive_file 0\n");
    put_group("root/full.slice", "500\n", "max\n", "1000\n", cached);
    put("root/memory/jail/memory.limit_in_bytes", "7000\n");
    put("root/memory/jail/memory.usage_in_bytes", "1000\n");
    put("root/memory/jail/memory.stat", "total_inactive_file 30\ntotal_active_file 70\n");

    static const struct {
        const char *list;
        int64_t left;
    } rows[] = {
        {"0::/\n",                                            INT64_MAX},
        { "",                                                 INT64_MAX},
        { "0::/system.slice\n",                               INT64_MAX},
        { "0::/system.slice/latentd.service\n",               4300     }, /* 1000 less 300 of files are used */
        { "0::/system.slice/latentd.service/inner/deep\n",    4300     },
        { "0::/high.slice\n",                                 1000     },
        { "0::/full.slice\n",                                 0        },
        { "9:name=systemd:/x\n4:memory:/jail\n0::/\n",        6100     }, /* version 1 */
        { "4:memory:/jail\n0::/system.slice/latentd.service", 4300     },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put("list", rows[i].list);
        assert_int_equal(sysmem_groups_available("list", "root"), rows[i].left);
    }
    assert_int_equal(sysmem_groups_available("nothing", "root"), INT64_MAX);
    /* A container sees its own group as the root. */
    put_group("root", "300\n", "max\n", "100\n", "inactive_file 0\n");
    put("list", "0::/\n");
    assert_int_equal(sysmem_groups_available("list", "root"), 200);
}

static void this_machine_has_memory(void **state)
{
    (void)state;
    assert_true(sysmem_available() > 1 << 20);
    assert_true(sysmem_node_available(0) == 0 || sysmem_node_available(0) > 1 << 20);
    assert_int_equal(sysmem_node_available(12345), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nearest_limit_counts),
        cmocka_unit_test(this_machine_has_memory),
    };
    return cmocka_run_group_tests_name("base/sysmem", tests, temp_dir_enter, temp_dir_remove);
}
