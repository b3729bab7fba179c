/* SPDX-License-Identifier: MIT */
/* cli/commands.h - the subcommands of `latent` as a table.
 *
 * To add one: cli/cmd_<name>.c with run_<name>, its row in commands.def set to READY, its
 * options in options.def.  A command prints results to stdout and nothing else there; its
 * failure travels up as a struct err, which main() prints.
 */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "base/err.h"

struct options;

enum command_id {
#define X(STATE, name, arguments, min, max, help) COMMAND_##name,
#include "cli/commands.def"
#undef X
    COMMAND_COUNT
};

/* Does the work.  Errors: any; ERR_USAGE makes the exit status 2, ERR_NOFIT 3, every other one 1.
 */
typedef enum err_code command_fn(const struct options *o, struct err *e);

struct command {
    const char *name, *arguments, *help;
    int min_args, max_args;
    command_fn *run; /* NULL: not in this version */
};

extern const struct command commands[COMMAND_COUNT];

/* The command called `name`, or COMMAND_COUNT. */
enum command_id command_find(const char *name);

/* The name nearest to a mistyped one, among those that are ready. */
const char *command_nearest(const char *name);

#endif
