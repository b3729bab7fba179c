/* SPDX-License-Identifier: MIT */
/* tests/rank/comm_worker.c - what mpirun starts for processes_test and hosts_test.
 *
 *     comm_worker sums HOSTS THREADS    checks sums of several shapes; exit 0 when all are right
 *     comm_worker data                  the same of broadcast and gather
 *     comm_worker differ                ranks of other models and of one device; exit 3 if noticed
 *     comm_worker run DEADLINE_MS       steps until told: SIGTERM to rank 0 ends all with exit 0
 *     comm_worker hang DEADLINE_MS      the same, but the last rank hangs in step 50
 *
 * `run` prints "ready RANK PID" from each rank.  A failed group ends with exit 70.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/support/sums.h"

enum { MAX_THREADS = 8, EXIT_NOTICED = 3, EXIT_FAILED = 70 };

static int fail(const struct err *e)
{
    log_error("%s", e->msg);
    return 1;
}

/* ---- Sums ---------------------------------------------------------------------------- */

struct sum_thread {
    pthread_t id;
    const struct sums *sums;
    struct comm *c;
    float *x;
    int64_t *bad;
    int number, failures;
};

static void *sum_thread(void *arg)
{
    struct sum_thread *t = arg;

    t->failures = sums_settle(t->sums, t->c, t->x, t->bad, t->number);
    return NULL;
}

static int check_shape(struct comm *c, const struct sums_shape *shape)
{
    struct sum_thread threads[MAX_THREADS] = { { 0 } };
    struct sums sums;
    float *x = calloc((size_t)(shape->rows * shape->width), sizeof *x);
    int64_t *bad = calloc((size_t)shape->rows, sizeof *bad);
    int failures = 0;

    sums_init(&sums, shape);
    for (int i = 0; i < shape->threads; i++) {
        threads[i] = (struct sum_thread){ .sums = &sums, .c = c, .x = x, .bad = bad, .number = i };
        if (i > 0 && pthread_create(&threads[i].id, NULL, sum_thread, &threads[i]) != 0)
            exit(1);
    }
    sum_thread(&threads[0]); /* the thread that began MPI also carries what hosts exchange */
    for (int i = 0; i < shape->threads; i++) {
        if (i > 0)
            pthread_join(threads[i].id, NULL);
        failures += threads[i].failures;
    }
    if (failures > 0)
        log_error("rank %d: %d failures in %d rows of %d, reduce %d", comm_rank(c), failures,
                  (int)shape->rows, (int)shape->width, shape->reduce);
    sums_fini(&sums);
    free(x);
    free(bad);
    return failures;
}

static int run_sums(struct comm *c, int hosts, int threads)
{
    static const int64_t rows[] = { 1, 5, 260 };
    int failures = 0;
    struct err e = { 0 };

    if (comm_host_index(c, comm_size(c) - 1) + 1 != hosts) {
        log_error("%d hosts", comm_host_index(c, comm_size(c) - 1) + 1);
        return 1;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sums_shape shape = { comm_size(c), threads, hosts, rows[i], 1056, COMM_EXACT };
        failures += check_shape(c, &shape);
    }
    if (comm_check(c, &e) != ERR_OK)
        return EXIT_FAILED;
    return failures > 0;
}

/* ---- Data and verdicts ------------------------------------------------------------------ */

enum { LONG = 500000 };

/* What every rank shows of itself reaches all others; between hosts it takes some beats. */
static int see_figures(struct comm *c)
{
    int seen = 0;

    comm_add(c, COMM_LOADED, 1000 + comm_rank(c));
    comm_add(c, COMM_TO_LOAD, 2000);
    for (int tries = 0; tries < 6000 && seen < comm_size(c); tries++) {
        usleep(10000);
        for (seen = 0; seen < comm_size(c); seen++)
            if (comm_figure(c, seen, COMM_LOADED) != 1000 + seen ||
                comm_figure(c, seen, COMM_TO_LOAD) != 2000)
                break;
    }
    if (seen < comm_size(c))
        log_error("rank %d sees nothing of rank %d", comm_rank(c), seen);
    comm_barrier(c);
    return seen == comm_size(c);
}

static int run_data(struct comm *c)
{
    uint8_t *data = malloc(LONG), *all = malloc((size_t)LONG * (size_t)comm_size(c));
    int failures = 0, n = comm_size(c);

    for (int root = 0; root < n; root++) {
        for (int i = 0; i < LONG; i++)
            data[i] = comm_rank(c) == root ? (uint8_t)sums_mix((uint64_t)i + (uint64_t)root) : 0;
        comm_broadcast(c, data, LONG, root);
        for (int i = 0; i < LONG; i++)
            failures += data[i] != (uint8_t)sums_mix((uint64_t)i + (uint64_t)root);
    }
    memset(data, comm_rank(c), LONG);
    comm_all_gather(c, data, LONG, all);
    for (int i = 0; i < LONG * n; i++)
        failures += all[i] != i / LONG;
    free(data);
    free(all);
    return failures > 0 || !see_figures(c);
}

static int run_differ(struct comm *c)
{
    struct err e = { 0 };
    int last = comm_rank(c) == comm_size(c) - 1;
    enum err_code rc = comm_agree(c, "model", last ? "beef" : "cafe", &e);

    if (rc != ERR_PEER || !strstr(e.msg, "beef") || !strstr(e.msg, "rank 0"))
        return fail(&e);
    rc = comm_claim_devices(c, last ? "GPU-7 GPU-3" : comm_rank(c) == 0 ? "GPU-3" : "", &e);
    if (rc != ERR_USAGE || !strstr(e.msg, "GPU-3") || !strstr(e.msg, "ranks 0 and"))
        return fail(&e);
    return EXIT_NOTICED;
}

/* ---- Steps -------------------------------------------------------------------------------- */

static volatile sig_atomic_t wants_end;

static void on_term(int number)
{
    (void)number;
    wants_end = 1;
}

static int run_steps(struct comm *c, int hangs)
{
    enum { SUMS = 20, ROWS = 2 };
    struct {
        int64_t number;
        int64_t quit;
    } step = { 0, 0 };
    int64_t bad[ROWS];
    struct err e = { 0 };
    static float x[ROWS * 1056];

    printf("ready %d %d\n", comm_rank(c), (int)getpid());
    fflush(stdout);
    while (comm_check(c, &e) == ERR_OK) {
        step.quit = wants_end;
        comm_broadcast(c, &step, sizeof step, 0);
        if (comm_check(c, &e) != ERR_OK)
            break;
        if (step.quit)
            return 0;
        comm_set_step(c, step.number++);
        for (int i = 0; i < SUMS; i++) {
            while (hangs && step.number > 50 && comm_rank(c) == comm_size(c) - 1)
                pause();
            comm_settle(c, cpu_kernels_pick(~0u), x, ROWS, bad, 0, 1);
        }
        comm_set_step(c, -1);
        usleep(500);
    }
    return EXIT_FAILED;
}

/* ---- The program ------------------------------------------------------------------------- */

static int run(struct comm *c, int argc, char **argv)
{
    if (strcmp(argv[1], "sums") == 0 && argc == 4)
        return run_sums(c, atoi(argv[2]), atoi(argv[3]));
    if (strcmp(argv[1], "data") == 0)
        return run_data(c);
    if (strcmp(argv[1], "differ") == 0)
        return run_differ(c);
    return run_steps(c, strcmp(argv[1], "hang") == 0);
}

int main(int argc, char **argv)
{
    struct comm_options o;
    struct comm *c = NULL;
    struct err e = { 0 };

    if (argc < 2)
        return 2;
    int steps = strcmp(argv[1], "run") == 0 || strcmp(argv[1], "hang") == 0;
    comm_options_default(&o);
    o.max_rows = 260;
    o.width = 1056;
    if (strcmp(argv[1], "sums") == 0 && argc == 4)
        o.n_threads = atoi(argv[3]);
    if (steps && argc == 3) {
        o.deadline_ms = o.hang_ms = atoi(argv[2]);
        o.start_ms = 8 * o.deadline_ms;
    }
    signal(SIGTERM, on_term);
    if (comm_create_mpi(&c, &o, &e) != ERR_OK)
        return fail(&e);
    int code = run(c, argc, argv);
    comm_free(&c);
    if (code == EXIT_FAILED)
        _exit(EXIT_FAILED); /* a failed group does not finalize MPI */
    return code;
}
