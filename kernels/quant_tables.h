/* SPDX-License-Identifier: MIT */
/* kernels/quant_tables.h - the codebooks of the tensor types.
 *
 * The numbers are ggml's and ik_llama.cpp's (see NOTICE); the grids are kept in a compact
 * form, 16 bits an entry, which quant_decode_iq.c expands.
 */
#ifndef KERNELS_QUANT_TABLES_H
#define KERNELS_QUANT_TABLES_H

#include <stdint.h>

/* Values by code.  Each table has two halves, the second shifted by a constant; types
 * with a shift bit per scale choose the half. */
extern const int8_t quant_values2[8];   /* IQ2_K, IQ2_KS                       */
extern const int8_t quant_values3[16];  /* IQ3_K, IQ3_KS                       */
extern const int8_t quant_values4[32];  /* IQ4_NL, IQ4_XS, IQ4_K*, KT's scales */
extern const int8_t quant_values5[64];  /* IQ5_K, IQ5_KS                       */
extern const int8_t quant_values6[128]; /* IQ6_K                               */

#endif
