/* SPDX-License-Identifier: MIT */
/* placement/efficiency.h - how much of the hardware an engine turns into tokens.
 *
 * Planning is for latentd.  The rows of the others let the same model replay what their users
 * published, which is how the model is tested, and answer "what would my present engine do".
 */
#ifndef PLACEMENT_EFFICIENCY_H
#define PLACEMENT_EFFICIENCY_H

#include "kernels/quants.h"

struct efficiency {
    const char *name;
    double host_bw;          /* of the host's read bandwidth, one NUMA node                       */
    double numa;             /* of the bandwidth that further nodes add when one rank spans them  */
    double host_few;         /* of the int8 rate, a product with one column                       */
    double host_many;        /* of the int8 rate, 64 columns and more                             */
    double codebook;         /* of host_few that types with large codebooks reach                 */
    double attention;        /* of the int8 rate, attention on the host                           */
    double gpu_bw, gpu_rate; /* of GPU memory bandwidth, of the bf16 rate                  */
    double host_us, gpu_us;  /* launches and barriers of a layer                           */
    double crossing_us;      /* from GPU to host memory or back, beside the bytes           */
    int serial;              /* devices work one after the other, not side by side          */
    int upload; /* tokens in a step from which experts of the host go to the GPU; 0: never */
};

/* "latentd", "llama.cpp", ...; NULL if there is none of this name. */
const struct efficiency *efficiency_by_name(const char *name);

/* The names, for messages: "latentd, llama.cpp, ...". */
const char *efficiency_names(void);

/* Whether a type's decoder looks weights up in large tables. */
int efficiency_is_codebook(enum quant type);

#endif
