/* SPDX-License-Identifier: MIT */
/* model/tensor_shape.h - shapes as messages spell them: [7168, 2048, 256]. */
#ifndef MODEL_TENSOR_SHAPE_H
#define MODEL_TENSOR_SHAPE_H

#include <stdint.h>
#include <stdio.h>

enum { TENSOR_SHAPE_CHARS = 96 }; /* four dimensions of 20 digits, and their frame */

static inline void tensor_print_shape(char out[TENSOR_SHAPE_CHARS], const int64_t *dim, int n_dims)
{
    int used = 0;

    for (int i = 0; i < n_dims && i < 4; i++)
        used += snprintf(out + used, (size_t)(TENSOR_SHAPE_CHARS - used), "%s%lld", i ? ", " : "[",
                         (long long)dim[i]);
    (void)snprintf(out + used, (size_t)(TENSOR_SHAPE_CHARS - used), "]");
}

#endif
