/* SPDX-License-Identifier: MIT */
/* session/rank_main.c - `latentd-rank`: one rank, started by latentd.
 *
 * Rank 0 connects to the coordinator, loads, says what it is, and obeys (rank/serve.c); under
 * mpirun the others follow it.  A rank lives no longer than the coordinator: the kernel kills it
 * with its parent, and the end of the socket ends rank 0 at once, whatever it computes, and with it
 * all.
 *
 * Exit status: 0 after QUIT, 2 wrong usage, 3 the model does not fit, 70 the coordinator is gone,
 * otherwise 1.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "model/digest.h"
#include "options/options.h"
#include "rank/dial.h"
#include "rank/load_watch.h"
#include "rank/serve.h"
#include "session/plan_texts.h"
#include "session/session.h"

enum { EXIT_ALONE = 70, NICE = 5 };

/* ---- The coordinator ------------------------------------------------------ */

/* Ends the process at the end of the socket, in the middle of whatever it does. */
static void *watch_socket(void *arg)
{
    struct pollfd p = { .fd = *(const int *)arg, .events = POLLRDHUP };

    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
    _exit(EXIT_ALONE);
}

static enum err_code connect_back(int *fd, const struct options *o, struct err *e)
{
    struct link_hello h = { .version = LINK_VERSION, .pid = getpid() };
    const char *token =
        getenv("LATENTD_LINK_TOKEN"); /* never on a command line, which all can see */
    struct str out = { 0 };
    static pthread_t thread;
    static int watched;

    if (!o->connect || !token || strlen(token) >= sizeof h.token)
        return err_set(e, ERR_USAGE, "latentd-rank: is started by latentd, not by hand");
    memcpy(h.token, token, strlen(token) + 1);
    TRY(dial(fd, o->connect, e));
    watched = *fd;
    if (pthread_create(&thread, NULL, watch_socket, &watched))
        return err_set(e, ERR_NOMEM, "no thread to watch the coordinator");
    enum err_code rc = link_put_hello(&out, &h, e);
    if (rc == ERR_OK)
        rc = link_send(*fd, LINK_HELLO, out.data, out.len, e);
    str_free(&out);
    return rc;
}

/* Rank 0 of a job (daemon/job.h) is the coordinator's child and ends as that wants: with a QUIT,
 * after the step that runs.  Elsewhere the signal ends the ranks, and the coordinator starts
 * others. */
static void pass_on(int number)
{
    (void)kill(getppid(), number);
}

static void heed_job(void)
{
    if (!getenv("LATENTD_JOB"))
        return;
    (void)signal(SIGTERM, pass_on);
    (void)signal(SIGINT, pass_on);
}

/* What the coordinator hears before READY. */
struct loading {
    int fd;
    const struct plan *plan;
};

static enum err_code tell_plan(void *arg, const struct planning *x, struct err *e)
{
    const struct loading *l = arg;
    struct link_plan plan;
    struct str out = { 0 };

    TRY(plan_texts_make(&plan, x, e));
    enum err_code rc = link_put_plan(&out, &plan, e);
    if (rc == ERR_OK)
        rc = link_send(l->fd, LINK_PLAN, out.data, out.len, e);
    str_free(&out);
    link_plan_free(&plan);
    return rc;
}

static void tell_ranks(void *arg, const struct comm *c)
{
    const struct loading *l = arg;

    (void)serve_tell_ranks(l->fd, c, l->plan, NULL); /* the socket is watched by another */
}

/* ---- The rank ------------------------------------------------------------- */

/* What decides the bits beside the model and the type of the cache.  All CPU kernels give the same:
 * which of them ran is for the reader. */
static enum err_code describe(struct link_ready *r, const struct session *s,
                              const struct options *o, struct err *e)
{
    const struct plan *plan = &s->planning.plan;

    *r = (struct link_ready){ .limits = *engine_limits(s->engine),
                              .n_ranks = plan->n_ranks,
                              .mla = (int)o->mla,
                              .exact_math = o->exact_math };
    (void)snprintf(r->kernel_set, sizeof r->kernel_set, "latentd %s cpu %s%s%s%s", LATENTD_VERSION,
                   engine_isa(s->engine), o->exact_math ? " exact-math" : "",
                   o->router_groups ? " no-router-groups" : "", o->reduce ? " inexact-sums" : "");
    (void)snprintf(r->cache_type, sizeof r->cache_type, "%s",
                   plan_cache_name(plan->opt.cache_type));
    return model_digest(s->model->gguf, r->model_hash, e);
}

static enum err_code load_and_serve(int fd, const struct options *o, struct err *e)
{
    struct session s = { 0 };
    struct link_ready ready;
    enum err_code rc = session_open(&s, o, 0, e);

    struct loading loading = { .fd = fd, .plan = &s.planning.plan };
    if (rc == ERR_OK) {
        s.on_plan = tell_plan;
        s.on_plan_arg = &loading;
        load_watch_tell(tell_ranks, &loading);
        rc = session_load(&s, o, 0, e);
        load_watch_tell(NULL, NULL);
    }
    if (rc == ERR_OK)
        rc = describe(&ready, &s, o, e);
    if (rc == ERR_OK)
        rc = serve_run(fd, s.engine, &s.planning.plan, &ready, e);
    session_close(&s);
    return rc;
}

static enum err_code run(const struct options *o, struct err *e)
{
    int fd = -1, follows = 0;

    if (!o->model)
        return err_set(e, ERR_USAGE, "no model; give -m FILE");
    TRY(session_start(o, &follows, e));
    if (follows)
        return ERR_OK;
    heed_job();
    TRY(connect_back(&fd, o, e));
    enum err_code rc = load_and_serve(fd, o, e);
    if (rc != ERR_OK)
        serve_fault(fd, e->msg);
    return rc;
}

int main(int argc, char **argv)
{
    struct options o = { 0 };
    struct err e = { 0 };

    /* First of all, and then a look whether it came too late: with the parent goes the rank. */
    pid_t parent = getppid();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_ALONE);
    signal(SIGPIPE, SIG_IGN);
    log_keep_streams();
    log_set_program("latentd-rank");
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("latentd-rank %s\n", LATENTD_VERSION);
        return 0;
    }
    /* On its own host the daemon has made its children nice already. */
    if (getpriority(PRIO_PROCESS, 0) < NICE && setpriority(PRIO_PROCESS, 0, NICE))
        log_warn("cannot step behind the coordinator: %s", strerror(errno));
    enum err_code rc = options_parse(&o, COMMAND_latentd_rank, argc - 1, argv + 1, &e);
    if (rc == ERR_OK && o.help) {
        options_print_help(stdout, COMMAND_latentd_rank);
    } else if (rc == ERR_OK) {
        log_set_quiet(o.quiet);
        rc = run(&o, &e);
    }
    int failed = session_end();
    options_free(&o);
    if (failed)
        _exit(failed); /* that has been said; and what MPI would do now, waits for the dead */
    if (rc == ERR_OK)
        return 0;
    session_let_rank_0_speak();
    log_error("%s", *e.msg ? e.msg : err_text(rc));
    return rc == ERR_USAGE ? 2 : rc == ERR_NOFIT ? 3 : 1;
}
