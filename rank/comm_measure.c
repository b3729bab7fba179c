/* SPDX-License-Identifier: MIT */
#include "rank/comm_measure.h"

#include <stdlib.h>
#include <time.h>

enum { WARM_UP = 20, WIDTH = 7168, MANY = 128, TIMES_ONE = 1000, TIMES_MANY = 15 };

static const double least_latency_us = 0.1, least_bytes_per_s = 1e6;

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Rows as they are in use: just written by this core. */
static void touch_rows(struct comm *c, int64_t n_rows)
{
    int64_t width = comm_width(c), *rows = comm_rows(c);

    for (int64_t i = 0; i < n_rows; i++, rows += width + COMM_EXTRA)
        for (int64_t k = 0; k < width; k++)
            rows[k]++;
}

static enum err_code settle_often(struct comm *c, int64_t n_rows, int times, double *us,
                                  struct err *e)
{
    float *x = calloc((size_t)(n_rows * comm_width(c)), sizeof *x);
    int64_t *bad = calloc((size_t)n_rows, sizeof *bad);
    enum err_code rc = x && bad ? ERR_OK : err_set(e, ERR_NOMEM, "no memory to measure sums with");

    rc = comm_share_error(c, rc, e);
    for (int i = -WARM_UP; i < times && rc == ERR_OK; i++) {
        touch_rows(c, n_rows);
        double begin = now_us();
        comm_settle(c, cpu_kernels_pick(~0u), x, n_rows, bad, 0, 1);
        us[i < 0 ? 0 : i] = now_us() - begin;
        rc = comm_check(c, e);
    }
    free(x);
    free(bad);
    return rc;
}

/* us[times]: the least of all[ranks][times]. */
static void least(const double *all, int ranks, int times, double *us)
{
    for (int i = 0; i < times; i++)
        for (int r = 0; r < ranks; r++)
            if (r == 0 || all[(size_t)r * (size_t)times + (size_t)i] < us[i])
                us[i] = all[(size_t)r * (size_t)times + (size_t)i];
}

static enum err_code measure(struct comm *c, int64_t n_rows, int times, double *us, double *all,
                             struct comm_time *out, struct err *e)
{
    TRY(settle_often(c, n_rows, times, us, e));
    comm_all_gather(c, us, (size_t)times * sizeof *us, all);
    TRY(comm_check(c, e));
    least(all, comm_size(c), times, us);
    qsort(us, (size_t)times, sizeof *us, compare);
    *out = (struct comm_time){ us[times / 2], us[0] };
    return ERR_OK;
}

enum err_code comm_measure(struct comm *c, int64_t n_rows, int times, struct comm_time *out,
                           struct err *e)
{
    size_t n = (size_t)times, ranks = (size_t)comm_size(c);
    double *us = calloc(n * (1 + ranks), sizeof *us);

    if (!us) {
        comm_abort(c, "no memory to measure sums with");
        return err_set(e, ERR_NOMEM, "no memory to measure sums with");
    }
    enum err_code rc = measure(c, n_rows, times, us, us + n, out, e);
    free(us);
    return rc;
}

enum err_code comm_measure_cost(struct comm *c, struct comm_cost *out, struct err *e)
{
    struct comm_time one = { 0 }, many = { 0 };
    int hosts = 0;

    for (int r = 0; r < comm_size(c); r++)
        hosts = comm_host_index(c, r) >= hosts ? comm_host_index(c, r) + 1 : hosts;
    TRY(comm_reserve(c, MANY, WIDTH, e));
    TRY(comm_measure(c, 1, TIMES_ONE, &one, e));
    TRY(comm_measure(c, MANY, TIMES_MANY, &many, e));
    double n = hosts > 1 ? hosts : comm_size(c), bytes = 12.0 * WIDTH * (n - 1) / n;
    double row_us = (many.median_us - one.median_us) / (MANY - 1);
    double rate = row_us > 0 ? bytes / row_us * 1e6 : 1e6 * bytes * MANY / many.median_us;
    *out = (struct comm_cost){ comm_size(c), hosts, WIDTH, one.median_us, 0, rate };
    if (!(out->bytes_per_s >= least_bytes_per_s))
        out->bytes_per_s = least_bytes_per_s;
    out->latency_us = one.median_us - 1e6 * bytes / out->bytes_per_s;
    if (!(out->latency_us >= least_latency_us))
        out->latency_us = least_latency_us;
    return ERR_OK;
}
