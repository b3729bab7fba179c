/* SPDX-License-Identifier: MIT */
/* rank/comm_mpi.c - ranks that mpirun or srun started; the only file that knows MPI.
 *
 * MPI brings the ranks together, and carries what the leaders of several hosts exchange, always
 * polled.  On one host nothing goes through MPI after the start: the room is a memfd of the leader
 * that its companions open through /proc, so it has no name that could be left behind.
 *
 * Ranks are on the same host when host name and boot id are the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "rank/comm_room.h"
#include "rank/comm_start.h"
#include "rank/comm_wire.h"

enum { TAG = 77, MAX_MAPS = 4 };

/* What ranks tell each other first.  The beginning never changes, so that builds which differ can
 * say so. */
struct card {
    char build[64];
    char host_name[COMM_NAME], boot_id[40];
    int32_t pid, n_threads;
    cpu_set_t cores;
};

/* Where the leader of a host keeps the room, and listens to other hosts. */
struct offer {
    struct comm_token room;
    struct wire_address address;
};

struct back {
    struct map {
        void *base;
        size_t bytes;
    } maps[MAX_MAPS];
    int n_maps, n_requests;
    MPI_Request *requests;
    int max_requests;
};

/* ---- Meeting ------------------------------------------------------------------------- */

static void sleep_ms(int ms)
{
    struct timespec t = { .tv_nsec = ms * 1000000L };

    nanosleep(&t, NULL);
}

/* Everybody's `bytes`, polled.  Nothing watches the others yet; the guard ends what does not end.
 */
static enum err_code meet(const void *mine, size_t bytes, void *all, struct err *e)
{
    MPI_Request *request = calloc(1, sizeof(MPI_Request));
    int done = 0;

    if (request && MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                                  MPI_COMM_WORLD, request) == MPI_SUCCESS)
        while (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done)
            sleep_ms(1);
    free(request);
    return done ? ERR_OK : err_set(e, ERR_PEER, "MPI cannot gather from all ranks");
}

static void read_line(const char *path, char *out, size_t n)
{
    FILE *f = fopen(path, "r");

    out[0] = '\0';
    if (f && fgets(out, (int)n, f))
        out[strcspn(out, "\n")] = '\0';
    if (f)
        fclose(f);
}

static void fill_card(struct card *mine, const struct comm_options *o)
{
    memset(mine, 0, sizeof *mine);
    (void)snprintf(mine->build, sizeof mine->build, "latentd %s (%zu)", LATENTD_VERSION,
                   sizeof *mine + sizeof(struct offer) + sizeof(struct room));
    if (gethostname(mine->host_name, sizeof mine->host_name - 1) != 0)
        (void)snprintf(mine->host_name, sizeof mine->host_name, "localhost");
    read_line("/proc/sys/kernel/random/boot_id", mine->boot_id, sizeof mine->boot_id);
    mine->pid = getpid();
    mine->n_threads = o->n_threads;
    if (sched_getaffinity(0, sizeof mine->cores, &mine->cores) != 0)
        CPU_SET(0, &mine->cores);
}

static int same_host(const struct card *a, const struct card *b)
{
    return strcmp(a->host_name, b->host_name) == 0 && strcmp(a->boot_id, b->boot_id) == 0;
}

/* Hosts numbered as their first ranks come. */
static enum err_code number_hosts(const struct card *cards, int n, int *host_of,
                                  char (*names)[COMM_NAME], struct err *e)
{
    int n_hosts = 0;

    for (int r = 0; r < n; r++) {
        host_of[r] = n_hosts;
        for (int q = 0; q < r && host_of[r] == n_hosts; q++)
            if (same_host(&cards[q], &cards[r]))
                host_of[r] = host_of[q];
        n_hosts += host_of[r] == n_hosts;
        memcpy(names[r], cards[r].host_name, COMM_NAME);
        if (strcmp(cards[r].build, cards[0].build) != 0)
            return err_set(e, ERR_PEER,
                           "rank %d on host %s is %.60s, rank 0 on host %s is %.60s; install the "
                           "same build everywhere",
                           r, cards[r].host_name, cards[r].build, cards[0].host_name,
                           cards[0].build);
    }
    if (n_hosts <= COMM_MAX_HOSTS)
        return ERR_OK;
    return err_set(e, ERR_UNSUPPORTED, "%d hosts: at most %d are possible", n_hosts,
                   COMM_MAX_HOSTS);
}

static void set_spin(struct comm *c, const struct card *cards)
{
    cpu_set_t cores;
    int threads = 0;

    CPU_ZERO(&cores);
    for (int r = 0; r < c->size; r++)
        if (c->places[r].host == c->host) {
            CPU_OR(&cores, &cores, &cards[r].cores);
            threads += cards[r].n_threads;
        }
    comm_group_set_spin(c, threads, CPU_COUNT(&cores));
}

/* ---- Memory of a host ------------------------------------------------------------------ */

static enum err_code map_fd(struct comm *c, int fd, size_t bytes, void **out, struct err *e)
{
    struct back *b = c->back;

    if (b->n_maps == MAX_MAPS)
        return err_set(e, ERR_NOMEM, "more than %d buffers in a group of ranks", MAX_MAPS);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return err_sys(e, "%.1f MB to share with other ranks cannot be mapped",
                       1e-6 * (double)bytes);
    madvise(base, bytes, MADV_HUGEPAGE);
    b->maps[b->n_maps++] = (struct map){ base, bytes };
    *out = base;
    return ERR_OK;
}

/* The descriptor stays open for the others; it is closed with the process. */
static enum err_code mpi_offer(struct comm *c, size_t bytes, void **out, struct comm_token *t,
                               struct err *e)
{
    int fd = memfd_create("latentd-ranks", MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        enum err_code rc = err_sys(e, "no memory to share with other ranks");
        if (fd >= 0)
            close(fd);
        return rc;
    }
    *t = (struct comm_token){
        {getpid(), fd}
    };
    return map_fd(c, fd, bytes, out, e);
}

static enum err_code mpi_take(struct comm *c, size_t bytes, const struct comm_token *t, void **out,
                              struct err *e)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)t->word[0],
                   (long long)t->word[1]);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e,
                       "memory of rank %d cannot be opened (%s); ranks of one host must share "
                       "user and process namespace",
                       c->leaders[c->host], path);
    enum err_code rc = map_fd(c, fd, bytes, out, e);
    close(fd);
    return rc;
}

/* ---- Between hosts ---------------------------------------------------------------------- */

static int grow_requests(struct back *b, int n)
{
    if (n <= b->max_requests)
        return 1;
    MPI_Request *grown = realloc(b->requests, (size_t)n * sizeof(MPI_Request));
    if (!grown)
        return 0;
    b->requests = grown;
    b->max_requests = n;
    return 1;
}

static int start_piece(struct comm *c, const struct comm_piece *p)
{
    struct back *b = c->back;
    int to = c->leaders[p->host], ok = 1;

    if (p->host == c->host)
        return 1;
    if (p->n_recv > 0)
        ok &= MPI_Irecv(p->recv, (int)p->n_recv, MPI_BYTE, to, TAG, MPI_COMM_WORLD,
                        &b->requests[b->n_requests++]) == MPI_SUCCESS;
    if (p->n_send > 0)
        ok &= MPI_Isend(p->send, (int)p->n_send, MPI_BYTE, to, TAG, MPI_COMM_WORLD,
                        &b->requests[b->n_requests++]) == MPI_SUCCESS;
    return ok;
}

static void mpi_exchange(struct comm *c, const struct comm_piece *pieces, int n)
{
    struct back *b = c->back;

    b->n_requests = 0;
    if (!grow_requests(b, 2 * n)) {
        comm_abort(c, "no memory for a message between hosts");
        return;
    }
    for (int i = 0; i < n; i++)
        if (!start_piece(c, &pieces[i])) {
            comm_raise(c, c->leaders[pieces[i].host], "cannot be reached", "MPI refuses a message");
            return;
        }
}

static int mpi_exchanged(struct comm *c)
{
    struct back *b = c->back;
    int done = 0;

    if (MPI_Testall(b->n_requests, b->requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
        comm_raise(c, c->rank, "cannot reach others", "MPI has lost a message");
    return done;
}

/* ---- Signals ------------------------------------------------------------------------------ */

static volatile sig_atomic_t told;

/* The watch looks at it, and all ranks end together. */
static void on_signal(int number)
{
    told = number;
}

/* What is ignored (nohup) stays so. */
static void handle_signals(void (*handler)(int))
{
    static const int numbers[] = { SIGTERM, SIGINT, SIGHUP };
    const struct sigaction how = { .sa_handler = handler, .sa_flags = SA_RESTART };
    struct sigaction before;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &how, NULL);
}

/* ---- Leaving ------------------------------------------------------------------------------ */

/* MPI_Finalize waits for the others; if one does not come the watch ends this process. */
static void mpi_leave(struct comm *c)
{
    if (!comm_failed(c))
        MPI_Finalize();
}

static void mpi_close(struct comm *c)
{
    struct back *b = c->back;
    int failed = c->room && comm_failed(c);

    if (c->told)
        handle_signals(SIG_DFL);
    comm_wire_free(&c->wire);
    if (!failed) /* else MPI may still hold on to pieces of it */
        for (int i = 0; i < b->n_maps; i++)
            munmap(b->maps[i].base, b->maps[i].bytes);
    free(b->requests);
    free(b);
    c->back = NULL;
}

static const struct comm_ops mpi_ops = { .name = "mpi",
                                         .processes = 1,
                                         .offer = mpi_offer,
                                         .take = mpi_take,
                                         .exchange = mpi_exchange,
                                         .exchanged = mpi_exchanged,
                                         .leave = mpi_leave,
                                         .close = mpi_close };

/* ---- Creation ------------------------------------------------------------------------------ */

/* A failure of any rank is everybody's; mine: ERR_OK or what failed here. */
static enum err_code share_failure(const struct comm *c, enum err_code mine, struct err *e)
{
    struct err own = { .code = ERR_OK }, *all = calloc((size_t)c->size, sizeof *all);
    enum err_code rc = all ? ERR_OK : err_set(e, ERR_NOMEM, "no memory for a group of ranks");

    if (!all)
        return rc;
    if (mine != ERR_OK && e)
        own = *e;
    own.code = mine;
    rc = meet(&own, sizeof own, all, e);
    for (int r = 0; r < c->size && rc == ERR_OK; r++)
        if (all[r].code != ERR_OK)
            rc = err_set(e, all[r].code, "rank %d on host %s: %.400s", r, comm_host(c, r),
                         all[r].msg);
    free(all);
    return rc;
}

/* The leaders make rooms and listen; then everybody enters. */
static enum err_code open_rooms(struct comm *c, struct offer *offers, struct err *e)
{
    struct offer mine = { 0 };
    size_t bytes = comm_group_bytes(c);
    void *base = NULL;
    enum err_code rc = ERR_OK;

    if (comm_is_leader(c)) {
        rc = mpi_offer(c, bytes, &base, &mine.room, e);
        if (rc == ERR_OK && c->n_hosts > 1)
            rc = comm_wire_listen(&c->wire, c->host, c->n_hosts, &mine.address, e);
    }
    TRY(share_failure(c, rc, e));
    TRY(meet(&mine, sizeof mine, offers, e));
    if (!comm_is_leader(c))
        rc = mpi_take(c, bytes, &offers[c->leaders[c->host]].room, &base, e);
    if (rc == ERR_OK) {
        comm_group_set_memory(c, base);
        atomic_store(&c->room->seats[c->local].pid, getpid());
    }
    return share_failure(c, rc, e);
}

static enum err_code connect_leaders(struct comm *c, const struct offer *offers, struct err *e)
{
    struct wire_address *of = calloc((size_t)c->n_hosts, sizeof *of);
    const char **names = calloc((size_t)c->n_hosts, sizeof *names);
    enum err_code rc = ERR_OK;

    if (!of || !names) {
        rc = err_set(e, ERR_NOMEM, "no memory to connect hosts");
    } else if (c->wire) {
        for (int h = 0; h < c->n_hosts; h++) {
            of[h] = offers[c->leaders[h]].address;
            names[h] = comm_host(c, c->leaders[h]);
        }
        rc = comm_wire_connect(c->wire, of, names, e);
    }
    free(of);
    free(names);
    return share_failure(c, rc, e);
}

static enum err_code sit_down(struct comm *c, const struct comm_options *o, int rank, int size,
                              struct err *e)
{
    struct card mine, *cards = calloc((size_t)size, sizeof *cards);
    struct offer *offers = calloc((size_t)size, sizeof *offers);
    char(*names)[COMM_NAME] = calloc((size_t)size, sizeof *names);
    int *host_of = calloc((size_t)size, sizeof *host_of);
    enum err_code rc = ERR_OK;

    if (!cards || !offers || !names || !host_of) {
        rc = err_set(e, ERR_NOMEM, "no memory for a group of %d ranks", size);
        goto out;
    }
    fill_card(&mine, o);
    if ((rc = meet(&mine, sizeof mine, cards, e)) != ERR_OK ||
        (rc = number_hosts(cards, size, host_of, names, e)) != ERR_OK ||
        (rc = comm_group_init(c, o, rank, size, host_of, names, e)) != ERR_OK)
        goto out;
    set_spin(c, cards);
    if ((rc = open_rooms(c, offers, e)) == ERR_OK)
        rc = connect_leaders(c, offers, e);
out:
    free(cards);
    free(offers);
    free(names);
    free(host_of);
    return rc;
}

static enum err_code start_mpi(int *rank, int *size, struct err *e)
{
    int level = 0;

    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
        return err_set(e, ERR_PEER, "MPI cannot start");
    if (level < MPI_THREAD_SERIALIZED)
        return err_set(e, ERR_UNSUPPORTED, "this MPI was built without threads");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (MPI_Comm_rank(MPI_COMM_WORLD, rank) != MPI_SUCCESS ||
        MPI_Comm_size(MPI_COMM_WORLD, size) != MPI_SUCCESS || *size > COMM_MAX_RANKS)
        return err_set(e, ERR_UNSUPPORTED, "at most %d ranks are possible", COMM_MAX_RANKS);
    return ERR_OK;
}

/* An MPI that does not know what started it takes every process for the only one. */
static enum err_code check_place(const struct comm_job *job, int rank, int size, struct err *e)
{
    char of[24] = "";

    if (rank == job->rank && (size > 1 || job->size <= 1))
        return ERR_OK;
    if (job->size > 0)
        (void)snprintf(of, sizeof of, " of %d", job->size);
    return err_set(
        e, ERR_PEER,
        "the environment says rank %d%s, but MPI rank %d of %d; start with mpirun, or with "
        "srun --mpi=pmix",
        job->rank, of, rank, size);
}

static enum err_code create(struct comm **out, const struct comm_options *o,
                            const struct comm_job *job, struct err *e)
{
    int rank = 0, size = 1;

    TRY(start_mpi(&rank, &size, e));
    TRY(check_place(job, rank, size, e));
    struct comm *c = comm_group_alloc(&mpi_ops);
    struct back *b = calloc(1, sizeof *b);
    if (!c || !b) {
        free(c);
        free(b);
        return err_set(e, ERR_NOMEM, "no memory for a rank");
    }
    c->back = b;
    enum err_code rc = sit_down(c, o, rank, size, e);
    if (rc == ERR_OK && size > 1) {
        if (o->heed_signals) {
            handle_signals(on_signal);
            c->told = &told;
        }
        rc = share_failure(c, comm_watch_start(c, e), e);
    }
    if (rc == ERR_OK && o->max_rows > 0)
        rc = comm_reserve(c, o->max_rows, o->width, e);
    if (rc == ERR_OK) {
        *out = c;
        return ERR_OK;
    }
    comm_watch_stop(c);
    mpi_close(c);
    comm_group_fini(c);
    free(c);
    return rc;
}

enum err_code comm_create_mpi(struct comm **out, const struct comm_options *o, struct err *e)
{
    struct comm_guard guard = { 0 };
    struct comm_job job;

    *out = NULL;
    TRY(comm_find_job(&job, e));
    if (job.rank < 0)
        return err_set(e, ERR_PEER, "not started by mpirun or srun; start the ranks with one");
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives its mpirun */
    comm_guard_start(&guard, o->start_ms);
    enum err_code rc = create(out, o, &job, e);
    comm_guard_stop(&guard);
    return rc;
}
