/* SPDX-License-Identifier: MIT */
/* daemon/main.c - `latentd`: the coordinator.
 *
 * It opens the model's headers, its tokenizer and the journal, listens, and only then starts the
 * ranks: clients can ask and queue while weights are loaded.  The main thread watches the ranks,
 * the signals and the service manager; the others are the driver's, the journal's and the
 * server's.
 *
 * Under mpirun it is a part of one job (daemon/job.h).
 *
 * Exit status: 0 after SIGTERM or SIGINT, 1 a failure at run time, 2 wrong usage, 3 the model does
 * not fit; in a job 143 when ranks were cut off.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/log.h"
#include "base/priority.h"
#include "daemon/clock.h"
#include "daemon/core.h"
#include "daemon/job.h"
#include "daemon/server.h"
#include "session/session.h"

enum { STATUS_EVERY_MS = 1000, TOKEN_MAX = 256 };

struct daemon {
    struct core core;
    struct server *server;
    char token[TOKEN_MAX]; /* of clients over tcp:// */
    int signal_fd;
    uint64_t watchdog_us;
};

/* ---- Opening --------------------------------------------------------------- */

/* The token of --token-file: its first line. */
static enum err_code read_token(struct daemon *d, struct err *e)
{
    const char *path = d->core.opt->token_file;
    FILE *f = path ? fopen(path, "re") : NULL;

    if (!path)
        return ERR_OK;
    if (!f)
        return err_sys(e, "--token-file %s: cannot be read", path);
    char *line = fgets(d->token, sizeof d->token, f);
    (void)fclose(f);
    size_t n = line ? strcspn(d->token, "\r\n") : 0;
    d->token[n] = 0;
    if (n < 16 || n > TOKEN_MAX - 2) /* beyond that it was cut */
        return err_set(e, ERR_USAGE,
                       "--token-file %s: its first line is the token, of 16 to %d "
                       "characters",
                       path, TOKEN_MAX - 2);
    return ERR_OK;
}

static enum err_code start_server(struct daemon *d, struct err *e)
{
    struct service s = { .book = d->core.book,
                         .status = d->core.status,
                         .tokenizer = d->core.tokenizer,
                         .gguf = d->core.model->gguf,
                         .chat_format = d->core.opt->chat_format,
                         .token = *d->token ? d->token : NULL };
    char bound[128];

    TRY(server_start(&d->server, &s, e));
    for (size_t i = 0; i < d->core.opt->listen.n; i++) {
        TRY(server_listen(d->server, d->core.opt->listen.v[i], bound, sizeof bound, e));
        log_info("listening on %s", bound);
    }
    return ERR_OK;
}

/* Signals come through a descriptor, and in no thread that is made after this. */
static enum err_code take_signals(struct daemon *d, struct err *e)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP); /* this and the next two: nothing happens */
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, NULL))
        return err_sys(e, "signals");
    d->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    (void)signal(SIGPIPE, SIG_IGN);
    return d->signal_fd < 0 ? err_sys(e, "signals") : ERR_OK;
}

static enum err_code open_all(struct daemon *d, struct options *o, struct err *e)
{
    TRY(read_token(d, e));
    TRY(take_signals(d, e));
    TRY(core_open(&d->core, o, NULL, e));
    return start_server(d, e);
}

/* ---- Running --------------------------------------------------------------- */

static void tell_manager(struct daemon *d)
{
    static char last[256];
    char text[256];
    struct status_view v;

    status_read(d->core.status, &v);
    if (v.phase == PHASE_LOADING && v.load_total_bytes > 0)
        (void)snprintf(text, sizeof text, "loading, %.0f %% of %.1f GB",
                       100.0 * (double)v.load_done_bytes / (double)v.load_total_bytes,
                       1e-9 * (double)v.load_total_bytes);
    else if (v.healthy)
        (void)snprintf(text, sizeof text, "%d running, %d waiting", v.running, v.waiting);
    else
        (void)snprintf(text, sizeof text, "%s: %.200s", daemon_phase_name(v.phase), v.why);
    if (strcmp(text, last) != 0) {
        (void)sd_notifyf(0, "STATUS=%s", text);
        (void)snprintf(last, sizeof last, "%s", text);
    }
}

/* Reads the signals that came.  Returns the one that ends the process, or 0. */
static int read_signals(struct daemon *d)
{
    struct signalfd_siginfo s;
    int end = 0;

    while (read(d->signal_fd, &s, sizeof s) == sizeof s)
        if (s.ssi_signo == SIGTERM || s.ssi_signo == SIGINT)
            end = (int)s.ssi_signo;
    return end;
}

static enum err_code run(struct daemon *d, struct err *e)
{
    int64_t told_ms = 0, fed_ms = 0, wait_ms;
    struct pollfd fds[1 + RANKS_FDS];
    int sig;

    (void)sd_notify(0, "READY=1");
    for (;;) {
        TRY(ranks_poll(d->core.ranks, e));
        int64_t now = clock_monotonic_ms();
        if (now - told_ms >= STATUS_EVERY_MS) {
            tell_manager(d);
            told_ms = now;
        }
        if (d->watchdog_us && now - fed_ms >= (int64_t)(d->watchdog_us / 4000)) {
            (void)sd_notify(0, "WATCHDOG=1");
            fed_ms = now;
        }
        fds[0] = (struct pollfd){ .fd = d->signal_fd, .events = POLLIN };
        int n = 1 + ranks_fds(d->core.ranks, fds + 1, &wait_ms);
        if (d->watchdog_us && wait_ms > (int64_t)(d->watchdog_us / 4000))
            wait_ms = (int64_t)(d->watchdog_us / 4000);
        (void)poll(fds, (nfds_t)n, (int)wait_ms);
        if ((sig = read_signals(d)) != 0)
            break;
    }
    log_info("%s: stopping", sig == SIGTERM ? "SIGTERM" : "SIGINT");
    return ERR_OK;
}

/* *status: with which the process is to leave when all went well.  mpirun takes a rank that is cut
 * off for an accident, unless its process says otherwise. */
static enum err_code serve(struct options *o, int *status, struct err *e)
{
    static struct daemon d = { .signal_fd = -1 };

    d.core.opt = o;
    (void)sd_watchdog_enabled(0, &d.watchdog_us);
    enum err_code rc = open_all(&d, o, e);
    if (rc == ERR_OK)
        rc = run(&d, e);
    if (rc == ERR_CANCELLED)
        log_info("%s: stopping", e->msg);
    (void)sd_notify(0, "STOPPING=1");
    server_stop(&d.server); /* clients first */
    int in_order = core_close(&d.core);
    *status = in_order || d.core.job.rank < 0 ? 0 : 128 + SIGTERM;
    if (d.signal_fd >= 0)
        close(d.signal_fd);
    return rc == ERR_CANCELLED ? ERR_OK : rc;
}

int main(int argc, char **argv)
{
    struct options o = { 0 };
    struct err e = { 0 };
    int status = 0;

    log_keep_streams();
    log_set_program("latentd");
    log_set_lossy(1);           /* who reads no log does not stop the service */
    (void)umask(umask(0) | 07); /* the journal has what people wrote */
    /* One thread frees what another has made: in one arena the next can have it. */
    (void)mallopt(M_ARENA_MAX, 1);
    priority_short_turns();
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        if (!session_follows())
            printf("latentd %s\n", LATENTD_VERSION);
        return 0;
    }
    enum err_code rc = options_parse(&o, COMMAND_latentd, argc - 1, argv + 1, &e);
    if (rc == ERR_OK && o.help && !session_follows())
        options_print_help(stdout, COMMAND_latentd);
    if (rc == ERR_OK && !o.help && o.config)
        rc = options_read_config(&o, o.config, &e);
    if (rc == ERR_OK && !o.help) {
        log_set_quiet(o.quiet);
        rc = job_join(&o, &e);
    }
    if (rc == ERR_OK && !o.help)
        rc = serve(&o, &status, &e);
    options_free(&o);
    if (rc == ERR_OK)
        return status;
    session_let_rank_0_speak();
    log_error("%s", *e.msg ? e.msg : err_text(rc));
    return rc == ERR_USAGE ? 2 : rc == ERR_NOFIT ? 3 : 1;
}
