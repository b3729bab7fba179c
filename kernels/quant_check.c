/* SPDX-License-Identifier: MIT */
/* kernels/quant_check.c - finds scales that are not finite.
 *
 * Integers are always finite, so only the scales are looked at: the row's header, or one
 * or two halves in each block.  Scales so large that weights overflow count too.
 */
#include <math.h>

#include "kernels/quant_decode.h"

/* No type multiplies a scale by more than 2^15. */
static const float too_large = 0x1p112f;

/* Where the halves of a block are: by default only one, at its start. */
static const struct halves {
    uint8_t d, m;
} halves_at[QUANT_COUNT] = {
    [QUANT_Q4_1] = {0,    2  },
      [QUANT_Q5_1] = { 0,   2  },
      [QUANT_Q2_K] = { 80,  82 },
    [QUANT_Q3_K] = { 108, 108},
      [QUANT_Q4_K] = { 0,   2  },
      [QUANT_Q5_K] = { 0,   2  },
    [QUANT_Q6_K] = { 208, 208},
      [QUANT_TQ1_0] = { 52,  52 },
      [QUANT_TQ2_0] = { 64,  64 },
};

static int half_is_finite(uint16_t h)
{
    return (h & 0x7c00) != 0x7c00;
}

static int block_is_finite(enum quant t, const uint8_t *block)
{
    if (t == QUANT_MXFP4) /* times 12, from 2^125 on, is infinite; 255 is a NaN by definition */
        return block[0] < 253;
    if (t == QUANT_IQ1_M) /* five bits of exponent under the sign, cut in two */
        return (block[55] & 0x70) != 0x70 || (block[53] & 0xc0) != 0xc0;
    return half_is_finite(load_u16(block + halves_at[t].d)) &&
           half_is_finite(load_u16(block + halves_at[t].m));
}

static int header_is_finite(const uint8_t *header, uint32_t bytes)
{
    float d = bytes == 2 ? load_f16(header) : load_f32(header);

    return fabsf(d) < too_large; /* false for a NaN */
}

/* Floats of `size` bytes whose bits `exponent` are not all set.  Most rows have no other,
 * so the first loop does not stop to look. */
static int64_t find_float(const uint8_t *row, int64_t n, int size, uint32_t exponent)
{
    int bad = 0;
    int64_t i = 0;

    if (size == 2)
        for (i = 0; i < n; i++)
            bad |= (load_u16(row + 2 * i) & exponent) == exponent;
    else
        for (i = 0; i < n; i++)
            bad |= (load_u32(row + 4 * i) & exponent) == exponent;
    if (!bad)
        return -1;
    for (i = 0;; i++)
        if (((size == 2 ? load_u16(row + 2 * i) : load_u32(row + 4 * i)) & exponent) == exponent)
            return i;
}

int64_t quant_find_nonfinite(enum quant t, const uint8_t *row, int64_t n)
{
    const struct quant_info *info = &quant_info[t];
    int64_t k = 0;

    if (t == QUANT_F32)
        return find_float(row, n, 4, 0x7f800000);
    if (t == QUANT_F16 || t == QUANT_BF16)
        return find_float(row, n, 2, t == QUANT_F16 ? 0x7c00 : 0x7f80);
    if (info->header > 0)
        return n > 0 && !header_is_finite(row, info->header) ? 0 : -1;
    for (; k < n; k += info->values, row += info->bytes)
        if (!block_is_finite(t, row))
            return k;
    return -1;
}
