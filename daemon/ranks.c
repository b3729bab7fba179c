/* SPDX-License-Identifier: MIT */
/* daemon/ranks.c - see ranks.h.
 *
 * Reading order: the link; the command; output of children; a start; an end; the interface.
 */
#include "daemon/ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"
#include "daemon/clock.h"
#include "daemon/door.h"
#include "daemon/launch.h"

enum {
    MAX_WORDS = 256,
    MAX_ENV = 5,
    FIRST_WAIT_MS = 100, /* before the next start; doubled each time up to */
    MAX_WAIT_MS = 30000,
    STEADY_MS = 60000, /* a group that lived so long starts the doubling anew */
    LEAVE_MS = 500,    /* for leaving by itself, and after SIGTERM */
    TICK_MS = 1000,
    /* Ranks wait 120 s for each other (rank/comm.h); the rest is for ssh.  An mpirun that has lost
     * them may hang: of Open MPI 4.1.4 some 2 of 100 do when two ranks leave a stopped third. */
    START_MS = 180000,
};

struct ranks {
    struct ranks_options opt;
    struct door door;
    int lost_fd, out_fd;
    pid_t pid;      /* 0: none runs */
    pid_t rank_pid; /* of rank 0, if it is on this host; under mpirun another one than pid */
    int64_t started_ms, start_at_ms, wait_ms, kill_at_ms;
    int status; /* of the last that ended, as of waitpid */
    int told;   /* SIGTERM, because it does not leave */
    int linked;
    atomic_int served;
    struct str line, last_line; /* what children print: the line that grows, the last whole one */
    const char *words[MAX_WORDS + 1];
    char *launch_copy;
};

/* ---- The link -------------------------------------------------------------- */

static void accept_link(struct ranks *r)
{
    int fd;
    pid_t pid;

    while (door_answer(&r->door, &fd, &pid)) {
        if (r->pid == 0 || r->linked) {
            log_warn("ranks: a rank came unasked");
            close(fd);
            continue;
        }
        r->linked = 1;
        r->rank_pid = pid;
        if (!r->told)
            r->kill_at_ms = 0;
        r->opt.on_link(r->opt.on_link_arg, fd);
    }
}

/* ---- The command ---------------------------------------------------------- */

static enum err_code push(struct ranks *r, int *n, const char *word, struct err *e)
{
    if (*n == MAX_WORDS)
        return err_set(e, ERR_USAGE, "more than %d words to start the ranks", MAX_WORDS);
    r->words[(*n)++] = word;
    r->words[*n] = NULL;
    return ERR_OK;
}

/* The words of --launch, separated by blanks; '...' and "..." hold blanks together. */
static enum err_code split_launch(struct ranks *r, int *n, struct err *e)
{
    char *in = r->launch_copy, *out = in;

    while (*in) {
        char quote = 0;
        while (*in == ' ')
            in++;
        if (!*in)
            break;
        TRY(push(r, n, out, e));
        for (; *in && (quote || *in != ' '); in++) {
            if (quote ? *in == quote : *in == '\'' || *in == '"')
                quote = quote ? 0 : *in;
            else
                *out++ = *in;
        }
        if (quote)
            return err_set(e, ERR_USAGE, "--launch: a quote is not closed");
        in += *in != 0;
        *out++ = 0;
    }
    return *n ? ERR_OK : err_set(e, ERR_USAGE, "--launch: has no words");
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int by_mpirun(const struct ranks *r)
{
    return strcmp(base_name(r->words[0]), "mpirun") == 0;
}

/* What mpirun needs so that it ends when and as it is told, and leaves nothing. */
static enum err_code push_mpirun_options(struct ranks *r, int *n, struct err *e)
{
    const char *const more[] = { "--bind-to",
                                 "none",
                                 "--mca",
                                 "odls_base_sigkill_timeout",
                                 "0",
                                 "--mca",
                                 "orte_tmpdir_base",
                                 r->opt.run_dir,
                                 "--mca",
                                 "btl_vader_backing_directory",
                                 r->opt.run_dir,
                                 "-x",
                                 "LATENTD_LINK_TOKEN" };

    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        TRY(push(r, n, more[i], e));
    return ERR_OK;
}

static enum err_code build_command(struct ranks *r, struct err *e)
{
    static char count[16];
    int n = 0;

    if (r->opt.launch) {
        r->launch_copy = strdup(r->opt.launch);
        if (!r->launch_copy)
            return err_set(e, ERR_NOMEM, "no memory for the words of --launch");
        TRY(split_launch(r, &n, e));
    } else if (r->opt.n_ranks > 1 && !r->opt.in_job) {
        (void)snprintf(count, sizeof count, "%d", r->opt.n_ranks);
        TRY(push(r, &n, "mpirun", e));
        TRY(push(r, &n, "--oversubscribe", e));
        TRY(push(r, &n, "-np", e));
        TRY(push(r, &n, count, e));
    }
    if (n && by_mpirun(r))
        TRY(push_mpirun_options(r, &n, e));
    TRY(push(r, &n, r->opt.program, e));
    TRY(push(r, &n, "--connect", e));
    TRY(push(r, &n, r->door.addresses, e));
    for (int i = 0; i < r->opt.n_words; i++)
        TRY(push(r, &n, r->opt.words[i], e));
    return ERR_OK;
}

/* ---- Output of children ---------------------------------------------------- */

/* A whole line: it is the child's own words, with its name in front of them.  Under -q it says only
 * what matters. */
static void take_line(struct ranks *r)
{
    if (r->line.len == 0)
        return;
    log_error("%s", r->line.data);
    str_clear(&r->last_line);
    str_append(&r->last_line, r->line.data, r->line.len);
    str_clear(&r->line);
}

/* Reads what there is, always: a pipe that is full stops its writer. */
static void drain_output(struct ranks *r)
{
    char buf[4096];
    ssize_t n;

    while (r->out_fd >= 0 && (n = read(r->out_fd, buf, sizeof buf)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return; /* nothing there now */
        for (ssize_t i = 0; i < n; i++) {
            if (buf[i] == '\n' || r->line.len >= 2000)
                take_line(r);
            if (buf[i] != '\n' && buf[i] != '\r')
                str_append(&r->line, &buf[i], 1);
        }
    }
    if (r->out_fd >= 0) {
        take_line(r);
        close(r->out_fd);
        r->out_fd = -1;
    }
}

/* ---- A start --------------------------------------------------------------- */

static enum err_code start(struct ranks *r, struct err *e)
{
    /* mpirun refuses root without these; whoever made a root of latentd meant it. */
    const char *env[MAX_ENV] = { r->door.token_word, "OMPI_ALLOW_RUN_AS_ROOT=1",
                                 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" };
    int n_env = 3, direct = r->words[0] == r->opt.program;

    if (r->opt.crowded)
        env[n_env++] = "OMP_WAIT_POLICY=passive";
    if (r->opt.in_job)
        env[n_env++] = "LATENTD_JOB=1"; /* this one only there */
    struct launch l = { .argv = r->words,
                        .more_env = env,
                        .n_more_env = n_env,
                        .death_signal = direct ? SIGKILL : SIGTERM };

    r->started_ms = clock_monotonic_ms();
    if (!direct)
        TRY(launch_clean_dir(r->opt.run_dir, e));
    TRY(launch_child(&r->pid, &r->out_fd, &l, e));
    r->start_at_ms = 0;
    r->kill_at_ms = by_mpirun(r) ? r->started_ms + r->opt.start_ms : 0;
    r->told = 0;
    r->linked = 0;
    r->rank_pid = 0;
    log_info("ranks: process %d started (%s)", (int)r->pid, base_name(r->words[0]));
    return ERR_OK;
}

static void start_later(struct ranks *r)
{
    int64_t now = clock_monotonic_ms();

    if (r->wait_ms == 0 || now - r->started_ms > STEADY_MS)
        r->wait_ms = FIRST_WAIT_MS;
    else
        r->wait_ms = r->wait_ms * 2 < MAX_WAIT_MS ? r->wait_ms * 2 : MAX_WAIT_MS;
    r->start_at_ms = now + r->wait_ms;
    log_info("ranks: next start in %" PRId64 " ms", r->wait_ms);
}

/* ---- An end ---------------------------------------------------------------- */

static void signal_group(struct ranks *r, int sig)
{
    if (r->pid > 0)
        (void)kill(r->pid, sig);
    if (sig == SIGKILL && r->rank_pid > 0 && r->rank_pid != r->pid)
        (void)kill(r->rank_pid, sig);
}

/* Who has failed leaves by itself, mpirun too once a rank has left, and the status tells why: it is
 * not waited for long. */
static void end_group(struct ranks *r)
{
    if (r->pid > 0 && !r->kill_at_ms)
        r->kill_at_ms = clock_monotonic_ms() + LEAVE_MS;
}

/* mpirun must be told, to end its own; but an mpirun that ends already may die of SIGTERM without a
 * word. */
static void press_on(struct ranks *r, int64_t now)
{
    int direct = r->words[0] == r->opt.program;

    if (!r->linked && !r->told)
        log_warn("ranks: mpirun has brought none within %d s: it is ended", r->opt.start_ms / 1000);
    signal_group(r, direct || r->told ? SIGKILL : SIGTERM);
    r->kill_at_ms = now + (direct || r->told ? TICK_MS : 2 * LEAVE_MS);
    r->told = 1;
}

/* Looks whether the child has ended.  Returns 1 and its status if so. */
static int bury(struct ranks *r, int *status)
{
    if (r->pid <= 0 || waitpid(r->pid, status, WNOHANG) != r->pid)
        return 0;
    drain_output(r);
    if (r->out_fd >= 0) { /* a grandchild holds it still */
        close(r->out_fd);
        r->out_fd = -1;
    }
    if (WIFSIGNALED(*status))
        log_info("ranks: process %d was ended by signal %d", (int)r->pid, WTERMSIG(*status));
    else
        log_info("ranks: process %d left with status %d", (int)r->pid, WEXITSTATUS(*status));
    r->pid = r->rank_pid = 0;
    r->status = *status;
    return 1;
}

/* Whether another start would end as this one did: says why. */
static enum err_code check_hopeless(struct ranks *r, int status, struct err *e)
{
    const char *text = r->last_line.data ? r->last_line.data : "";
    static const char name[] = "latentd-rank: ";

    if (atomic_load(&r->served) || !WIFEXITED(status))
        return ERR_OK;
    if (strncmp(text, name, sizeof name - 1) == 0)
        text += sizeof name - 1;
    if (WEXITSTATUS(status) == 2)
        return err_set(e, ERR_USAGE, "%s", text);
    if (WEXITSTATUS(status) == 3)
        return err_set(e, ERR_NOFIT, "%s", text);
    if (WEXITSTATUS(status) == 127)
        return err_set(e, ERR_USAGE, "%s: cannot be executed; is it installed?", r->words[0]);
    return ERR_OK;
}

/* What the end of the ranks means in a job, where nobody starts them again. */
static enum err_code end_job(const struct ranks *r, int status, struct err *e)
{
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128;

    if (!r->opt.in_job)
        return ERR_OK;
    if (status == 0 || number == SIGTERM || number == SIGINT || number == SIGHUP)
        return err_set(e, ERR_CANCELLED, "the ranks were told to end");
    return err_set(e, ERR_PEER,
                   "the ranks have ended; the lines before say why; what was accepted goes on when "
                   "the job is started again");
}

/* ---- The interface --------------------------------------------------------- */

enum err_code ranks_create(struct ranks **out, const struct ranks_options *o, struct err *e)
{
    struct ranks *r = calloc(1, sizeof *r);
    enum err_code rc;

    if (!r)
        return err_set(e, ERR_NOMEM, "no memory for the ranks");
    r->opt = *o;
    if (!o->start_ms)
        r->opt.start_ms = START_MS;
    r->out_fd = -1;
    r->lost_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r->start_at_ms = clock_monotonic_ms();
    /* Where --launch begins its ranks, nobody here knows. */
    if ((rc = door_open(&r->door, o->launch != NULL, e)) != ERR_OK ||
        (rc = build_command(r, e)) != ERR_OK) {
        ranks_stop(&r);
        return rc;
    }
    *out = r;
    return ERR_OK;
}

int ranks_fds(struct ranks *r, struct pollfd *fds, int64_t *wait_ms)
{
    int64_t now = clock_monotonic_ms(), due = now + TICK_MS;
    int n = door_fds(&r->door, fds);

    fds[n++] = (struct pollfd){ .fd = r->lost_fd, .events = POLLIN };
    if (r->out_fd >= 0)
        fds[n++] = (struct pollfd){ .fd = r->out_fd, .events = POLLIN };
    if (r->pid == 0 && r->start_at_ms && r->start_at_ms < due)
        due = r->start_at_ms;
    if (r->kill_at_ms && r->kill_at_ms < due)
        due = r->kill_at_ms;
    *wait_ms = due > now ? due - now : 0;
    return n;
}

enum err_code ranks_poll(struct ranks *r, struct err *e)
{
    int64_t now = clock_monotonic_ms();
    uint64_t lost = 0;
    int status;

    drain_output(r);
    accept_link(r);
    if (read(r->lost_fd, &lost, sizeof lost) == sizeof lost && r->linked)
        end_group(r);
    if (r->kill_at_ms && now >= r->kill_at_ms)
        press_on(r, now);
    if (bury(r, &status)) {
        TRY(check_hopeless(r, status, e));
        TRY(end_job(r, status, e));
        start_later(r);
    }
    if (r->pid == 0 && r->start_at_ms && now >= r->start_at_ms) {
        struct err why = { 0 };
        if (start(r, &why) != ERR_OK) {
            log_warn("ranks: %s", why.msg);
            start_later(r);
        }
    }
    return ERR_OK;
}

void ranks_lost(struct ranks *r)
{
    uint64_t one = 1;

    if (write(r->lost_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        log_warn("ranks: %s", strerror(errno));
}

void ranks_served(struct ranks *r)
{
    atomic_store(&r->served, 1);
}

pid_t ranks_pid(const struct ranks *r)
{
    return r->rank_pid;
}

/* Waits for the child at most ms.  Returns 1 once it is gone. */
static int await_end(struct ranks *r, int64_t ms)
{
    int64_t until = clock_monotonic_ms() + ms;
    int status;

    do {
        drain_output(r);
        if (r->pid == 0 || bury(r, &status))
            return 1;
        (void)poll(NULL, 0, 5);
    } while (clock_monotonic_ms() < until);
    return 0;
}

int ranks_stop(struct ranks **rp)
{
    struct ranks *r = *rp;

    if (!r)
        return 1;
    if (r->pid > 0 && !await_end(r, r->linked ? LEAVE_MS : 0)) {
        signal_group(r, SIGTERM);
        if (!await_end(r, LEAVE_MS)) {
            signal_group(r, SIGKILL);
            (void)await_end(r, 2 * LEAVE_MS);
        }
    }
    door_close(&r->door);
    if (r->lost_fd >= 0)
        close(r->lost_fd);
    if (r->out_fd >= 0)
        close(r->out_fd);
    str_free(&r->line);
    str_free(&r->last_line);
    free(r->launch_copy);
    int in_order = r->status == 0;
    free(r);
    *rp = NULL;
    return in_order;
}
