/* SPDX-License-Identifier: MIT */
/* options/manual_main.c - `latentd-manual <template >page`: a step of the build, not installed. */
#include "base/log.h"
#include "options/manual.h"

int main(void)
{
    struct err e = { 0 };

    log_set_program("latentd-manual");
    if (manual_fill(stdin, stdout, &e) == ERR_OK)
        return 0;
    log_error("%s", e.msg);
    return 1;
}
