/* SPDX-License-Identifier: MIT */
/* tests/support/make_model.h - a model with random weights, written by the program mkmodel. */
#ifndef TESTS_SUPPORT_MAKE_MODEL_H
#define TESTS_SUPPORT_MAKE_MODEL_H

#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* options: words separated by blanks.  0 on success. */
static inline int make_model(char *mkmodel, const char *options, char *path)
{
    enum { MAX_WORDS = 48 };
    char words[512];
    char *args[MAX_WORDS] = { mkmodel };
    int n = 1, status;
    pid_t pid;

    (void)snprintf(words, sizeof words, "%s", options);
    for (char *w = strtok(words, " "); w && n < MAX_WORDS - 2; w = strtok(NULL, " "))
        args[n++] = w;
    args[n] = path;
    if (posix_spawn(&pid, mkmodel, NULL, NULL, args, NULL) != 0 || waitpid(pid, &status, 0) != pid)
        return 1;
    return status;
}

#endif
