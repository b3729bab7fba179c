/* SPDX-License-Identifier: MIT */
/* tests/support/mpi_job.h - mpirun as a child of a test: what it says, whom it starts, and
 * whether anybody is left when it has ended. */
#ifndef TESTS_SUPPORT_MPI_JOB_H
#define TESTS_SUPPORT_MPI_JOB_H

#include <sys/types.h>

enum { JOB_MAX_RANKS = 32, JOB_TEXT = 1 << 16 };

struct mpi_job {
    pid_t mpirun;
    int out_fd, status, ended; /* status: as waitpid gives it */
    size_t n_text;
    char text[JOB_TEXT]; /* stdout and stderr of all, as far as it fits */
};

/* Starts `mpirun OPTIONS... ARGV...` in the working folder, where its own files go too; argv ends
 * with NULL.  patient: leaves mpirun the second that it gives ranks to end when one has failed, as
 * it does by itself; otherwise it kills them at once, as the coordinator tells it to.  Exits when
 * it cannot. */
void job_start(struct mpi_job *j, const char *const *argv, int patient);

/* Reads what comes for up to `s` seconds, or until `until` is in the text `times` times (until
 * NULL: until mpirun has ended).  Returns whether that happened. */
int job_read(struct mpi_job *j, const char *until, int times, double s);

/* The process of a rank that printed "ready RANK PID", or 0. */
pid_t job_rank(const struct mpi_job *j, int rank);

/* Fills pids[JOB_MAX_RANKS] with the children of mpirun; returns how many. */
int job_children(const struct mpi_job *j, pid_t *pids);

/* Whether all of these processes are gone, or at least dead, within `s` seconds. */
int job_gone(const pid_t *pids, int n, double s);

/* Kills what is left and frees descriptors. */
void job_end(struct mpi_job *j, const pid_t *pids, int n);

/* The exit status of mpirun, 128 + the signal if it died of one. */
int job_exit(const struct mpi_job *j);

#endif
