/* SPDX-License-Identifier: MIT */
/* cli/commands.c - see commands.h. */
#include "cli/commands.h"

#include <stddef.h>

#define DECLARE_READY(name) command_fn run_##name;
#define DECLARE_LATER(name)
#define DECLARE_PROGRAM(name)
#define X(STATE, name, arguments, min, max, help) DECLARE_##STATE(name)
#include "options/commands.def"
#undef X

#define RUN_READY(name)   run_##name
#define RUN_LATER(name)   NULL
#define RUN_PROGRAM(name) NULL

command_fn *const command_runs[COMMAND_COUNT] = {
#define X(STATE, name, arguments, min, max, help) [COMMAND_##name] = RUN_##STATE(name),
#include "options/commands.def"
#undef X
};
