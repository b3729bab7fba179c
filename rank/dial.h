/* SPDX-License-Identifier: MIT */
/* rank/dial.h - how a rank finds the coordinator that started it. */
#ifndef RANK_DIAL_H
#define RANK_DIAL_H

#include "base/err.h"

/* Connects to `address`: unix:@NAME (abstract), unix:/PATH or tcp:HOST:PORT; several, separated by
 * commas, are tried in turn.  Errors: ERR_USAGE; ERR_IO. */
enum err_code dial(int *fd, const char *address, struct err *e);

#endif
