/* SPDX-License-Identifier: MIT */
/* rank/philox.h - random numbers by counter: Philox 4x32 with ten rounds (Salmon, Moraes,
 * Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011).
 *
 * No state: the number is a function of key and counter, so position 1000 of a request
 * needs nothing of the 999 before it.
 */
#ifndef RANK_PHILOX_H
#define RANK_PHILOX_H

#include <stdint.h>

static inline void philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    /* Multipliers and Weyl constants of the paper. */
    const uint32_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u, w0 = 0x9E3779B9u, w1 = 0xBB67AE85u;
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)m0 * c0, p1 = (uint64_t)m1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += w0;
        k1 += w1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The uniform number in [0, 1) of this seed and position, a multiple of 2^-53. */
static inline double philox_uniform(uint64_t seed, int64_t position)
{
    uint64_t at = (uint64_t)position;
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)at, (uint32_t)(at >> 32), 0, 0 };
    uint32_t r[4];

    philox4x32(r, counter, key);
    return (double)(((uint64_t)r[1] << 32 | r[0]) >> 11) * 0x1p-53;
}

#endif
