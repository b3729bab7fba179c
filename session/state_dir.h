/* SPDX-License-Identifier: MIT */
/* session/state_dir.h - where a user's measurements are kept between runs. */
#ifndef SESSION_STATE_DIR_H
#define SESSION_STATE_DIR_H

#include "base/err.h"
#include "base/str.h"

/* The file with the profile of this machine: "devices.json" in `state_dir`, or where that is NULL
 * in $XDG_STATE_HOME/latentd, or ~/.local/state/latentd.  With `create` the folders are made.
 * Appends to *path, which the caller frees.  Errors: ERR_IO; ERR_USAGE, no home is known;
 * ERR_NOMEM.
 */
enum err_code state_dir_profile(struct str *path, const char *state_dir, int create, struct err *e);

#endif
