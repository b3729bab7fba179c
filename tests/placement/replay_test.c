/* SPDX-License-Identifier: MIT */
/* tests/placement/replay_test.c - published systems against the cost model.
 *
 * The engine table was fitted on the odd rows of tests/data/replay.tsv; of the even rows at least
 * 70 % must come out within 35 %.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/replay.h"

static void published_systems(void **state)
{
    struct replay r;
    int n = 0, near = 0;

    (void)state;
    replay_open(&r, TEST_DATA "/replay.tsv");
    for (int i = 0; i < r.n; i++) {
        struct replay_row *row = &r.rows[i];
        const struct efficiency *x = efficiency_by_name(row->engine);
        assert_non_null(x);
        double off = replay_tps(row, x) / row->tps - 1;
        if (!(fabs(row->file_gigabytes / row->gigabytes - 1) <= 0.08))
            fail_msg("row %d: the stand-in has %.0f GB, the file %.0f", row->number,
                     row->file_gigabytes, row->gigabytes);
        if (row->number % 2 == 1)
            continue;
        int ok = fabs(off) <= 0.35;
        print_message("row %2d %-13s published %5.1f predicted %5.1f (%+.0f %%)%s\n", row->number,
                      row->engine, row->tps, row->tps * (1 + off), 100 * off, ok ? "" : " far");
        near += ok;
        n++;
    }
    print_message("%d of %d even rows within 35 %%\n", near, n);
    assert_true(n >= 10);
    if (!(near >= 0.7 * n))
        fail_msg("only %d of %d", near, n);
    replay_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(published_systems) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
