/* SPDX-License-Identifier: MIT */
/* cli/machine.h - what the memory and the cores of this machine can do at best, measured.
 *
 * The two numbers of the roofline: bytes that all threads together can read from memory, and
 * int8 multiply-adds that they can do on data in registers.
 */
#ifndef CLI_MACHINE_H
#define CLI_MACHINE_H

#include <stddef.h>

#include "base/err.h"
#include "base/team.h"

struct machine {
    char cpu[64]; /* its name */
    double read_bytes_per_s;
    double int8_ops_per_s; /* a multiply-add counts as two */
};

enum { MACHINE_PASSES = 5 }; /* of each test; the best counts */

/* Kinds of multiply-adds: 8-bit integers; bf16 pairs (as f32 where the cores lack them); f32. */
enum machine_math { MATH_INT8, MATH_BF16, MATH_F32 };

/* Bytes per second that the team reads from memory, operations per second.  cpus: [n_threads] CPUs
 * that the threads keep to, or NULL; the memory is then theirs.  0 where there is no memory. */
double machine_read_rate(const struct team *team, const int *cpus);
double machine_math_rate(enum machine_math math, const struct team *team);

/* Reads up to a gigabyte of a file past the page cache with all threads; bytes per second.
 * Errors: ERR_IO; ERR_USAGE, less than MACHINE_DISK_MIN bytes: nothing to measure. */
enum { MACHINE_DISK_MIN = 64 << 20 };
enum err_code machine_disk_rate(double *bytes_per_s, const char *path, const struct team *team,
                                struct err *e);

/* Takes about a second.  read_bytes_per_s is 0 where there is no memory for the test. */
void machine_measure(struct machine *m, const struct team *team);

#endif
