/* SPDX-License-Identifier: MIT */
/* tests/tools/bench_comm.c - how long ranks take to sum rows of V3's width.
 *
 *     mpirun -np N bench_comm [exact|f32|bf16]
 *
 * Prints microseconds for 1 to 512 rows, as comm_measure.h defines them.  A rank reads what others
 * have just written and makes it zero when they have read it, so all of it crosses twice from
 * cache to cache; how fast that goes decides.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "rank/comm_measure.h"

enum { WIDTH = 7168, MAX_ROWS = 512 };

static enum err_code measure(struct comm *c, struct err *e)
{
    if (comm_rank(c) == 0)
        printf("%d ranks, rows of %d\n%6s %12s %12s\n", comm_size(c), WIDTH, "rows", "median us",
               "least us");
    for (int64_t rows = 1; rows <= MAX_ROWS; rows *= rows < 8 ? 2 : 8) {
        struct comm_time t;
        TRY(comm_measure(c, rows, rows < 64 ? 2000 : 60, &t, e));
        if (comm_rank(c) == 0)
            printf("%6d %12.1f %12.1f\n", (int)rows, t.median_us, t.min_us);
    }
    return ERR_OK;
}

int main(int argc, char **argv)
{
    struct comm_options o;
    struct comm *c = NULL;
    struct comm_job job;
    struct err e = { 0 };

    comm_options_default(&o);
    o.max_rows = MAX_ROWS;
    o.width = WIDTH;
    if (argc > 1 && strcmp(argv[1], "f32") == 0)
        o.reduce = COMM_F32;
    if (argc > 1 && strcmp(argv[1], "bf16") == 0)
        o.reduce = COMM_BF16;
    enum err_code rc = comm_find_job(&job, &e);
    if (rc == ERR_OK)
        rc = job.rank >= 0 ? comm_create_mpi(&c, &o, &e) : comm_create_self(&c, &o, &e);
    if (rc == ERR_OK)
        rc = measure(c, &e);
    comm_free(&c);
    if (rc != ERR_OK)
        log_error("%s", e.msg);
    return rc != ERR_OK;
}
