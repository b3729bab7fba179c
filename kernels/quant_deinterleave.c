/* SPDX-License-Identifier: MIT */
/* kernels/quant_deinterleave.c - turns groups of ik's interleaved types into plain rows.
 *
 * A group is the headers of R rows, then for every block of columns the R rows' blocks
 * mixed into one.  This file has the loop and the types that only move whole bytes.
 */
#include "kernels/quant_deinterleave.h"

/* ---- Types that move words of four bytes ---------------------------------- */

/* n words of row k out of lines of R. */
static void copy_words(uint8_t *to, const uint8_t *lines, int k, int rows, int n)
{
    for (int i = 0; i < n; i++)
        memcpy(to + 4 * i, lines + 4 * (rows * i + k), 4);
}

void take_row_q4_0_r8(const uint8_t *group, int k, uint8_t *block)
{
    copy_half(block, group, k);
    copy_words(block + 2, group + 16, k, 8, 4);
}

void take_row_mxfp4_r8(const uint8_t *group, int k, uint8_t *block)
{
    block[0] = group[k];
    copy_words(block + 1, group + 8, k, 8, 4);
}

void take_row_q8_0_r8(const uint8_t *group, int k, uint8_t *block)
{
    copy_half(block, group, k);
    copy_words(block + 2, group + 16, k, 8, 8);
}

void take_row_q8_kv_r8(const uint8_t *group, int k, uint8_t *block)
{
    copy_words(block, group, k, 8, 8);
}

void take_row_bf16_r16(const uint8_t *group, int k, uint8_t *block)
{
    copy_words(block, group, k, 16, 1);
}

/* ---- The loop ------------------------------------------------------------- */

static quant_take_row_fn *const take_row[QUANT_COUNT] = {
#define X(...)
#define QUANT_INTERLEAVED(NAME, name, ...) [QUANT_##NAME] = take_row_##name,
#define QUANT_REFUSED(...)
#include "kernels/quants.def"
#undef X
};

/* A plain row of Q8_KV also keeps the sum of its codes. */
static void store_q8_kv_sum(uint8_t *row, int64_t n)
{
    int32_t sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (int8_t)row[8 + i];
    memcpy(row + 4, &sum, sizeof sum);
}

void quant_deinterleave(enum quant t, const uint8_t *group, int64_t n, uint8_t *plain)
{
    const struct quant_info *info = &quant_info[t], *to = &quant_info[info->plain];
    size_t rows = info->interleave, row_bytes = quant_row_bytes(info->plain, (size_t)n);
    size_t block_bytes = (size_t)info->values / to->values * to->bytes;

    memset(plain, 0, rows * row_bytes);
    for (size_t k = 0; k < rows; k++) {
        const uint8_t *from = group + rows * info->header;
        uint8_t *row = plain + k * row_bytes, *block = row + to->header;

        memcpy(row, group + k * info->header, info->header);
        for (int64_t c = 0; c < n; c += info->values) {
            take_row[t](from, (int)k, block);
            from += rows * info->bytes;
            block += block_bytes;
        }
        if (info->plain == QUANT_Q8_KV)
            store_q8_kv_sum(row, n);
    }
}
