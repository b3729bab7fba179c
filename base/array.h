/* SPDX-License-Identifier: MIT */
/* base/array.h - arrays that grow. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include <stddef.h>

/* Room for one more element of `size` bytes in an array on the heap, of which n of *cap are used.
 * array: the address of the caller's pointer, which may be NULL at first and is freed by the
 * caller.  Returns 0, or -1 and changes nothing: no memory. */
int array_grow(void *array, int *cap, int n, size_t size);

#endif
