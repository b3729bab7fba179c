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

enum { STALE_MS = 1000, LOOK_S = 1, LOOKS = 3, EXIT_GROUP_FAILED = 70 };

/* ---- The environment ----------------------------------------------------------------- */

/* mpirun says everything itself.  Under srun PMIx or PMI has the rank, and Slurm the rest; mpirun
 * under Slurm passes on what Slurm said to mpirun's own daemons, so its own words come first.  A
 * rank means nothing without what goes with it. */
static const struct words {
    const char *rank, *with, *size, *local_size, *hosts;
} words[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE",                                                 NULL                  },
    { "PMIX_RANK",           "PMIX_NAMESPACE",       "SLURM_STEP_NUM_TASKS", NULL, "SLURM_STEP_NUM_NODES"},
    { "PMI_RANK",            "PMI_SIZE",             "PMI_SIZE",             NULL, "SLURM_STEP_NUM_NODES"},
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
        job->rank = getenv(w->with) ? number_of(w->rank) : -1;
        if (job->rank < 0)
            continue;
        int size = number_of(w->size), here = number_of(w->local_size);
        job->size = size > 0 ? size : 0;
        job->one_host = job->size > 0 && (here == size || number_of(w->hosts) == 1);
    }
    return job->rank < 0 ? ERR_OK : check_stale(e);
}

/* ---- The other ranks of this host ------------------------------------------------------ */

/* mpirun does not mind a rank that ends with status 0 before any has begun MPI, and the others wait
 * for it.  The processes of this host are children of one daemon, mpirun's own here; what each is
 * stands in its environment. */
struct siblings {
    pid_t parent; /* 0: nothing is known */
    int n;
    char job[128]; /* what all of the job have as PMIX_NAMESPACE */
    int *rank_of;  /* [n] as seen so far, otherwise -1 */
    char *alive;   /* [n] */
};

/* A variable of a process.  Returns 1, 0: it has none, or has ended; -1: that cannot be read. */
static int variable_of(pid_t pid, const char *name, char *out, size_t n)
{
    char path[40], *word = NULL;
    size_t room = 0, length = strlen(name);
    int found = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return errno == ENOENT ? 0 : -1;
    while (!found && getdelim(&word, &room, '\0', f) > 0)
        if (strncmp(word, name, length) == 0 && word[length] == '=') {
            (void)snprintf(out, n, "%s", word + length + 1);
            found = 1;
        }
    if (!found && ferror(f))
        found = -1;
    free(word);
    (void)fclose(f);
    return found;
}

static pid_t parent_of(pid_t pid)
{
    char path[40];
    int parent = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%*d (%*[^)]) %*c %d", &parent) != 1)
        parent = 0;
    if (f)
        (void)fclose(f);
    return parent;
}

/* Shells, and a latentd that has started its rank, stand between. */
static pid_t find_parent(const char *job)
{
    char name[128];
    pid_t pid = getppid();

    while (pid > 1 && variable_of(pid, "PMIX_NAMESPACE", name, sizeof name) == 1 &&
           strcmp(name, job) == 0)
        pid = parent_of(pid);
    return pid > 1 ? pid : 0;
}

static void siblings_open(struct siblings *s)
{
    const char *job = getenv("PMIX_NAMESPACE");

    *s = (struct siblings){ .n = number_of("OMPI_COMM_WORLD_LOCAL_SIZE") };
    if (!job || s->n < 2 || number_of("OMPI_COMM_WORLD_LOCAL_RANK") < 0)
        return;
    (void)snprintf(s->job, sizeof s->job, "%s", job);
    s->rank_of = malloc((size_t)s->n * sizeof *s->rank_of);
    s->alive = malloc((size_t)s->n);
    if (!s->rank_of || !s->alive)
        return;
    for (int i = 0; i < s->n; i++)
        s->rank_of[i] = -1;
    s->parent = find_parent(s->job);
}

static void siblings_close(struct siblings *s)
{
    free(s->rank_of);
    free(s->alive);
}

/* Returns 0 if what this process is cannot be known. */
static int note_child(struct siblings *s, pid_t pid)
{
    char text[128];
    int got = variable_of(pid, "PMIX_NAMESPACE", text, sizeof text);

    if (got <= 0 || strcmp(text, s->job) != 0)
        return got == 0;
    if (variable_of(pid, "OMPI_COMM_WORLD_LOCAL_RANK", text, sizeof text) != 1)
        return 1;
    int local = atoi(text);
    if (local >= 0 && local < s->n) {
        s->alive[local] = 1;
        if (variable_of(pid, "OMPI_COMM_WORLD_RANK", text, sizeof text) == 1)
            s->rank_of[local] = atoi(text);
    }
    return 1;
}

/* The first that is not there, or -1: all are, or it cannot be known. */
static int find_missing(struct siblings *s)
{
    char path[64];
    int pid, known = 1;

    if (!s->parent)
        return -1;
    memset(s->alive, 0, (size_t)s->n);
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)s->parent, (int)s->parent);
    FILE *f = fopen(path, "re");
    while (f && known && fscanf(f, "%d", &pid) == 1)
        known = note_child(s, pid);
    if (f)
        (void)fclose(f);
    const char *gone = memchr(s->alive, 0, (size_t)s->n);
    return f && known && gone ? (int)(gone - s->alive) : -1;
}

/* Said by the first of those that are there.  The others let it speak: mpirun ends all at once
 * when one has left. */
static void say_missing(const struct siblings *s, int local)
{
    const char *first = memchr(s->alive, 1, (size_t)s->n);
    char host[65] = "", name[40];

    if (!first || first - s->alive != number_of("OMPI_COMM_WORLD_LOCAL_RANK")) {
        (void)sleep(2 * LOOK_S);
        return;
    }
    (void)gethostname(host, sizeof host - 1);
    if (s->rank_of[local] >= 0)
        (void)snprintf(name, sizeof name, "rank %d", s->rank_of[local]);
    else
        (void)snprintf(name, sizeof name, "the rank that is number %d of %d", local + 1, s->n);
    log_error("%s on host %s has ended before it came to the others, which end too; see what was "
              "started there",
              name, host);
}

/* ---- A guard of the start ------------------------------------------------------------- */

/* Until the next look, or until `end_s`.  Returns whether it was told to stop. */
static int guard_wait(struct comm_guard *g, double end_s)
{
    struct timespec until;
    double left_s = end_s - clock_seconds();
    int64_t ns = (int64_t)(1e9 * (left_s < 0 ? 0 : left_s < LOOK_S ? left_s : LOOK_S));
    int late = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    while (!g->done && late != ETIMEDOUT)
        late = pthread_cond_clockwait(&g->changed, &g->lock, CLOCK_MONOTONIC, &until);
    return g->done;
}

static void *guard_thread(void *arg)
{
    struct comm_guard *g = arg;
    struct siblings s;
    double end_s = clock_seconds() + g->ms * 1e-3;
    int missed = 0, last = -1;

    siblings_open(&s);
    pthread_mutex_lock(&g->lock);
    while (!guard_wait(g, end_s)) {
        int missing = find_missing(&s); /* not at once: mpirun may not have started it yet */
        missed = missing < 0 ? 0 : missing == last ? missed + 1 : 1;
        last = missing;
        if (missed >= LOOKS)
            say_missing(&s, missing);
        else if (clock_seconds() >= end_s)
            log_error("not all ranks have come within %.0f s of the start; one is stopped, or its "
                      "host cannot be reached",
                      g->ms * 1e-3);
        else
            continue;
        _exit(EXIT_GROUP_FAILED);
    }
    pthread_mutex_unlock(&g->lock);
    siblings_close(&s);
    return NULL;
}

void comm_guard_start(struct comm_guard *g, int ms)
{
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->ms = ms;
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
