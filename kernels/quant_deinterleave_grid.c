/* SPDX-License-Identifier: MIT */
/* kernels/quant_deinterleave_grid.c - interleaved types whose codes are grid numbers.
 *
 * Grid numbers are copied.  Signs have another code here: where the plain type keeps
 * seven of eight and lets the eighth make the number even, the interleaved one keeps
 * seven differences of neighbours, so the plain seven are recovered by one xor.
 */
#include "kernels/quant_deinterleave.h"

/* Four sign bytes (seven differences above a bit of the scale) to the plain word. */
static void take_signs_and_scale(const uint8_t *word, uint8_t *to)
{
    uint32_t plain = 0;

    for (int g = 0; g < 4; g++) {
        uint32_t differences = word[g] & 0xfe;

        plain |= ((differences ^ differences >> 1) & 127) << (7 * g);
        plain |= (word[g] & 1u) << (28 + g);
    }
    memcpy(to, &plain, sizeof plain);
}

void take_row_iq2_xxs_r4(const uint8_t *group, int k, uint8_t *block)
{
    copy_half(block, group, k);
    for (int b = 0; b < 8; b++) {
        memcpy(block + 2 + 8 * b, group + 136 + 16 * b + 4 * k, 4);
        take_signs_and_scale(group + 8 + 16 * b + 4 * k, block + 6 + 8 * b);
    }
}

void take_row_iq3_xxs_r4(const uint8_t *group, int k, uint8_t *block)
{
    copy_half(block, group, k);
    for (int b = 0; b < 8; b++) {
        memcpy(block + 2 + 8 * b, group + 136 + 32 * b + 8 * k, 8);
        take_signs_and_scale(group + 8 + 16 * b + 4 * k, block + 66 + 4 * b);
    }
}

/* Nine bits of grid number, seven of differences, from the first sign on. */
void take_row_iq2_xs_r4(const uint8_t *group, int k, uint8_t *block)
{
    copy_half(block, group, k);
    for (int b = 0; b < 8; b++) {
        for (int g = 0; g < 4; g++) {
            unsigned v = load_u16(group + 8 + 32 * b + 8 * k + 2 * g), t = v >> 9;
            uint16_t plain = (uint16_t)((v & 511) | ((t ^ t << 1) & 127) << 9);

            memcpy(block + 2 + 8 * b + 2 * g, &plain, sizeof plain);
        }
        block[66 + b] = group[264 + 4 * b + k];
    }
}

/* All eight signs, as in the plain type. */
void take_row_iq2_s_r4(const uint8_t *group, int k, uint8_t *block)
{
    copy_half(block, group, k);
    for (int b = 0; b < 8; b++) {
        memcpy(block + 2 + 4 * b, group + 8 + 16 * b + 4 * k, 4);
        memcpy(block + 34 + 4 * b, group + 168 + 16 * b + 4 * k, 4);
        block[66 + b] = group[136 + 4 * b + k];
        block[74 + b] = group[296 + 4 * b + k];
    }
}

/* Sign byte j holds column j of each of the eight grid points. */
void take_row_iq3_s_r4(const uint8_t *group, int k, uint8_t *block)
{
    const uint8_t *grid = group + 8, *signs = group + 296 + 4 * k;

    copy_half(block, group, k);
    for (int b = 0; b < 8; b++, grid += 32, signs += 16) {
        for (int g = 0; g < 8; g++) {
            block[2 + 8 * b + g] = grid[8 * (g % 4) + 4 * (g / 4) + k];
            for (int j = 0; j < 4; j++)
                block[74 + 4 * b + g / 2] |= (uint8_t)((signs[j] >> g & 1) << (4 * (g % 2) + j));
        }
        block[66 + b] = group[264 + 4 * b + k];
        block[106 + b / 2] |= (uint8_t)(run_nibble(group + 424, 4 * b + k, 16) << (4 * (b % 2)));
    }
}

void take_row_iq1_s_r4(const uint8_t *group, int k, uint8_t *block)
{
    for (int g = 0; g < 4; g++)
        block[g] = group[4 * g + k];
    copy_half(block + 4, group + 16, k);
}

void take_row_iq1_m_r4(const uint8_t *group, int k, uint8_t *block)
{
    for (int g = 0; g < 4; g++)
        block[g] = group[4 * g + k];
    block[4] = group[16 + k];
    block[5] = group[20 + k];
    block[6] = group[24 + k];
}
