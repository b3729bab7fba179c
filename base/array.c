/* SPDX-License-Identifier: MIT */
#include "base/array.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST = 16 };

int array_grow(void *array, int *cap, int n, size_t size)
{
    void *old, *grown;

    if (n < *cap)
        return 0;
    int more = *cap ? 2 * *cap : FIRST;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, (size_t)more * size);
    if (!grown)
        return -1;
    memcpy(array, &grown, sizeof grown);
    *cap = more;
    return 0;
}
