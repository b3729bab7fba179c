/* SPDX-License-Identifier: MIT */
/* session/record.h - the file of --record-experts, which --hot reads (placement/hot.h).
 *
 * It is opened before the weights are loaded, so that a name that cannot be written is refused
 * before hours of work, and takes its name when the command is done (session_keep_record).
 */
#ifndef SESSION_RECORD_H
#define SESSION_RECORD_H

#include "base/draft.h"
#include "model/model.h"

/* Errors: ERR_USAGE, the model has no routed experts; those of draft_open. */
enum err_code record_open(struct draft *d, const struct model *m, const char *path, struct err *e);

#endif
