/* SPDX-License-Identifier: MIT */
/* cli/commands.h - what the subcommands of `latent` run.
 *
 * To add one: cli/cmd_<name>.c with run_<name>, its row in options/commands.def set to READY, its
 * options in options/options.def.  A command prints results to stdout and nothing else there; its
 * failure travels up as a struct err, which main() prints.
 */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "base/err.h"
#include "options/commands.h"

struct options;

/* Does the work.  Errors: any; ERR_USAGE makes the exit status 2, ERR_NOFIT 3, every other one 1.
 */
typedef enum err_code command_fn(const struct options *o, struct err *e);

/* NULL: not in this version. */
extern command_fn *const command_runs[COMMAND_COUNT];

#endif
