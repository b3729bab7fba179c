/* SPDX-License-Identifier: MIT */
/* kernels/quant_tables.c - see quant_tables.h; the numbers stand in quant_tables/. */
#include "kernels/quant_tables.h"

const int8_t quant_values2[8] = {
#include "kernels/quant_tables/iq2nl_values.inc"
};

const int8_t quant_values3[16] = {
#include "kernels/quant_tables/iq3nl_values.inc"
};

const int8_t quant_twice_e2m1[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

const int8_t quant_values4[32] = {
#include "kernels/quant_tables/iq4k_values.inc"
};

const int8_t quant_values5[64] = {
#include "kernels/quant_tables/iq5nl_values.inc"
};

const int8_t quant_values6[128] = {
#include "kernels/quant_tables/iq6nl_values.inc"
};

const float quant_cubic6[64] = {
#include "kernels/quant_tables/iq6k_cubic.inc"
};

const int8_t quant_pairs2[64] = {
#include "kernels/quant_tables/iq2kl_values.inc"
};

const uint16_t quant_grid_iq1s[2048] = {
#include "kernels/quant_tables/iq1s_grid.inc"
};

const uint16_t quant_grid_iq2xxs[256] = {
#include "kernels/quant_tables/iq2xxs_grid.inc"
};

const uint16_t quant_grid_iq2xs[512] = {
#include "kernels/quant_tables/iq2xs_grid.inc"
};

const uint16_t quant_grid_iq2s[1024] = {
#include "kernels/quant_tables/iq2s_grid.inc"
};

const uint16_t quant_grid_iq3xxs[256] = {
#include "kernels/quant_tables/iq3xxs_grid.inc"
};

const uint16_t quant_grid_iq3s[512] = {
#include "kernels/quant_tables/iq3s_grid.inc"
};
