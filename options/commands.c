/* SPDX-License-Identifier: MIT */
/* options/commands.c - see commands.h. */
#include "options/commands.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "base/str.h"

#define CALL_READY(name)     "latent " #name
#define CALL_LATER(name)     "latent " #name
#define CALL_PROGRAM(name)   PROGRAM_##name
#define PROGRAM_latentd      "latentd"
#define PROGRAM_latentd_rank "latentd-rank"
#define ASK_READY(name)      "latent help " #name
#define ASK_LATER(name)      "latent help " #name
#define ASK_PROGRAM(name)    CALL_PROGRAM(name) " --help"

const struct command commands[COMMAND_COUNT] = {
#define X(STATE, name, arguments, min, max, help) \
    { COMMAND_##STATE, #name, arguments, help, CALL_##STATE(name), ASK_##STATE(name), min, max },
#include "options/commands.def"
#undef X
};

enum command_id command_find(const char *name)
{
    int i = 0;

    while (i < COMMAND_COUNT &&
           (commands[i].state == COMMAND_PROGRAM || strcmp(commands[i].name, name) != 0))
        i++;
    return (enum command_id)i;
}

const char *command_nearest(const char *name)
{
    const char *nearest = "help";
    int best = INT_MAX;

    for (int i = 0; i < COMMAND_COUNT; i++) {
        int distance = str_distance(name, commands[i].name);
        if (commands[i].state == COMMAND_READY && distance < best) {
            best = distance;
            nearest = commands[i].name;
        }
    }
    return nearest;
}
