/* SPDX-License-Identifier: MIT */
/* kernels/quant_tables.c - see quant_tables.h; the numbers stand in quant_tables/. */
#include "kernels/quant_tables.h"

const int8_t quant_values2[8] = {
#include "kernels/quant_tables/iq2nl_values.inc"
};

const int8_t quant_values3[16] = {
#include "kernels/quant_tables/iq3nl_values.inc"
};

const int8_t quant_values4[32] = {
#include "kernels/quant_tables/iq4k_values.inc"
};

const int8_t quant_values5[64] = {
#include "kernels/quant_tables/iq5nl_values.inc"
};

const int8_t quant_values6[128] = {
#include "kernels/quant_tables/iq6nl_values.inc"
};
