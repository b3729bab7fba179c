/* SPDX-License-Identifier: MIT */
/* cli/machine.h - what the memory and the cores of this machine can do at best, measured.
 *
 * The two numbers of the roofline: bytes that all threads together can read from memory, and
 * int8 multiply-adds that they can do on data in registers.
 */
#ifndef CLI_MACHINE_H
#define CLI_MACHINE_H

#include "base/team.h"

struct machine {
    char cpu[64]; /* its name */
    double read_bytes_per_s;
    double int8_ops_per_s; /* a multiply-add counts as two */
};

/* Takes about a second.  read_bytes_per_s is 0 where there is no memory for the test. */
void machine_measure(struct machine *m, const struct team *team);

#endif
