/* SPDX-License-Identifier: MIT */
/* cli/commands.c - see commands.h. */
#include "cli/commands.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "base/str.h"

#define DECLARE_READY(name) command_fn run_##name;
#define DECLARE_LATER(name)
#define X(STATE, name, arguments, min, max, help) DECLARE_##STATE(name)
#include "cli/commands.def"
#undef X

#define RUN_READY(name) run_##name
#define RUN_LATER(name) NULL

const struct command commands[COMMAND_COUNT] = {
#define X(STATE, name, arguments, min, max, help) \
    [COMMAND_##name] = { #name, arguments, help, min, max, RUN_##STATE(name) },
#include "cli/commands.def"
#undef X
};

enum command_id command_find(const char *name)
{
    int i = 0;

    while (i < COMMAND_COUNT && strcmp(commands[i].name, name) != 0)
        i++;
    return (enum command_id)i;
}

const char *command_nearest(const char *name)
{
    const char *nearest = "help";
    int best = INT_MAX;

    for (int i = 0; i < COMMAND_COUNT; i++) {
        int distance = str_distance(name, commands[i].name);
        if (commands[i].run && distance < best) {
            best = distance;
            nearest = commands[i].name;
        }
    }
    return nearest;
}
