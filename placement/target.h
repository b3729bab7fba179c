/* SPDX-License-Identifier: MIT */
/* placement/target.h - the right side of a rule: where its tensors go.
 *
 *     target := part { '+' part }
 *     part   := device [ ':' COUNT ]
 *     device := CPU | CPU<h> | RANK<r> | CUDA<k> | CUDA* | CUDA[<a>-<b>]
 *
 * GPU is another word for CUDA; SIM, the simulated GPUs, is written the same way.
 * Letters count as they stand.  Blanks around '+' are ignored.
 */
#ifndef PLACEMENT_TARGET_H
#define PLACEMENT_TARGET_H

#include <limits.h>
#include <stddef.h>

#include "base/err.h"

enum target_kind {
    TARGET_CPU,      /* host memory of all ranks                     */
    TARGET_CPU_HOST, /* host memory of the ranks of host `first`     */
    TARGET_RANK,     /* host memory and threads of rank `first`      */
    TARGET_CUDA,     /* GPUs first..last, counted over ranks         */
    TARGET_SIM,      /* simulated GPUs first..last                   */
};

enum { TARGET_NO_COUNT = -1, TARGET_MAX_PARTS = 4096, TARGET_MAX_INDEX = 65535 };

struct target_part {
    enum target_kind kind;
    int first, last; /* last is INT_MAX for "all of them"             */
    int count;       /* experts on each device, or TARGET_NO_COUNT    */
};

struct target {
    struct target_part *parts; /* [n], owned */
    int n;
};

/* What a text is that should be a target. */
enum target_reading {
    TARGET_READ,    /* a target                                                */
    TARGET_FOREIGN, /* a name that other programs use                          */
    TARGET_UNKNOWN, /* looks like a name, but nobody has a device called that  */
    TARGET_NOT,     /* nothing like a target: part of a pattern                */
    TARGET_NOMEM,
};

/* Reads text[0..len).  *t is set only with TARGET_READ; end with target_free.  `why`, of `size`
 * bytes, is filled with what to write instead for TARGET_FOREIGN and TARGET_UNKNOWN. */
enum target_reading target_read(struct target *t, const char *text, size_t len, char *why,
                                size_t size);
void target_free(struct target *t);

/* 1 if both name the same devices in the same parts. */
int target_equal(const struct target *a, const struct target *b);

#endif
