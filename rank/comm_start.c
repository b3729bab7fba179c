/* SPDX-License-Identifier: MIT */
/* rank/comm_start.c - before MPI is there: what the environment says, and a guard of the start. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "rank/comm_start.h"

enum { STALE_MS = 1000, EXIT_GROUP_FAILED = 70 };

/* ---- The environment ----------------------------------------------------------------- */

/* mpirun says everything itself.  Under srun PMIx or PMI has the rank, and Slurm the rest; mpirun
 * under Slurm passes on what Slurm said to mpirun's own daemons, so its own words come first. */
static const struct words {
    const char *rank, *size, *local_size, *hosts;
} words[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL                  },
    { "PMIX_RANK",           "SLURM_STEP_NUM_TASKS", NULL,                         "SLURM_STEP_NUM_NODES"},
    { "PMI_RANK",            "PMI_SIZE",             NULL,                         "SLURM_STEP_NUM_NODES"},
};

static const char *const server_variables[] = { "PMIX_SERVER_URI4", "PMIX_SERVER_URI3",
                                                "PMIX_SERVER_URI21", "PMIX_SERVER_URI2" };

/* The number in a variable, or -1. */
static int number_of(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
    char *end = NULL;
    long n = text ? strtol(text, &end, 10) : -1;

    return text && end != text && *end == '\0' && n >= 0 && n <= INT32_MAX ? (int)n : -1;
}

/* Whether somebody listens at an IPv4 address of this host; unsure counts as yes. */
static int answers(const char *host, int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int why = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t n = sizeof why;

    if (fd < 0 || inet_pton(AF_INET, host, &to.sin_addr) != 1) {
        if (fd >= 0)
            close(fd);
        return 1;
    }
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    int refused = connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS;
    if (!refused && poll(&p, 1, STALE_MS) == 1)
        refused = getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n) == 0 && why == ECONNREFUSED;
    close(fd);
    return !refused;
}

/* A shell that outlived its mpirun still has the variables; MPI_Init would end the process with
 * pages of text, or wait for ever. */
static enum err_code check_stale(struct err *e)
{
    for (size_t i = 0; i < sizeof server_variables / sizeof *server_variables; i++) {
        const char *uri = getenv(server_variables[i]);
        const char *at = uri ? strstr(uri, ";tcp4://") : NULL;
        char host[64];
        int port;
        if (!at || sscanf(at, ";tcp4://%63[0-9.]:%d", host, &port) != 2)
            continue;
        if (!answers(host, port))
            return err_set(e, ERR_PEER,
                           "the environment is that of an mpirun which has ended (%s=%.80s); unset "
                           "its OMPI_* and PMIX_* variables, or start with mpirun",
                           server_variables[i], uri);
        return ERR_OK;
    }
    return ERR_OK;
}

enum err_code comm_find_job(struct comm_job *job, struct err *e)
{
    *job = (struct comm_job){ .rank = -1 };
    for (size_t i = 0; i < sizeof words / sizeof *words && job->rank < 0; i++) {
        const struct words *w = &words[i];
        job->rank = number_of(w->rank);
        if (job->rank < 0)
            continue;
        int size = number_of(w->size), here = number_of(w->local_size);
        job->size = size > 0 ? size : 0;
        job->one_host = job->size > 0 && (here == size || number_of(w->hosts) == 1);
    }
    return job->rank < 0 ? ERR_OK : check_stale(e);
}

/* ---- A guard of the start ------------------------------------------------------------- */

static void *guard_thread(void *arg)
{
    struct comm_guard *g = arg;
    int late = 0;

    pthread_mutex_lock(&g->lock);
    while (!g->done && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&g->changed, &g->lock, &g->end);
    int done = g->done;
    pthread_mutex_unlock(&g->lock);
    if (done)
        return NULL;
    log_error("not all ranks have come within %.0f s of the start; one is stopped, or its host "
              "cannot be reached",
              g->ms * 1e-3);
    _exit(EXIT_GROUP_FAILED);
}

void comm_guard_start(struct comm_guard *g, int ms)
{
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    clock_gettime(CLOCK_REALTIME, &g->end);
    g->ms = ms;
    g->end.tv_sec += ms / 1000;
    g->started = pthread_create(&g->thread, NULL, guard_thread, g) == 0;
}

void comm_guard_stop(struct comm_guard *g)
{
    pthread_mutex_lock(&g->lock);
    g->done = 1;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (g->started)
        pthread_join(g->thread, NULL);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
}
