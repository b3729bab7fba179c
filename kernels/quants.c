/* SPDX-License-Identifier: MIT */
/* kernels/quants.c - see quants.h.
 *
 * Reading order: the table, which is quants.def; looking types up; rows of floats; the
 * two short float formats.  The decoders are in quant_decode_*.c, the interleaved types
 * in quant_deinterleave.c.
 */
#include "kernels/quants.h"

#include <math.h>
#include <strings.h>

#include "kernels/quant_decode.h"

/* ---- The table ------------------------------------------------------------ */

#define DECODE_FLOAT(name)   NULL
#define DECODE_SCALE32(name) decode_##name
#define DECODE_SCALE16(name) decode_##name

const struct quant_info quant_info[QUANT_COUNT] = {
#define X(NAME, name, id, values, bytes, header, program)     \
    [QUANT_##NAME] = { #NAME,           id,           values, \
                       bytes,           header,       1,      \
                       QUANT_##program, QUANT_##NAME, DECODE_##program(name) },
#define QUANT_INTERLEAVED(NAME, name, id, values, bytes, header, rows, PLAIN) \
    [QUANT_##NAME] = { #NAME, id, values, bytes, header, rows, QUANT_NONE, QUANT_##PLAIN, NULL },
#define QUANT_REFUSED(NAME, name, id, values, bytes, header, reason) \
    [QUANT_##NAME] = { #NAME, id, values, bytes, header, 1, QUANT_NONE, QUANT_##NAME, NULL },
#include "kernels/quants.def"
#undef X
};

static const char *const reasons[QUANT_COUNT] = {
#define X(...)
#define QUANT_INTERLEAVED(...)
#define QUANT_REFUSED(NAME, name, id, values, bytes, header, reason) [QUANT_##NAME] = reason,
#include "kernels/quants.def"
#undef X
};

/* ---- Looking types up ----------------------------------------------------- */

enum quant quant_by_id(uint32_t gguf_id)
{
    int t = 0;

    if (gguf_id == QUANT_NO_ID)
        return QUANT_COUNT;
    while (t < QUANT_COUNT && quant_info[t].gguf_id != gguf_id)
        t++;
    return (enum quant)t;
}

enum quant quant_by_name(const char *name)
{
    int t = 0;

    while (t < QUANT_COUNT && strcasecmp(quant_info[t].name, name) != 0)
        t++;
    return (enum quant)t;
}

const char *quant_refusal(enum quant t)
{
    return reasons[t];
}

/* ---- Rows of floats ------------------------------------------------------- */

/* The two programs of quants.h. */
static void ints_to_floats(const struct quant_ints *v, enum quant_program program, float *out)
{
    if (program == QUANT_SCALE32) {
        for (int i = 0; i < 32; i++)
            out[i] = v->d * (float)v->q[i] + v->m;
        return;
    }
    for (int h = 0; h < 2; h++) {
        float d = v->d * (float)v->s[h], m = v->m * (float)v->n[h];

        for (int i = 16 * h; i < 16 * h + 16; i++)
            out[i] = d * (float)v->q[i] + m;
    }
}

static void dequantize_float(enum quant t, const uint8_t *row, int64_t n, float *out)
{
    if (t == QUANT_F32)
        memcpy(out, row, (size_t)n * sizeof *out);
    else if (t == QUANT_F16)
        for (int64_t i = 0; i < n; i++)
            out[i] = load_f16(row + 2 * i);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = bf16_to_float(load_u16(row + 2 * i));
}

void quant_dequantize_row(enum quant t, const uint8_t *row, int64_t n, float *out)
{
    const struct quant_info *info = &quant_info[t];
    const uint8_t *block = row + info->header;
    struct quant_ints ints[8];

    if (info->program == QUANT_FLOAT) {
        dequantize_float(t, row, n, out);
        return;
    }
    for (int64_t k = 0; k < n; k += info->values, block += info->bytes) {
        if (t == QUANT_IQ6_K) {
            dequantize_iq6_k(block, out + k);
            continue;
        }
        info->decode(row, block, ints);
        for (uint32_t b = 0; b < info->values / 32; b++)
            ints_to_floats(&ints[b], info->program, out + k + 32 * b);
    }
}

/* ---- The short float formats ---------------------------------------------- */

float half_to_float(uint16_t h)
{
    return load_f16((const uint8_t *)&h);
}

uint16_t half_from_float(float f)
{
    union {
        float f;
        uint32_t u;
    } v = { f };
    uint32_t sign = v.u >> 16 & 0x8000, magnitude = v.u & 0x7fffffff, odd;

    if (magnitude > 0x7f800000) /* a NaN, made quiet */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x47800000)
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) /* below 2^-14: units of 2^-24 */
        return (uint16_t)(sign | (uint32_t)lrintf(fabsf(f) * 0x1p24f));
    odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

uint16_t bf16_from_float(float f)
{
    union {
        float f;
        uint32_t u;
    } v = { f };

    if ((v.u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(v.u >> 16 | 0x40);
    return (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}
