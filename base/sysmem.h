/* SPDX-License-Identifier: MIT */
/* base/sysmem.h - how much memory this process may still take. */
#ifndef BASE_SYSMEM_H
#define BASE_SYSMEM_H

#include <stdint.h>

/* Bytes: the kernel's MemAvailable, or what the control group of this process leaves if that is
 * less.  INT64_MAX where neither is known. */
int64_t sysmem_available(void);

#endif
