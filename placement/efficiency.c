/* SPDX-License-Identifier: MIT */
#include "placement/efficiency.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

static const struct efficiency rows[] = {
#define ENGINE(name, ...) { name, __VA_ARGS__ },
#include "placement/efficiency.def"
#undef ENGINE
};

/* Every name with a comma before it. */
static const char names[] = ""
#define ENGINE(name, ...) ", " name
#include "placement/efficiency.def"
#undef ENGINE
    ;

const struct efficiency *efficiency_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcasecmp(rows[i].name, name))
            return &rows[i];
    return NULL;
}

const char *efficiency_names(void)
{
    return names + 2;
}

int efficiency_is_codebook(enum quant type)
{
    static const enum quant types[] = {
#define CODEBOOK(NAME) QUANT_##NAME,
#include "placement/efficiency.def"
#undef CODEBOOK
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i] == type)
            return 1;
    return 0;
}
