/* SPDX-License-Identifier: MIT */
/* daemon/job.h - `mpirun -np N latentd`: daemon and ranks as one job.
 *
 * Every process of mpirun becomes a rank.  Only that of rank 0 stays latentd, starts the rank as
 * its child, and ends with it: nobody starts ranks again, that is left to whoever starts the job.
 * What its journal has goes on then.
 */
#ifndef DAEMON_JOB_H
#define DAEMON_JOB_H

#include "base/err.h"
#include "options/options.h"

/* In a process that mpirun or srun has started: becomes latentd-rank and does not return, or, as
 * rank 0, prepares for its end.  In others it does nothing. Errors: ERR_PEER, an mpirun that has
 * ended; ERR_USAGE, options that contradict it; ERR_IO. */
enum err_code job_join(struct options *o, struct err *e);

#endif
