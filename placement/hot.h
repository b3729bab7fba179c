/* SPDX-License-Identifier: MIT */
/* placement/hot.h - how often each expert was chosen: --hot FILE, lines "layer expert count". */
#ifndef PLACEMENT_HOT_H
#define PLACEMENT_HOT_H

#include <stdint.h>

#include "base/err.h"

struct hot {
    int n_layers, n_experts;
    int64_t *count; /* [n_layers][n_experts], owned; 0 where the file says nothing */
};

/* Blank lines and those that begin with '#' do not count.  Errors: ERR_IO; ERR_USAGE with the line:
 * not three numbers, a layer or expert that the model lacks, a pair that stands twice; ERR_NOMEM.
 */
enum err_code hot_read(struct hot *h, const char *path, int n_layers, int n_experts, struct err *e);
void hot_free(struct hot *h);

#endif
