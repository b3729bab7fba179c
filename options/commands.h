/* SPDX-License-Identifier: MIT */
/* options/commands.h - the subcommands of `latent`, and the programs beside it, as a table. */
#ifndef OPTIONS_COMMANDS_H
#define OPTIONS_COMMANDS_H

enum command_id {
#define X(STATE, name, arguments, min, max, help) COMMAND_##name,
#include "options/commands.def"
#undef X
    COMMAND_COUNT
};

enum command_state { COMMAND_READY, COMMAND_LATER, COMMAND_PROGRAM };

struct command {
    enum command_state state;
    const char *name, *arguments, *help;
    const char *call;     /* how it is typed: "latent plan", "latentd" */
    const char *ask_help; /* "latent help plan", "latentd --help" */
    int min_args, max_args;
};

extern const struct command commands[COMMAND_COUNT];

/* The subcommand of `latent` called `name`, or COMMAND_COUNT. */
enum command_id command_find(const char *name);

/* The name nearest to a mistyped one, among the subcommands that are ready. */
const char *command_nearest(const char *name);

#endif
