/* SPDX-License-Identifier: MIT */
/* daemon/core.h - everything of the daemon but its clients: model, journal, book, driver, ranks.
 *
 * Opened and closed as a whole.  The thread that opens it must also call ranks_poll.
 */
#ifndef DAEMON_CORE_H
#define DAEMON_CORE_H

#include <limits.h>

#include "base/str.h"
#include "daemon/ranks.h"
#include "daemon/requests.h"
#include "daemon/status.h"
#include "model/digest.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "options/options.h"
#include "rank/comm.h"

struct core {
    struct options *opt;
    struct comm_job job; /* that this process is a part of, if its rank is 0 (daemon/job.h) */
    struct model *model;
    char model_hash[MODEL_DIGEST_SIZE], model_name[128];
    struct tokenizer *tokenizer;
    struct journal *journal;
    struct requests *book;
    struct status *status;
    struct driver *driver;
    struct ranks *ranks;
    struct text_list words; /* that the ranks are started with */
    struct link_plan plan;  /* until the status has it */
    char program[PATH_MAX], run_dir[PATH_MAX];
};

/* Opens the headers of the model, its tokenizer, the journal and the book, takes up what has not
 * ended, and starts the driver.  The ranks are started by the first ranks_poll.  Borrows o.  End
 * with core_close, also after a failure.  Errors: those of the parts. */
enum err_code core_open(struct core *d, struct options *o, const char *program, struct err *e);

/* core_plan.c: the plan of this machine, into d.  Errors: those of planning_make, planning_judge.
 */
enum err_code core_plan(struct core *d, struct err *e);

/* The driver, then the ranks, then what they had to say.  Returns that of ranks_stop. */
int core_close(struct core *d);

#endif
