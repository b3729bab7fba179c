/* SPDX-License-Identifier: MIT */
/* session/processes.h - what the processes that mpirun started agree on before they load;
 * private to session/. */
#ifndef SESSION_PROCESSES_H
#define SESSION_PROCESSES_H

#include "rank/comm.h"
#include "session/planning.h"

/* All ranks: fills x->inventory with the machines of all of them, the same everywhere.  *apart: the
 * ranks of this host may not run on the same cores.
 * Errors, on all ranks: those of planning_probe; ERR_NOMEM; ERR_PEER. */
enum err_code processes_inventory(struct planning *x, struct comm *c, int *apart, struct err *e);

/* This rank's threads to its part of the cores that all ranks of its host may use, if these are
 * enough. */
void processes_bind(const struct comm *c, const struct plan *p);

/* All ranks: refuses another model file or other options than rank 0's.  Errors: ERR_PEER. */
enum err_code processes_agree(struct comm *c, const struct model *m, const struct options *o,
                              struct err *e);

/* All ranks: refuses a plan that puts something elsewhere than rank 0's.  Errors: ERR_PEER. */
enum err_code processes_agree_on_plan(struct comm *c, const struct plan *p, struct err *e);

#endif
