/* SPDX-License-Identifier: MIT */
/* tests/rank/hosts_test.c COMM_WORKER LATENT - ranks on two hosts, made of network and UTS
 * namespaces.
 *
 * This process becomes host latent-a; a child that only sleeps holds host latent-b.  A pair of
 * virtual interfaces joins them, and mpirun reaches the other through a script with nsenter, as it
 * would through ssh.  Shared memory of MPI is off, so all it carries goes over the link.  Where
 * namespaces are not permitted the test is skipped.
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/log.h"
#include "tests/support/mpi_job.h"
#include "tests/support/temp_dir.h"

enum { SKIPPED = 77, RANKS = 4 };

static const double start_s = 60, deadline_s = 2, end_s = 60;

static const char *worker, *latent;
static pid_t other_host;

/* ---- Hosts ------------------------------------------------------------------------------ */

static int become_host(const char *name)
{
    return unshare(CLONE_NEWNET | CLONE_NEWUTS) == 0 && sethostname(name, strlen(name)) == 0;
}

static pid_t start_other_host(void)
{
    int ends[2];
    char ready = 0;

    if (pipe(ends) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ready = (char)become_host("latent-b");
        if (write(ends[1], &ready, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    if (read(ends[0], &ready, 1) != 1)
        ready = 0;
    close(ends[0]);
    close(ends[1]);
    return ready ? pid : -1;
}

/* Runs a line of shell; B stands for entering the other host. */
static int shell(const char *line)
{
    char all[2048];

    (void)snprintf(all, sizeof all, "B='nsenter -t %d -n -u --'; %s", (int)other_host, line);
    return system(all) == 0;
}

static int join_hosts(void)
{
    char line[256];

    snprintf(line, sizeof line, "ip link add va type veth peer name vb netns %d", (int)other_host);
    return shell(line) &&
           shell("ip link set lo up && ip addr add 10.77.0.1/24 dev va && "
                 "ip link set va up") &&
           shell("$B ip link set lo up && $B ip addr add 10.77.0.2/24 dev vb && "
                 "$B ip link set vb up");
}

static int write_agent(void)
{
    char text[256];

    snprintf(text, sizeof text, "#!/bin/sh\nshift\nexec nsenter -t %d -n -u -- sh -c \"$*\"\n",
             (int)other_host);
    return temp_file("agent", text) == 0 && chmod("agent", 0700) == 0;
}

static int set_up(void **state)
{
    return temp_dir_enter(state) == 0 && write_agent() ? 0 : -1;
}

/* ---- Jobs -------------------------------------------------------------------------------- */

enum { MAX_WORDS = 16 };

/* words: what every rank runs, up to NULL. */
static void start_words(struct mpi_job *j, const char *const *words)
{
    static char agent[600];
    snprintf(agent, sizeof agent, "%s/agent", temp_dir);
    const char *argv[10 + MAX_WORDS] = { "--host", "10.77.0.1:2,10.77.0.2:2",
                                         "-np",    "4",
                                         "--mca",  "plm_rsh_agent",
                                         agent,    "--mca",
                                         "btl",    "tcp,self" };

    for (int i = 0; i + 1 < MAX_WORDS && words[i]; i++)
        argv[10 + i] = words[i];
    job_start(j, argv, 1);
}

static void start(struct mpi_job *j, const char *mode, const char *a, const char *b)
{
    const char *words[] = { worker, mode, a, b, NULL };

    start_words(j, words);
}

static void run(const char *mode, const char *a, const char *b)
{
    static struct mpi_job j;

    start(&j, mode, a, b);
    int ended = job_read(&j, NULL, 0, 2 * start_s);
    job_end(&j, NULL, 0);
    if (!ended || job_exit(&j) != 0)
        fail_msg("%s: ended %d, exit %d: %s", mode, ended, job_exit(&j), j.text);
}

static void start_steps(struct mpi_job *j, pid_t *pids)
{
    start(j, "run", "2000", NULL);
    if (!job_read(j, "ready ", RANKS, start_s))
        fail_msg("the ranks did not start: %s", j->text);
    for (int r = 0; r < RANKS; r++)
        pids[r] = job_rank(j, r);
    job_read(j, NULL, 0, 0.3);
}

static void sums_are_exact(void **state)
{
    (void)state;
    run("sums", "2", "1");
    run("sums", "2", "2");
}

static void data_reaches_everybody(void **state)
{
    (void)state;
    run("data", NULL, NULL);
}

/* A model on both hosts, its middle experts on the other one: the logits of one process. */
static void a_model_gives_the_same_bits(void **state)
{
    static const char model[] = TEST_DATA "/models/tiny-v3-q4_k_m.gguf";
    static struct mpi_job j;
    const char *words[] = { latent,     "logits",
                            "-m",       model,
                            "--tokens", "5,77,1000,3,900,42",
                            "-t",       "1",
                            "-ot",      "blk\\.1\\..*exps=CPU1",
                            "-o",       "hosts.npy",
                            NULL };
    char line[1024];

    (void)state;
    (void)snprintf(line, sizeof line, "%s logits -q -m %s --tokens %s -t 1 -o one.npy", latent,
                   words[3], words[5]);
    assert_true(shell(line));
    start_words(&j, words);
    int ended = job_read(&j, NULL, 0, 2 * start_s);
    job_end(&j, NULL, 0);
    if (!ended || job_exit(&j) != 0 || !shell("cmp one.npy hosts.npy"))
        fail_msg("ended %d, exit %d: %s", ended, job_exit(&j), j.text);
}

static void term_to_rank_0_ends_all(void **state)
{
    static struct mpi_job j;
    pid_t pids[RANKS];

    (void)state;
    start_steps(&j, pids);
    kill(pids[0], SIGTERM);
    int ended = job_read(&j, NULL, 0, end_s), gone = job_gone(pids, RANKS, end_s);
    job_end(&j, pids, RANKS);
    if (!ended || !gone || job_exit(&j) != 0)
        fail_msg("ended %d, gone %d, exit %d: %s", ended, gone, job_exit(&j), j.text);
}

/* All ranks end in time.  Returns whether they say what is `named`. */
static int check_fault(struct mpi_job *j, const pid_t *pids, const char *named, double limit_s)
{
    double begin = clock_seconds();

    job_read(j, NULL, 0, 0.5); /* or the first 0.5 s of what they say */
    int gone = job_gone(pids, RANKS, limit_s - 0.5);
    double took = clock_seconds() - begin;
    int ended = job_read(j, NULL, 0, end_s);
    job_end(j, pids, RANKS);
    if (!gone || !ended || job_exit(j) == 0)
        fail_msg("gone %d after %.1f s, mpirun ended %d, exit %d: %s", gone, took, ended,
                 job_exit(j), j->text);
    return strstr(j->text, named) != NULL;
}

/* mpirun gives ranks a second for their line, which may be too short for one of them. */
static void check_named(int victim, int number_of_signal, const char *named)
{
    static struct mpi_job j;
    pid_t pids[RANKS];

    for (int tries = 3; tries > 0; tries--) {
        start_steps(&j, pids);
        kill(pids[victim], number_of_signal);
        if (check_fault(&j, pids, named, deadline_s + end_s))
            return;
    }
    fail_msg("no '%s' in %s", named, j.text);
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    check_named(3, SIGKILL, "rank 3 on host latent-b was lost");
}

static void a_stopped_rank_is_named(void **state)
{
    (void)state;
    check_named(2, SIGSTOP, "rank 2 on host latent-b is silent");
}

/* Neither side can end the other's ranks: both find out by themselves. */
static void a_cut_link_ends_both_sides(void **state)
{
    static const char named[] = "on host latent-b is silent";
    static struct mpi_job j;
    pid_t pids[RANKS];

    (void)state;
    start_steps(&j, pids);
    assert_true(shell("ip link set va down"));
    double begin = clock_seconds();
    int gone = job_gone(pids, RANKS, deadline_s + end_s);
    double took = clock_seconds() - begin;
    job_read(&j, named, 1, end_s); /* mpirun may stay: it cannot reach its other half */
    job_end(&j, pids, RANKS);
    if (!shell("ip link set va up"))
        fail_msg("the link does not come back");
    if (!gone || !strstr(j.text, named))
        fail_msg("gone %d after %.1f s: %s", gone, took, j.text);
    print_message("both sides gone %.1f s after the link was cut (deadline %.0f s)\n", took,
                  deadline_s);
}

static int skipped(const char *why)
{
    print_message("skipped: %s\n", why);
    return SKIPPED;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_exact),
        cmocka_unit_test(data_reaches_everybody),
        cmocka_unit_test(a_model_gives_the_same_bits),
        cmocka_unit_test(term_to_rank_0_ends_all),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_stopped_rank_is_named),
        cmocka_unit_test(a_cut_link_ends_both_sides),
    };

    if (argc != 3)
        return 2;
    worker = argv[1];
    latent = argv[2];
    if (!become_host("latent-a"))
        return skipped("network and UTS namespaces are not permitted here");
    other_host = start_other_host();
    if (other_host < 0 || !join_hosts())
        return skipped("no virtual interfaces between network namespaces here (ip, nsenter)");
    return cmocka_run_group_tests_name("rank/hosts", tests, set_up, temp_dir_remove);
}
