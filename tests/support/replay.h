/* SPDX-License-Identifier: MIT */
/* tests/support/replay.h - published speeds, planned again with the placement they had.
 *
 * A row of tests/data/replay.tsv becomes a header-only file of the published shape with about
 * the published bytes, an inventory and a plan; what the cost model says about it may then be
 * asked for any efficiency.
 */
#ifndef TESTS_SUPPORT_REPLAY_H
#define TESTS_SUPPORT_REPLAY_H

#include "placement/cost.h"

enum { REPLAY_MAX_ROWS = 64 };

struct replay_row {
    int number;
    char engine[24], model[16], types[48], devices[128], rules[512], source[128];
    double gigabytes, tps, pp;
    double file_gigabytes; /* of the stand-in */
    struct model *model_open;
    struct inventory inventory;
    struct rules rules_read;
    struct match match;
    struct named_tensor *names;
    struct findings findings;
    struct plan plan;
};

struct replay {
    struct replay_row *rows; /* [n] */
    int n;
};

/* Reads the table and plans every row, in a temporary folder that is gone afterwards (as the
 * working folder, too).  Ends the program with a message if it cannot. */
void replay_open(struct replay *r, const char *tsv);
void replay_close(struct replay *r);

/* Decode tokens/s of one row with this efficiency. */
double replay_tps(struct replay_row *row, const struct efficiency *x);

#endif
