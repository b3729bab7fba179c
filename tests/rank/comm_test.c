/* SPDX-License-Identifier: MIT */
/* tests/rank/comm_test.c - the collectives among ranks that are threads of this process.
 *
 * Sums of made-up partials are compared by memcmp with sums made here one after the other, for
 * many numbers of ranks, threads, pretended hosts and rows, over several settlings in a row so
 * that both row buffers come round.  Faults: a bad count, a rank that drifts, gives up, dies or
 * hangs, and what the others then say.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "tests/support/sums.h"

enum { MAX_RANKS = 16 };

/* ---- Ranks as threads ------------------------------------------------------------ */

struct rank {
    struct comm *c;
    const struct sums_shape *shape;
    void (*work)(struct rank *r, int thread);
    float *x;     /* [rows][width] */
    int64_t *bad; /* [rows] */
    int failures;
    struct err e;
    enum err_code rc;
};

struct thread {
    pthread_t id;
    struct rank *rank;
    int number;
};

static void *run_thread(void *arg)
{
    struct thread *t = arg;

    t->rank->work(t->rank, t->number);
    return NULL;
}

static void run_ranks(struct rank *ranks, int n, int threads)
{
    struct thread all[MAX_RANKS * 3];
    int m = 0;

    for (int r = 0; r < n; r++)
        for (int i = 0; i < threads; i++) {
            all[m] = (struct thread){ .rank = &ranks[r], .number = i };
            if (pthread_create(&all[m].id, NULL, run_thread, &all[m]) != 0)
                fail_msg("no thread");
            m++;
        }
    for (int i = 0; i < m; i++)
        pthread_join(all[i].id, NULL);
}

static struct comm_options options_of(const struct sums_shape *s)
{
    struct comm_options o;

    comm_options_default(&o);
    o.reduce = s->reduce;
    o.n_threads = s->threads;
    o.hosts = s->hosts;
    o.max_rows = s->rows;
    o.width = s->width;
    return o;
}

static void open_ranks(struct rank *ranks, const struct sums_shape *s, const struct comm_options *o,
                       void (*work)(struct rank *, int))
{
    struct comm *comms[MAX_RANKS];
    struct err e = { 0 };
    enum err_code rc = s->ranks == 1 ? comm_create_self(comms, o, &e)
                                     : comm_create_threads(comms, s->ranks, o, &e);

    if (rc != ERR_OK)
        fail_msg("%s", e.msg);
    for (int r = 0; r < s->ranks; r++)
        ranks[r] = (struct rank){ .c = comms[r],
                                  .shape = s,
                                  .work = work,
                                  .x = calloc((size_t)(s->rows * s->width), sizeof(float)),
                                  .bad = calloc((size_t)s->rows, sizeof(int64_t)) };
}

static void free_comm(struct rank *r, int thread)
{
    (void)thread;
    comm_free(&r->c);
}

static void close_ranks(struct rank *ranks, int n)
{
    for (int r = 0; r < n; r++)
        ranks[r].work = free_comm;
    run_ranks(ranks, n, 1);
    for (int r = 0; r < n; r++) {
        free(ranks[r].x);
        free(ranks[r].bad);
    }
}

/* ---- Sums ------------------------------------------------------------------------- */

static struct sums sums;

static void sum_work(struct rank *r, int thread)
{
    int failures = sums_settle(&sums, r->c, r->x, r->bad, thread);

    __atomic_fetch_add(&r->failures, failures, __ATOMIC_RELAXED);
    if (thread == 0)
        r->rc = comm_check(r->c, &r->e);
}

static void check_sums(const struct sums_shape *s, const struct comm_options *o, double least_us)
{
    struct rank ranks[MAX_RANKS];

    sums_init(&sums, s);
    open_ranks(ranks, s, o, sum_work);
    run_ranks(ranks, s->ranks, s->threads);
    for (int r = 0; r < s->ranks; r++)
        if (ranks[r].rc != ERR_OK || ranks[r].failures > 0)
            fail_msg("%d ranks, %d threads, %d hosts, %d rows of %d, reduce %d: rank %d has %d "
                     "failures %s",
                     s->ranks, s->threads, s->hosts, (int)s->rows, (int)s->width, s->reduce, r,
                     ranks[r].failures, ranks[r].e.msg);
    for (int r = 0; r < s->ranks; r++)
        assert_true(comm_take_sum_us(ranks[r].c) >= least_us);
    close_ranks(ranks, s->ranks);
    sums_fini(&sums);
}

static void check_shape(const struct sums_shape *s)
{
    struct comm_options o = options_of(s);

    check_sums(s, &o, 0);
}

static void sums_are_exact(void **state)
{
    static const int counts[] = { 1, 2, 3, 4, 8 };
    static const int64_t rows[] = { 1, 2, 5, 37 };

    (void)state;
    for (size_t r = 0; r < sizeof counts / sizeof *counts; r++)
        for (int threads = 1; threads <= 3; threads++)
            for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
                for (int reduce = COMM_EXACT; reduce <= COMM_BF16; reduce++)
                    check_shape(&(struct sums_shape){ counts[r], threads, 1, rows[i], 273,
                                                      (enum comm_reduce)reduce });
}

static void sums_over_hosts_are_exact(void **state)
{
    static const int shapes[][2] = {
        {2,  2},
        { 3, 2},
        { 4, 2},
        { 3, 3},
        { 8, 3}
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int threads = 1; threads <= 2; threads++)
            for (int reduce = COMM_EXACT; reduce <= COMM_BF16; reduce++)
                for (int64_t rows = 1; rows <= 301; rows += 300)
                    check_shape(&(struct sums_shape){ shapes[i][0], threads, shapes[i][1], rows,
                                                      531, (enum comm_reduce)reduce });
}

static void slow_links_only_take_longer(void **state)
{
    struct sums_shape s = { 4, 2, 2, 3, 531, COMM_EXACT };
    struct comm_options o = options_of(&s);

    (void)state;
    o.delay_us = 3000;
    check_sums(&s, &o, SUMS_TURNS * 3000);
}

/* Work that is worth a second gate even where ranks share cores. */
static void many_rows_are_exact(void **state)
{
    (void)state;
    check_shape(&(struct sums_shape){ 3, 1, 1, 600, 1024, COMM_EXACT });
    check_shape(&(struct sums_shape){ 8, 2, 1, 600, 208, COMM_EXACT });
    check_shape(&(struct sums_shape){ 8, 1, 1, 600, 208, COMM_F32 });
    check_shape(&(struct sums_shape){ 2, 2, 1, 600, 1000, COMM_EXACT });
}

/* ---- Data of any length -------------------------------------------------------------- */

enum { LONG = 300000 };

static void fill_bytes(uint8_t *b, size_t n, int seed)
{
    for (size_t i = 0; i < n; i++)
        b[i] = (uint8_t)sums_mix(i + (uint64_t)seed * 1000003);
}

static int differs(const uint8_t *b, size_t n, int seed)
{
    for (size_t i = 0; i < n; i++)
        if (b[i] != (uint8_t)sums_mix(i + (uint64_t)seed * 1000003))
            return 1;
    return 0;
}

static void pass_work(struct rank *r, int thread)
{
    int rank = comm_rank(r->c), n = comm_size(r->c);
    size_t bytes_of[MAX_RANKS], all = 0;
    uint8_t *mine = malloc(LONG), *data = malloc((size_t)LONG * MAX_RANKS), *at = data;

    (void)thread;
    for (int root = 0; root < n; root++) {
        fill_bytes(data, LONG, rank == root ? 77 + root : 5);
        comm_broadcast(r->c, data, LONG, root);
        r->failures += differs(data, LONG, 77 + root);
    }
    for (int q = 0; q < n; q++)
        all += bytes_of[q] = (size_t)q * 70000 % 210001;
    fill_bytes(mine, LONG, rank);
    memset(data, 0, all + 1);
    comm_gather(r->c, mine, bytes_of, data);
    for (int q = 0; q < n; q++) {
        r->failures += rank == 0 && differs(at, bytes_of[q], q);
        at += bytes_of[q];
    }
    comm_all_gather(r->c, mine, 1001, data);
    for (int q = 0; q < n; q++)
        r->failures += differs(data + (size_t)q * 1001, 1001, q);
    comm_barrier(r->c);
    r->rc = comm_check(r->c, &r->e);
    free(mine);
    free(data);
}

static void data_reaches_everybody(void **state)
{
    static const int shapes[][2] = {
        {1,  1},
        { 2, 1},
        { 5, 1},
        { 3, 3},
        { 5, 2}
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct sums_shape s = { shapes[i][0], 1, shapes[i][1], 1, 16, COMM_EXACT };
        struct comm_options o = options_of(&s);
        struct rank ranks[MAX_RANKS];
        open_ranks(ranks, &s, &o, pass_work);
        run_ranks(ranks, s.ranks, 1);
        for (int r = 0; r < s.ranks; r++)
            if (ranks[r].rc != ERR_OK || ranks[r].failures > 0)
                fail_msg("%d ranks on %d hosts: rank %d has %d failures", s.ranks, s.hosts, r,
                         ranks[r].failures);
        close_ranks(ranks, s.ranks);
    }
}

/* ---- Verdicts ---------------------------------------------------------------------- */

static void verdict_work(struct rank *r, int thread)
{
    int rank = comm_rank(r->c);
    struct err e = { 0 };

    (void)thread;
    r->failures += comm_agree(r->c, "build", "1.0", &e) != ERR_OK;
    r->failures += comm_agree(r->c, "model", rank == 2 ? "beef" : "cafe", &e) != ERR_PEER;
    r->failures += !strstr(e.msg, "rank 2") || !strstr(e.msg, "beef") || !strstr(e.msg, "cafe");
    r->failures += comm_claim_devices(r->c, rank == 0 ? "" : rank == 1 ? "A B" : "C", &e) != ERR_OK;
    r->failures += comm_claim_devices(r->c,
                                      rank == 0   ? "B"
                                      : rank == 1 ? "A"
                                                  : "C A",
                                      &e) != ERR_USAGE;
    r->failures += !strstr(e.msg, "ranks 1 and 2") || !strstr(e.msg, "device A");
    r->failures += comm_share_error(r->c, ERR_OK, &e) != ERR_OK;
    enum err_code mine = rank > 0 ? err_set(&e, ERR_NOFIT, "%d GB short", rank) : ERR_OK;
    r->failures += comm_share_error(r->c, mine, &e) != ERR_NOFIT;
    r->failures += !strstr(e.msg, "rank 1") || !strstr(e.msg, "1 GB short");
    r->rc = comm_check(r->c, &r->e);
}

static void all_ranks_learn_the_same_verdict(void **state)
{
    struct sums_shape s = { 3, 1, 1, 1, 16, COMM_EXACT };
    struct comm_options o = options_of(&s);
    struct rank ranks[MAX_RANKS];

    (void)state;
    open_ranks(ranks, &s, &o, verdict_work);
    run_ranks(ranks, s.ranks, 1);
    for (int r = 0; r < s.ranks; r++)
        assert_int_equal(ranks[r].failures + (ranks[r].rc != ERR_OK), 0);
    close_ranks(ranks, s.ranks);
}

/* ---- Faults -------------------------------------------------------------------------- */

/* Without progress for HANG_MS a rank is at fault: longer than one that only waits for a core. */
enum { CULPRIT = 2, SUMS = 40, AT_SUM = 25, HANG_MS = 1000, PATIENCE_MS = 60000 };

static int settle_until_fault(struct rank *r, int thread, int culprit_digest)
{
    const struct sums_shape *s = r->shape;
    int64_t *rows;

    for (int i = 0; i < SUMS; i++) {
        if (thread == 0) {
            comm_set_step(r->c, i);
            rows = comm_rows(r->c);
            for (int64_t k = 0; k < s->rows; k++)
                rows[k * (s->width + COMM_EXTRA) + s->width + COMM_DIGEST] =
                    i == AT_SUM && comm_rank(r->c) == CULPRIT ? culprit_digest : 1;
        }
        if (i == AT_SUM && comm_rank(r->c) == CULPRIT && !culprit_digest)
            return 0;
        comm_settle(r->c, cpu_kernels_pick(~0u), r->x, s->rows, r->bad, thread, s->threads);
    }
    return 1;
}

static void check_fault(struct rank *ranks, int n, const char *what)
{
    for (int r = 0; r < n; r++) {
        char step[20];
        snprintf(step, sizeof step, "step %d", AT_SUM);
        if (ranks[r].rc != ERR_PEER || !strstr(ranks[r].e.msg, what) ||
            !strstr(ranks[r].e.msg, step))
            fail_msg("rank %d says \"%s\", not \"%s\" in %s", r, ranks[r].e.msg, what, step);
    }
}

static void drift_work(struct rank *r, int thread)
{
    settle_until_fault(r, thread, 2);
    if (thread == 0)
        r->rc = comm_check(r->c, &r->e);
}

static void give_up_work(struct rank *r, int thread)
{
    if (!settle_until_fault(r, thread, 0) && thread == 0)
        comm_abort(r->c, "no reason");
    if (thread == 0)
        r->rc = comm_check(r->c, &r->e);
}

/* The culprit's threads just end; it finds out afterwards, as its watch does. */
static void vanish_work(struct rank *r, int thread)
{
    if (!settle_until_fault(r, thread, 0))
        for (int ms = 0; thread == 0 && ms < PATIENCE_MS && comm_check(r->c, NULL) == ERR_OK; ms++)
            usleep(1000);
    if (thread == 0)
        r->rc = comm_check(r->c, &r->e);
}

static void run_fault(void (*work)(struct rank *, int), int hosts, int hang_ms, const char *what)
{
    struct sums_shape s = { 4, 2, hosts, 3, 64, COMM_EXACT };
    struct comm_options o = options_of(&s);
    struct rank ranks[MAX_RANKS];

    o.hang_ms = hang_ms;
    open_ranks(ranks, &s, &o, work);
    run_ranks(ranks, s.ranks, s.threads);
    check_fault(ranks, s.ranks, what);
    close_ranks(ranks, s.ranks);
}

static void a_rank_that_drifts_is_named(void **state)
{
    (void)state;
    run_fault(drift_work, 1, PATIENCE_MS, "has drifted");
    run_fault(drift_work, 4, PATIENCE_MS, "has drifted");
}

static void a_rank_that_gives_up_is_named(void **state)
{
    (void)state;
    run_fault(give_up_work, 1, PATIENCE_MS, "rank 2");
    run_fault(give_up_work, 2, PATIENCE_MS, "no reason");
}

static void a_rank_that_hangs_is_named(void **state)
{
    (void)state;
    run_fault(vanish_work, 1, HANG_MS, "rank 2");
    run_fault(vanish_work, 2, HANG_MS, "hangs");
}

/* One waits for a step much longer than a rank may hang, and nothing is wrong. */
static void wait_work(struct rank *r, int thread)
{
    int step = 0;

    (void)thread;
    comm_set_step(r->c, -1);
    if (comm_rank(r->c) == 0)
        usleep(1200000);
    comm_broadcast(r->c, &step, sizeof step, 0);
    r->rc = comm_check(r->c, &r->e);
}

static void waiting_for_a_step_is_no_fault(void **state)
{
    struct sums_shape s = { 3, 1, 1, 1, 16, COMM_EXACT };
    struct comm_options o = options_of(&s);
    struct rank ranks[MAX_RANKS];

    (void)state;
    o.hang_ms = 200;
    open_ranks(ranks, &s, &o, wait_work);
    run_ranks(ranks, s.ranks, 1);
    for (int r = 0; r < s.ranks; r++)
        if (ranks[r].rc != ERR_OK)
            fail_msg("%s", ranks[r].e.msg);
    close_ranks(ranks, s.ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_exact),
        cmocka_unit_test(sums_over_hosts_are_exact),
        cmocka_unit_test(slow_links_only_take_longer),
        cmocka_unit_test(many_rows_are_exact),
        cmocka_unit_test(data_reaches_everybody),
        cmocka_unit_test(all_ranks_learn_the_same_verdict),
        cmocka_unit_test(a_rank_that_drifts_is_named),
        cmocka_unit_test(a_rank_that_gives_up_is_named),
        cmocka_unit_test(a_rank_that_hangs_is_named),
        cmocka_unit_test(waiting_for_a_step_is_no_fault),
    };
    return cmocka_run_group_tests_name("rank/comm", tests, NULL, NULL);
}
