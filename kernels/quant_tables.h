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

/* MXFP4: twice the 4-bit floats. */
extern const int8_t quant_twice_e2m1[16];

/* What the first half of quant_values6 is rounded from: with v the code, in f32,
 * fma(v, fma(v, fma(v, 0.0011972, -0.11218), 6.2568), -127). */
extern const float quant_cubic6[64];

/* IQ2_KL: two values for each code. */
extern const int8_t quant_pairs2[64];

/* Grids: 8 columns of 2 bits or 4 columns of 3 bits, the first in the lowest.
 *
 *     iq1s                  level l is the value l - 1
 *     iq2xxs, iq2xs, iq2s   levels 8, 25, 43
 *     iq3xxs                levels 4, 12, 20, 28, 36, 44, 52, 62
 *     iq3s                  levels 1, 3, 5 ... 15
 */
extern const uint16_t quant_grid_iq1s[2048];
extern const uint16_t quant_grid_iq2xxs[256];
extern const uint16_t quant_grid_iq2xs[512];
extern const uint16_t quant_grid_iq2s[1024];
extern const uint16_t quant_grid_iq3xxs[256];
extern const uint16_t quant_grid_iq3s[512];

#endif
