/* SPDX-License-Identifier: MIT */
/* kernels/quants.h - every tensor type of a GGUF file: size, name, meaning.
 *
 * A tensor is rows of `values`-wide blocks; a row may begin with a header (ik's
 * row scales).  Whatever the type, 32 consecutive weights of a row are integers
 * and a few scales, and decode() yields just these.  That is the one definition
 * of a type: dequantisation, the portable kernels and the packing tests all stand
 * on it.
 *
 * Two programs turn integers back into weights (q: 32 codes, h = i / 16):
 *
 *     SCALE32   w[i] = d * q[i] + m
 *     SCALE16   w[i] = (d * s[h]) * q[i] + m * n[h]
 *
 * evaluated in f32, left to right, without fused multiply-adds.  F32, F16 and
 * BF16 are FLOAT: they have no integers.  One type has weights that are no integers:
 * IQ6_K's codes are a cubic rounded (as its makers' own kernels take it), while
 * quant_dequantize_row gives the cubic itself.
 *
 * docs/kernels.md lists the range of codes and integer scales of every type.
 */
#ifndef KERNELS_QUANTS_H
#define KERNELS_QUANTS_H

#include <stddef.h>
#include <stdint.h>

enum quant {
#define X(NAME, name, id, values, bytes, header, program) QUANT_##NAME,
#include "kernels/quants.def"
#undef X
    QUANT_COUNT
};

/* The gguf_id of a type that no file has. */
#define QUANT_NO_ID 0xffffffffu

enum quant_program {
    QUANT_FLOAT,   /* F32, F16, BF16: float activations          */
    QUANT_SCALE32, /* a float scale (and minimum) per 32 weights */
    QUANT_SCALE16, /* integer scales per 16 under a float scale  */
    QUANT_NONE,    /* known by name and size, but not computable as it stands: interleaved
                      types, and those that quant_refusal names */
};

/* 32 consecutive weights of one row. */
struct quant_ints {
    int8_t q[32];
    float d, m;   /* m is 0 where the type has no minimum           */
    int16_t s[2]; /* SCALE16 only: integer scale of each 16 columns */
    int16_t n[2]; /* SCALE16 only: integer minimum of each 16       */
};

/* Decodes one block into values/32 results.  header: the row's header (NULL for
 * types without one).  No alignment is required of either. */
typedef void quant_decode_fn(const uint8_t *header, const uint8_t *block, struct quant_ints *out);

struct quant_info {
    const char *name;    /* as the field spells it: "Q4_K", "IQ4_KS" */
    uint32_t gguf_id;    /* `ggml_type` in a tensor directory        */
    uint32_t values;     /* per block                                */
    uint32_t bytes;      /* per block                                */
    uint32_t header;     /* bytes in front of each row               */
    uint32_t interleave; /* rows per group of ik's _R4, _R8 types; otherwise 1 */
    enum quant_program program;
    enum quant plain; /* of an interleaved type: what its rows become at load; otherwise itself */
    quant_decode_fn *decode; /* NULL for FLOAT, NONE and interleaved types       */
};

extern const struct quant_info quant_info[QUANT_COUNT];

/* The type with this GGUF id, or QUANT_COUNT. */
enum quant quant_by_id(uint32_t gguf_id);

/* The type with this name, in any case ("q4_k"), or QUANT_COUNT. */
enum quant quant_by_name(const char *name);

/* NULL if the engine can compute with this type (or turn it into one that it can);
 * otherwise why not, for an error message. */
const char *quant_refusal(enum quant t);

/* Bytes of a row of n values.  n must be a multiple of the block's values. */
static inline size_t quant_row_bytes(enum quant t, size_t n)
{
    return quant_info[t].header + n / quant_info[t].values * quant_info[t].bytes;
}

/* Writes n f32 weights of one plain row.  n must be a multiple of the block's values.
 * The values are those of ggml's reference decoders.  Not for types that
 * quant_refusal names, nor for interleaved ones. */
void quant_dequantize_row(enum quant t, const uint8_t *row, int64_t n, float *out);

/* Turns one group (`interleave` rows of n values) of an interleaved type into that
 * many consecutive plain rows of quant_info[t].plain.  Exact: integers are moved,
 * never rounded.  `plain` may not overlap `group`. */
void quant_deinterleave(enum quant t, const uint8_t *group, int64_t n, uint8_t *plain);

/* Returns the index of the first weight of a plain row that is NaN or infinite (its
 * scale is, or is so large that weights overflow), or -1. */
int64_t quant_find_nonfinite(enum quant t, const uint8_t *row, int64_t n);

/* IEEE half and bfloat16 as they lie in files; subnormals kept. */
float half_to_float(uint16_t h);
uint16_t half_from_float(float f); /* round to nearest even; overflow to infinity */
static inline float bf16_to_float(uint16_t b)
{
    union {
        uint32_t u;
        float f;
    } v = { (uint32_t)b << 16 };
    return v.f;
}
uint16_t bf16_from_float(float f); /* round to nearest even; NaN stays NaN */

#endif
