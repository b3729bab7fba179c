/* SPDX-License-Identifier: MIT */
/* daemon/launch.h - one child process, started with all precautions. */
#ifndef DAEMON_LAUNCH_H
#define DAEMON_LAUNCH_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct launch {
    const char *const *argv;     /* NULL at the end */
    const char *const *more_env; /* [n_more_env], "NAME=value" over what this process has */
    int n_more_env;
    int death_signal; /* that the child gets when this thread ends */
};

/* Starts argv[0] (searched in PATH): a session of its own, no signal blocked or ignored, standard
 * input /dev/null, standard output and error into a pipe whose reading end is *out (non-blocking).
 * It is nice to this process; mpirun too, so that its ranks can say what they have seen before it
 * kills them.  Errors: ERR_IO; ERR_NOMEM.  A program that cannot be executed exits with 127. */
enum err_code launch_child(pid_t *pid, int *out, const struct launch *l, struct err *e);

/* The path of latentd-rank, which lies beside this program.  Errors: ERR_IO. */
enum err_code launch_find_rank(char *path, size_t n, struct err *e);

/* Removes everything in a folder, which is made if it is not there.  Errors: ERR_IO. */
enum err_code launch_clean_dir(const char *path, struct err *e);

#endif
