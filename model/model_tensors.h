/* SPDX-License-Identifier: MIT */
/* model/model_tensors.h - finds the tensors of an open model; private to model/. */
#ifndef MODEL_MODEL_TENSORS_H
#define MODEL_MODEL_TENSORS_H

#include "model/model.h"

/* Fills m->tensors (owned by m) from m->gguf and m->hp, with every tensor verified, and
 * logs what is left over.  Errors: as model_open's. */
enum err_code model_find_tensors(struct model *m, struct err *e);

#endif
