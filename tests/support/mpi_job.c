/* SPDX-License-Identifier: MIT */
/* tests/support/mpi_job.c - see mpi_job.h. */
#include "tests/support/mpi_job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

enum { MAX_ARGS = 40 };

/* As the coordinator will start it, but as root too and with more ranks than cores. */
static const char *const options[] = { "mpirun",
                                       "--allow-run-as-root",
                                       "--oversubscribe",
                                       "--bind-to",
                                       "none",
                                       "--mca",
                                       "orte_tmpdir_base",
                                       "ompi",
                                       "--mca",
                                       "btl_vader_backing_directory",
                                       "ompi" };

/* When a rank fails the others are killed at once, not after a second. */
static const char *const hasty[] = { "--mca", "odls_base_sigkill_timeout", "0" };

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void run_mpirun(const char *const *argv, int patient, int out)
{
    const char *all[MAX_ARGS];
    char here[512], folder[520];
    int n = 0;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        all[n++] = options[i];
    for (size_t i = 0; !patient && i < sizeof hasty / sizeof *hasty; i++)
        all[n++] = hasty[i];
    while (*argv && n < MAX_ARGS - 1)
        all[n++] = *argv++;
    all[n] = NULL;
    if (!getcwd(here, sizeof here))
        die("getcwd");
    snprintf(folder, sizeof folder, "%s/ompi", here);
    for (int i = 0; i < n; i++)
        if (strcmp(all[i], "ompi") == 0)
            all[i] = folder;
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(126);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* MPI keeps memory to the end */
    execvp("mpirun", (char *const *)(void *)all);
    _exit(127);
}

void job_start(struct mpi_job *j, const char *const *argv, int patient)
{
    int ends[2];

    *j = (struct mpi_job){ .out_fd = -1 };
    if (pipe2(ends, O_CLOEXEC) != 0)
        die("pipe");
    j->mpirun = fork();
    if (j->mpirun < 0)
        die("fork");
    if (j->mpirun == 0)
        run_mpirun(argv, patient, ends[1]);
    close(ends[1]);
    j->out_fd = ends[0];
}

static int count(const char *text, const char *what)
{
    int n = 0;

    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

/* Reads once; what goes beyond the end of text is dropped. */
static void read_some(struct mpi_job *j, int ms)
{
    struct pollfd p = { .fd = j->out_fd, .events = POLLIN };
    char dropped[4096];
    size_t room = JOB_TEXT - 1 - j->n_text;

    if (j->out_fd < 0) {
        usleep((useconds_t)ms * 1000);
        return;
    }
    if (poll(&p, 1, ms) != 1)
        return;
    ssize_t n = room > 0 ? read(j->out_fd, j->text + j->n_text, room)
                         : read(j->out_fd, dropped, sizeof dropped);
    if (n > 0 && room > 0)
        j->n_text += (size_t)n;
    if (n == 0) {
        close(j->out_fd);
        j->out_fd = -1;
    }
}

int job_read(struct mpi_job *j, const char *until, int times, double s)
{
    double end = clock_seconds() + s;

    for (;;) {
        if (until && count(j->text, until) >= times)
            return 1;
        if (!j->ended && waitpid(j->mpirun, &j->status, WNOHANG) == j->mpirun)
            j->ended = 1;
        if (j->ended) {
            for (int i = 0; i < 100 && j->out_fd >= 0; i++)
                read_some(j, 1);
            return !until;
        }
        if (clock_seconds() > end)
            return 0;
        read_some(j, 5);
    }
}

pid_t job_rank(const struct mpi_job *j, int rank)
{
    char what[32];
    const char *at;

    snprintf(what, sizeof what, "ready %d ", rank);
    at = strstr(j->text, what);
    return at ? (pid_t)strtol(at + strlen(what), NULL, 10) : 0;
}

int job_children(const struct mpi_job *j, pid_t *pids)
{
    char path[64];
    int n = 0, pid;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)j->mpirun, (int)j->mpirun);
    FILE *f = fopen(path, "r");
    while (f && n < JOB_MAX_RANKS && fscanf(f, "%d", &pid) == 1)
        pids[n++] = pid;
    if (f)
        fclose(f);
    return n;
}

/* A zombie that nobody has waited for yet is dead. */
static int is_alive(pid_t pid)
{
    char path[64], line[256] = "";

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    const char *got = fgets(line, sizeof line, f);
    fclose(f);
    const char *state = got ? strrchr(line, ')') : NULL;
    return state && state[2] != 'Z' && state[2] != 'X';
}

int job_gone(const pid_t *pids, int n, double s)
{
    double end = clock_seconds() + s;

    for (;;) {
        int alive = 0;
        for (int i = 0; i < n; i++)
            alive += is_alive(pids[i]);
        if (alive == 0)
            return 1;
        if (clock_seconds() > end)
            return 0;
        usleep(2000);
    }
}

void job_end(struct mpi_job *j, const pid_t *pids, int n)
{
    for (int i = 0; i < n; i++)
        if (is_alive(pids[i]))
            kill(pids[i], SIGKILL);
    if (!j->ended) {
        kill(j->mpirun, SIGKILL);
        waitpid(j->mpirun, &j->status, 0);
        j->ended = 1;
    }
    if (j->out_fd >= 0)
        close(j->out_fd);
    j->out_fd = -1;
}

int job_exit(const struct mpi_job *j)
{
    return WIFSIGNALED(j->status) ? 128 + WTERMSIG(j->status) : WEXITSTATUS(j->status);
}
