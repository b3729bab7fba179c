/* SPDX-License-Identifier: MIT */
/* daemon/launch.c - see launch.h. */
#include "daemon/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/priority.h"

enum { NICE = 5 };

extern char **environ;

/* The environment with `more` in place of what has the same names.  Only the array is new. */
static char **make_env(const struct launch *l)
{
    size_t n = 0, k = 0;

    while (environ[n])
        n++;
    char **env = calloc(n + (size_t)l->n_more_env + 1, sizeof *env);
    if (!env)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        int replaced = 0;
        for (int m = 0; m < l->n_more_env; m++) {
            size_t name = strcspn(l->more_env[m], "=") + 1;
            replaced |= strncmp(environ[i], l->more_env[m], name) == 0;
        }
        if (!replaced)
            env[k++] = environ[i];
    }
    for (int m = 0; m < l->n_more_env; m++)
        env[k++] = (char *)l->more_env[m];
    return env;
}

/* In the child, between fork and exec: nothing here may take a lock. */
static void become(const struct launch *l, char *const *env, pid_t parent, int null_fd, int out_fd)
{
    sigset_t none;

    (void)setsid();
    priority_give_way(NICE);
    sigemptyset(&none);
    for (int s = 1; s < SIGRTMAX; s++)
        (void)signal(s, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)dup2(null_fd, STDIN_FILENO);
    (void)dup2(out_fd, STDOUT_FILENO);
    (void)dup2(out_fd, STDERR_FILENO);
    (void)prctl(PR_SET_PDEATHSIG, l->death_signal);
    if (getppid() != parent)
        _exit(127);
    (void)execvpe(l->argv[0], (char *const *)l->argv, env);
    static const char text[] = "cannot be executed\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(127);
}

enum err_code launch_child(pid_t *pid, int *out, const struct launch *l, struct err *e)
{
    int pipe_fd[2];
    char **env = make_env(l);
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pid_t parent = getpid();

    if (!env || null_fd < 0 || pipe2(pipe_fd, O_CLOEXEC)) {
        free(env);
        if (null_fd >= 0)
            close(null_fd);
        return err_sys(e, "%s: cannot be started", l->argv[0]);
    }
    pid_t child = fork();
    if (child == 0)
        become(l, env, parent, null_fd, pipe_fd[1]);
    close(null_fd);
    close(pipe_fd[1]);
    free(env);
    if (child < 0) {
        close(pipe_fd[0]);
        return err_sys(e, "%s: cannot be started", l->argv[0]);
    }
    (void)fcntl(pipe_fd[0], F_SETFL, O_NONBLOCK);
    *pid = child;
    *out = pipe_fd[0];
    return ERR_OK;
}

enum err_code launch_find_rank(char *path, size_t n, struct err *e)
{
    ssize_t got = readlink("/proc/self/exe", path, n - 1);

    if (got < 0)
        return err_sys(e, "cannot find latentd-rank");
    path[got] = 0;
    char *slash = strrchr(path, '/');
    size_t room = n - (size_t)(slash + 1 - path);
    if (snprintf(slash + 1, room, "latentd-rank") >= (int)room)
        return err_set(e, ERR_IO, "cannot find latentd-rank: a path that is too long");
    return ERR_OK;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    if (where->level > 0)
        (void)remove(path);
    return 0;
}

enum err_code launch_clean_dir(const char *path, struct err *e)
{
    if (mkdir(path, 0700) && errno != EEXIST)
        return err_sys(e, "%s: cannot be made", path);
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS))
        return err_sys(e, "%s: cannot be emptied", path);
    return ERR_OK;
}
