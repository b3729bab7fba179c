/* SPDX-License-Identifier: MIT */
/* tests/tools/random_weights.c - see random_weights.h.
 *
 * Reading order: random bytes; floats; blocks; how large the scale must be.
 */
#include "tests/tools/random_weights.h"

#include <math.h>
#include <string.h>

enum place { FLOATS, BLOCK_HALF, BLOCK_EXPONENT, BLOCK_SPREAD, ROW_FLOAT, ROW_HALF };

static const struct scales {
    enum place place;
    int scale_at, min_at;
    float min_ratio;
} scales_of[QUANT_COUNT] = {
#define X(TYPE, place, scale_at, min_at, ratio) \
    [QUANT_##TYPE] = { place, scale_at, min_at, (float)(ratio) },
#include "tests/tools/random_weights.def"
#undef X
};

int random_weights_knows(enum quant t)
{
    return scales_of[t].place != FLOATS || quant_info[t].program == QUANT_FLOAT;
}

/* ---- Random bytes ------------------------------------------------------- */

/* Four xorshift generators side by side: enough for weights, and some GB/s. */
static void fill_random(uint64_t state[4], uint8_t *out, size_t bytes)
{
    uint64_t s[4];

    memcpy(s, state, sizeof s);
    for (size_t at = 0; at < bytes; at += sizeof s) {
        for (int lane = 0; lane < 4; lane++) {
            s[lane] ^= s[lane] << 13;
            s[lane] ^= s[lane] >> 7;
            s[lane] ^= s[lane] << 17;
        }
        memcpy(out + at, s, bytes - at < sizeof s ? bytes - at : sizeof s);
    }
    memcpy(state, s, sizeof s);
}

static uint64_t mix(uint64_t *x)
{
    uint64_t z = *x += 0x9e3779b97f4a7c15; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) | 1;
}

/* ---- Floats ------------------------------------------------------------- */

/* Uniform in (-2^top, 2^top) with a random sign and mantissa: the five random bits where the
 * exponent will stand choose it, each lower one half as often. */
static void build_exponents(uint32_t exponents[32], int top, int bias, int mantissa_bits)
{
    for (unsigned x = 0; x < 32; x++) {
        int exponent = top - 1 - __builtin_ctz(x | 32) + bias;
        exponents[x] = exponent > 0 ? (uint32_t)exponent << mantissa_bits : 0;
    }
}

static void fill_floats(struct random_weights *r, int64_t count, uint8_t *out)
{
    int top = (int)lrintf(log2f(r->scale));
    uint32_t exponents[32];

    fill_random(r->state, out, (size_t)count * quant_info[r->type].bytes);
    if (r->type == QUANT_F32) {
        build_exponents(exponents, top, 127, 23);
        for (uint8_t *at = out; count > 0; count--, at += 4) {
            uint32_t x;
            memcpy(&x, at, sizeof x);
            x = (x & 0x807fffff) | exponents[x >> 23 & 31];
            memcpy(at, &x, sizeof x);
        }
    } else {
        int mantissa_bits = r->type == QUANT_F16 ? 10 : 7;
        uint16_t kept = r->type == QUANT_F16 ? 0x83ff : 0x807f;
        build_exponents(exponents, top, r->type == QUANT_F16 ? 15 : 127, mantissa_bits);
        for (uint8_t *at = out; count > 0; count--, at += 2) {
            uint16_t x;
            memcpy(&x, at, sizeof x);
            x = (uint16_t)((x & kept) | exponents[x >> mantissa_bits & 31]);
            memcpy(at, &x, sizeof x);
        }
    }
}

/* ---- Blocks ------------------------------------------------------------- */

static void put_half(uint8_t *at, float v)
{
    uint16_t h = half_from_float(v);
    memcpy(at, &h, sizeof h);
}

static void set_block_scale(const struct scales *s, float scale, uint8_t *block)
{
    if (s->place == BLOCK_HALF) {
        put_half(block + s->scale_at, scale);
        if (s->min_at >= 0)
            put_half(block + s->min_at, scale * s->min_ratio);
    } else if (s->place == BLOCK_EXPONENT) {
        block[s->scale_at] = (uint8_t)(128 + (int)lrintf(log2f(scale)));
    } else if (s->place == BLOCK_SPREAD) {
        uint16_t h = half_from_float(scale);
        for (int i = 0; i < 4; i++) { /* the top nibble of each word */
            uint8_t *top = block + s->scale_at + 2 * i + 1;
            *top = (uint8_t)((*top & 15) | (h >> 4 * i & 15) << 4);
        }
    }
}

static void fill_blocks(struct random_weights *r, int64_t n_rows, uint8_t *out)
{
    const struct quant_info *info = &quant_info[r->type];
    const struct scales *s = &scales_of[r->type];
    size_t row_bytes = quant_row_bytes(r->type, (size_t)r->n);

    fill_random(r->state, out, (size_t)n_rows * row_bytes);
    for (int64_t i = 0; i < n_rows; i++) {
        uint8_t *row = out + (size_t)i * row_bytes, *block = row + info->header;
        if (s->place == ROW_FLOAT)
            memcpy(row, &r->scale, sizeof r->scale);
        else if (s->place == ROW_HALF)
            put_half(row, r->scale);
        for (; block < row + row_bytes; block += info->bytes)
            set_block_scale(s, r->scale, block);
    }
}

/* ---- The interface ------------------------------------------------------ */

void random_weights_fill(struct random_weights *r, int64_t n_rows, uint8_t *out)
{
    if (scales_of[r->type].place == FLOATS)
        fill_floats(r, n_rows * r->n, out);
    else
        fill_blocks(r, n_rows, out);
}

/* The rms of weights whose scale is 1, measured. */
static double unit_rms(const struct random_weights *r)
{
    enum { COLUMNS = 256, ROWS = 64 };
    struct random_weights sample = *r;
    uint8_t row[sizeof(float) * COLUMNS]; /* the longest: F32 */
    float w[COLUMNS];
    double sum = 0;

    sample.n = COLUMNS;
    sample.scale = 1;
    for (int i = 0; i < ROWS; i++) {
        random_weights_fill(&sample, 1, row);
        quant_dequantize_row(r->type, row, COLUMNS, w);
        for (int c = 0; c < COLUMNS; c++)
            sum += (double)w[c] * (double)w[c];
    }
    return sqrt(sum / (COLUMNS * ROWS));
}

void random_weights_start(struct random_weights *r, uint64_t seed, const char *name,
                          enum quant type, int64_t n)
{
    uint64_t x = seed;

    for (; *name; name++)
        x = (x ^ (unsigned char)*name) * 0x100000001b3; /* FNV-1a */
    for (int lane = 0; lane < 4; lane++)
        r->state[lane] = mix(&x);
    r->type = type;
    r->n = n;
    r->scale = (float)(1 / (unit_rms(r) * sqrt((double)n)));
}
