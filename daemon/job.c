/* SPDX-License-Identifier: MIT */
/* daemon/job.c - see job.h. */
#include "daemon/job.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/team.h"
#include "daemon/launch.h"
#include "rank/comm.h"

/* Only rank 0 needs an address and a token: the others follow it. */
static enum err_code become_rank(struct options *o, const struct comm_job *job, struct err *e)
{
    struct text_list words = { 0 };
    char program[PATH_MAX];

    TRY(launch_find_rank(program, sizeof program, e));
    TRY(options_pass_on(o, COMMAND_latentd_rank, &words, e));
    const char **argv = calloc(words.n + 2, sizeof *argv);
    if (!argv)
        return err_set(e, ERR_NOMEM, "no memory for a command");
    argv[0] = program;
    for (size_t i = 0; i < words.n; i++)
        argv[1 + i] = words.v[i];
    if (team_is_crowded(job->one_host ? job->size : 1, (int)o->threads))
        (void)setenv("OMP_WAIT_POLICY", "passive", 0);
    (void)execv(program, (char *const *)argv);
    free(argv);
    free(words.v);
    return err_sys(e, "%s: cannot be executed", program);
}

enum err_code job_join(struct options *o, struct err *e)
{
    struct comm_job job;

    TRY(comm_find_job(&job, e));
    if (job.rank < 0)
        return ERR_OK;
    if (o->launch)
        return err_set(e, ERR_USAGE,
                       "--launch: this latentd was itself started by mpirun or srun, with its "
                       "ranks; leave one of the two out");
    if (o->ranks > 0 && job.size > 0 && o->ranks != job.size)
        return err_set(e, ERR_USAGE,
                       "--ranks %lld: mpirun has started %d; leave --ranks out, or give mpirun -np",
                       (long long)o->ranks, job.size);
    if (job.rank > 0)
        return become_rank(o, &job, e);
    pid_t parent = getppid();
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* an mpirun that was killed */
    if (getppid() != parent)
        return err_set(e, ERR_PEER, "mpirun has ended");
    return ERR_OK;
}
