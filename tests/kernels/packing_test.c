/* SPDX-License-Identifier: MIT */
/* tests/kernels/packing_test.c - rows come back from the x16 form as they went in, and the
 * layouts that kernels read directly are those that packing.h describes. */
#include "kernels/packing.h"
#include "kernels/quant_tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint8_t *random_bytes(size_t n)
{
    uint8_t *p = aligned_alloc(64, (n + 63) / 64 * 64);
    uint64_t x = 0x9e3779b97f4a7c15 + n;

    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        p[i] = (uint8_t)(x >> 32);
    }
    return p;
}

/* ---- There and back ------------------------------------------------------- */

static void check_round_trip(enum quant t, int64_t n, int n_rows)
{
    size_t row_bytes = quant_row_bytes(t, (size_t)n), stride = row_bytes + 3;
    size_t group_bytes = pack_group_bytes(t, n);
    uint8_t *rows = random_bytes(stride * 16), *group = random_bytes(group_bytes);
    uint8_t *row = malloc(row_bytes), *zeros = calloc(1, row_bytes);

    pack_group(t, rows, stride, n_rows, n, group);
    for (int r = 0; r < 16; r++) {
        unpack_row(t, group, r, n, row);
        if (memcmp(row, r < n_rows ? rows + (size_t)r * stride : zeros, row_bytes) != 0)
            fail_msg("%s, %d of %d rows, %d columns", quant_info[t].name, r, n_rows, (int)n);
    }
    free(rows);
    free(group);
    free(row);
    free(zeros);
}

static void rows_come_back(void **state)
{
    static const int64_t columns[] = { 1, 7, 32, 64, 128, 256, 257, 544, 1408, 2048 };

    (void)state;
    for (int t = 0; t < QUANT_COUNT; t++)
        for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
            if (quant_info[t].program == QUANT_NONE || columns[i] % quant_info[t].values != 0)
                continue;
            for (int n_rows = 1; n_rows <= 16; n_rows++)
                check_round_trip((enum quant)t, columns[i], n_rows);
        }
}

/* Memory needs what the file needs, but for headers and the end of the last line. */
static void sizes_are_those_of_the_file(void **state)
{
    (void)state;
    for (int i = 0; i < QUANT_COUNT; i++) {
        enum quant t = (enum quant)i;
        const struct quant_info *info = &quant_info[t];
        size_t headers = ((size_t)info->header * 16 + 63) / 64 * 64;

        if (info->program == QUANT_NONE)
            continue;
        for (int64_t n = 256; n <= 2048; n *= 2) {
            size_t want = headers + (quant_row_bytes(t, (size_t)n) - info->header) * 16;

            assert_int_equal(pack_atom_offset(t, n), want);
            assert_int_equal(pack_group_bytes(t, n), (want + 63) / 64 * 64);
            assert_int_equal(pack_matrix_bytes(t, 16, n), pack_group_bytes(t, n));
            assert_int_equal(pack_matrix_bytes(t, 17, n), 2 * pack_group_bytes(t, n));
        }
        assert_int_equal(pack_atom_offset(t, 0), headers);
    }
    assert_int_equal(pack_group_bytes(QUANT_BF16, 3), 2 * 64);
    assert_int_equal(pack_group_bytes(QUANT_F16, 3), 2 * 64);
    assert_int_equal(pack_group_bytes(QUANT_Q8_0, 1408), 1408 / 32 * 34 * 16);
}

/* ---- The layouts, read as packing.h tells --------------------------------- */

static int nibble(const uint8_t *lines, int block, int column, int r)
{
    int byte = lines[256 * block + 64 * (column % 16 / 4) + 4 * r + column % 4];

    return column < 16 ? byte & 15 : byte >> 4;
}

/* One atom of each direct type against decode(), column by column. */
static void expect_codes(enum quant t, const uint8_t *row, int (*code)(const uint8_t *, int, int),
                         const uint8_t *atom, int r)
{
    struct quant_ints ints[8] = { 0 };
    int n_blocks = 256 / (int)quant_info[t].values;

    for (int b = 0; b < n_blocks; b++)
        quant_info[t].decode(NULL, row + (size_t)b * quant_info[t].bytes, &ints[b]);
    for (int k = 0; k < 256; k++)
        if (code(atom, k, r) != ints[k / 32].q[k % 32])
            fail_msg("%s: row %d, column %d", quant_info[t].name, r, k);
}

static int q8_0_code(const uint8_t *atom, int k, int r)
{
    return (int8_t)atom[256 + 512 * (k / 32) + 64 * (k % 32 / 4) + 4 * r + k % 4];
}

static int q4_k_code(const uint8_t *atom, int k, int r)
{
    return nibble(atom + 256, k / 32, k % 32, r);
}

/* Bit 4 of column k, from words as packing.h has them. */
static int fifth_bit(const uint8_t *bits, int k, int r)
{
    int column = k % 32;

    return bits[64 * (k / 32) + 4 * r + column % 4] >> (column / 4) & 1;
}

static int q5_k_code(const uint8_t *atom, int k, int r)
{
    return q4_k_code(atom, k, r) | fifth_bit(atom + 2304, k, r) << 4;
}

static int q6_k_code(const uint8_t *atom, int k, int r)
{
    int column = k % 32;
    const uint8_t *tops = atom + 2336 + 128 * (k / 32) + 64 * (column / 16) + 4 * r;

    return (nibble(atom + 288, k / 32, column, r) |
            (tops[column % 4] >> (2 * (column % 16 / 4)) & 3) << 4) -
           32;
}

/* Two bits of column k, from lines as Q6_K's top bits. */
static int two_bits(const uint8_t *lines, int k, int r)
{
    int column = k % 32;
    const uint8_t *word = lines + 128 * (k / 32) + 64 * (column / 16) + 4 * r;

    return word[column % 4] >> (2 * (column % 16 / 4)) & 3;
}

static int q2_k_code(const uint8_t *atom, int k, int r)
{
    return two_bits(atom + 320, k, r);
}

static int q3_k_code(const uint8_t *atom, int k, int r)
{
    int column = k % 32;
    const uint8_t *word = atom + 1248 + 64 * (k / 32) + 4 * r;

    return (two_bits(atom + 224, k, r) | (word[column % 4] >> (column / 4) & 1) << 2) - 4;
}

static int q4_0_code(const uint8_t *atom, int k, int r)
{
    return nibble(atom + 256, k / 32, k % 32, r) - 8;
}

static int q4_1_code(const uint8_t *atom, int k, int r)
{
    return nibble(atom + 512, k / 32, k % 32, r);
}

static int q5_0_code(const uint8_t *atom, int k, int r)
{
    return (nibble(atom + 256, k / 32, k % 32, r) | fifth_bit(atom + 2304, k, r) << 4) - 16;
}

static int q5_1_code(const uint8_t *atom, int k, int r)
{
    return q4_1_code(atom, k, r) | fifth_bit(atom + 2560, k, r) << 4;
}

static int iq4_nl_code(const uint8_t *atom, int k, int r)
{
    return quant_values4[nibble(atom + 256, k / 32, k % 32, r)];
}

static int mxfp4_code(const uint8_t *atom, int k, int r)
{
    static const int twice[8] = { 0, 1, 2, 3, 4, 6, 8, 12 };
    int v = nibble(atom + 128, k / 32, k % 32, r);

    return v < 8 ? twice[v] : -twice[v - 8];
}

static int iq4_xs_code(const uint8_t *atom, int k, int r)
{
    return quant_values4[nibble(atom + 128, k / 32, k % 32, r)];
}

/* A scale for each 32 columns, as in the file. */
static void expect_scales_32(const uint8_t *row, const uint8_t *atom, int r, enum quant t)
{
    size_t bytes = quant_info[t].bytes, size = t == QUANT_MXFP4 ? 1 : 2;

    for (size_t b = 0; b < 8; b++)
        assert_memory_equal(atom + size * (16 * b + (size_t)r), row + bytes * b, size);
}

static void expect_scales_and_minima(const uint8_t *row, const uint8_t *atom, int r, enum quant t)
{
    for (size_t b = 0; b < 8; b++, row += quant_info[t].bytes, atom += 64) {
        assert_memory_equal(atom + 2 * r, row, 2);
        assert_memory_equal(atom + 32 + 2 * r, row + 2, 2);
    }
}

static void expect_scales_iq4_xs(const uint8_t *row, const uint8_t *atom, int r, enum quant t)
{
    (void)t;
    assert_memory_equal(atom + 2 * r, row, 2);
    assert_memory_equal(atom + 32 + 2 * r, row + 2, 2);
    assert_memory_equal(atom + 64 + 4 * r, row + 4, 4);
}

static void expect_scales_q2_k(const uint8_t *row, const uint8_t *atom, int r, enum quant t)
{
    (void)t;
    assert_memory_equal(atom + 2 * r, row + 80, 2);
    assert_memory_equal(atom + 32 + 2 * r, row + 82, 2);
    for (int s = 0; s < 16; s++)
        assert_int_equal(atom[64 + 16 * s + r], row[s]);
}

static void expect_scales_q3_k(const uint8_t *row, const uint8_t *atom, int r, enum quant t)
{
    struct quant_ints ints[8];

    quant_info[t].decode(NULL, row, ints);
    assert_memory_equal(atom + 2 * r, row + 108, 2);
    for (int s = 0; s < 16; s++) {
        int low = atom[32 + 16 * (s / 2) + r] >> (4 * (s % 2)) & 15;
        int high = atom[160 + 16 * (s / 4) + r] >> (2 * (s % 4)) & 3;
        assert_int_equal((low | high << 4) - 32, ints[s / 2].s[s % 2]);
    }
}

static void expect_scales_k4(const uint8_t *row, const uint8_t *atom, int r, enum quant t)
{
    const uint8_t *lines = atom + 64 + 4 * r;
    struct quant_ints ints[8];
    uint16_t d, dmin;

    memcpy(&d, atom + 2 * r, 2);
    memcpy(&dmin, atom + 32 + 2 * r, 2);
    quant_info[t].decode(NULL, row, ints);
    for (int j = 0; j < 4; j++) {
        int scale = lines[j] & 63, min = lines[64 + j] & 63;
        int scale4 = lines[j] >> 6 | (lines[128 + j] & 15) << 2;
        int min4 = lines[64 + j] >> 6 | lines[128 + j] >> 4 << 2;

        assert_true(ints[j].d == half_to_float(d) * (float)scale);
        assert_true(ints[4 + j].d == half_to_float(d) * (float)scale4);
        assert_true(ints[j].m == -(half_to_float(dmin) * (float)min));
        assert_true(ints[4 + j].m == -(half_to_float(dmin) * (float)min4));
    }
}

static void expect_scales_q6_k(const uint8_t *row, const uint8_t *atom, int r, enum quant t)
{
    struct quant_ints ints[8];
    uint16_t d;

    (void)t;
    memcpy(&d, atom + 2 * r, 2);
    quant_info[QUANT_Q6_K].decode(NULL, row, ints);
    for (int s = 0; s < 16; s++)
        assert_int_equal((int8_t)atom[32 + 16 * s + r], ints[s / 2].s[s % 2]);
    assert_true(half_to_float(d) == ints[0].d);
}

struct direct {
    enum quant t;
    int (*code)(const uint8_t *, int, int);
    void (*scales)(const uint8_t *row, const uint8_t *atom, int r, enum quant t);
    size_t half[2]; /* where in a block the high bytes of its halves are, if it has any */
};

/* Random rows of 512 columns whose halves are finite, and the second of their two atoms. */
static void check_layout(const struct direct *c)
{
    size_t row_bytes = quant_row_bytes(c->t, 512), bytes = quant_info[c->t].bytes;
    uint8_t *rows = random_bytes(16 * row_bytes),
            *group = random_bytes(pack_group_bytes(c->t, 512));
    const uint8_t *atom = group + pack_atom_offset(c->t, 256);

    for (size_t block = 0; block < 16 * row_bytes; block += bytes)
        for (int i = 0; i < 2; i++)
            rows[block + c->half[i]] &= 0xbf;
    pack_group(c->t, rows, row_bytes, 16, 512, group);
    for (int r = 0; r < 16; r++) {
        const uint8_t *row = rows + (size_t)r * row_bytes + row_bytes / 2;

        expect_codes(c->t, row, c->code, atom, r);
        c->scales(row, atom, r, c->t);
    }
    free(rows);
    free(group);
}

static void direct_layouts_are_as_described(void **state)
{
    static const struct direct direct[] = {
        {QUANT_Q8_0,    q8_0_code,   expect_scales_32,         { 1, 1 }    },
        { QUANT_Q4_0,   q4_0_code,   expect_scales_32,         { 1, 1 }    },
        { QUANT_Q4_1,   q4_1_code,   expect_scales_and_minima, { 1, 3 }    },
        { QUANT_Q5_0,   q5_0_code,   expect_scales_32,         { 1, 1 }    },
        { QUANT_Q5_1,   q5_1_code,   expect_scales_and_minima, { 1, 3 }    },
        { QUANT_IQ4_NL, iq4_nl_code, expect_scales_32,         { 1, 1 }    },
        { QUANT_MXFP4,  mxfp4_code,  expect_scales_32,         { 0, 0 }    },
        { QUANT_IQ4_XS, iq4_xs_code, expect_scales_iq4_xs,     { 1, 1 }    },
        { QUANT_Q2_K,   q2_k_code,   expect_scales_q2_k,       { 81, 83 }  },
        { QUANT_Q3_K,   q3_k_code,   expect_scales_q3_k,       { 109, 109 }},
        { QUANT_Q4_K,   q4_k_code,   expect_scales_k4,         { 1, 3 }    },
        { QUANT_Q5_K,   q5_k_code,   expect_scales_k4,         { 1, 3 }    },
        { QUANT_Q6_K,   q6_k_code,   expect_scales_q6_k,       { 209, 209 }},
    };

    (void)state;
    for (size_t i = 0; i < sizeof direct / sizeof *direct; i++)
        check_layout(&direct[i]);
}

static void float_layouts_are_as_described(void **state)
{
    enum { N = 7 };
    uint16_t rows[16][N], f16[N + 1][16], bf16[(N + 1) / 2][16][2];

    (void)state;
    for (int r = 0; r < 16; r++)
        for (int k = 0; k < N; k++)
            rows[r][k] = (uint16_t)(1000 * r + k + 1);
    pack_group(QUANT_F16, (const uint8_t *)rows, sizeof rows[0], 16, N, (uint8_t *)f16);
    pack_group(QUANT_BF16, (const uint8_t *)rows, sizeof rows[0], 16, N, (uint8_t *)bf16);
    for (int r = 0; r < 16; r++) {
        for (int k = 0; k < N; k++) {
            assert_int_equal(f16[k][r], rows[r][k]);
            assert_int_equal(bf16[k / 2][r][k % 2], rows[r][k]);
        }
        assert_int_equal(bf16[N / 2][r][1], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back),
        cmocka_unit_test(sizes_are_those_of_the_file),
        cmocka_unit_test(direct_layouts_are_as_described),
        cmocka_unit_test(float_layouts_are_as_described),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
