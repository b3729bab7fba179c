/* SPDX-License-Identifier: MIT */
/* tests/kernels/quants_test.c - the tensor types, against decoders that are not ours.
 *
 * tests/data/types/NAME.q holds 8 rows of 512 columns, NAME.f32 what they mean.
 */
#include "kernels/quants.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cmocka.h>

enum { ROWS = 8, COLUMNS = 512 };

/* The bytes of a file in tests/data/types, which must have `bytes`. */
static void *read_data(const char *name, const char *suffix, size_t bytes)
{
    char path[512];
    uint8_t *data = malloc(bytes + 1);
    FILE *f;

    snprintf(path, sizeof path, "%s/types/%s.%s", TEST_DATA, name, suffix);
    f = fopen(path, "rb");
    if (!f)
        fail_msg("%s: cannot be opened", path);
    if (fread(data, 1, bytes + 1, f) != bytes)
        fail_msg("%s: does not have %zu bytes", path, bytes);
    fclose(f);
    return data;
}

static void matches_golden(void **state)
{
    enum quant t = quant_by_name(*state);
    size_t row_bytes = quant_row_bytes(t, COLUMNS);
    uint8_t *rows = read_data(*state, "q", ROWS * row_bytes);
    float *want = read_data(*state, "f32", (size_t)ROWS * COLUMNS * sizeof *want);

    assert_null(quant_refusal(t));
    for (int r = 0; r < ROWS; r++) {
        float got[COLUMNS];

        quant_dequantize_row(t, rows + (size_t)r * row_bytes, COLUMNS, got);
        for (int k = 0; k < COLUMNS; k++) {
            float w = want[r * COLUMNS + k];

            if (!(got[k] == w))
                fail_msg("row %d, column %d: got %.9g, want %.9g", r, k, (double)got[k], (double)w);
        }
    }
    free(rows);
    free(want);
}

#define GOLDEN(name)                                                       \
    {                                                                      \
        "matches_golden " name, matches_golden, NULL, NULL, (void *)(name) \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        GOLDEN("f32"),     GOLDEN("f16"),     GOLDEN("bf16"),   GOLDEN("q4_0"),    GOLDEN("q4_1"),
        GOLDEN("q5_0"),    GOLDEN("q5_1"),    GOLDEN("q8_0"),   GOLDEN("q2_K"),    GOLDEN("q3_K"),
        GOLDEN("q4_K"),    GOLDEN("q5_K"),    GOLDEN("q6_K"),   GOLDEN("iq2_xxs"), GOLDEN("iq2_xs"),
        GOLDEN("iq3_xxs"), GOLDEN("iq1_s"),   GOLDEN("iq4_nl"), GOLDEN("iq3_s"),   GOLDEN("iq2_s"),
        GOLDEN("iq4_xs"),  GOLDEN("iq1_m"),   GOLDEN("mxfp4"),  GOLDEN("q6_0"),    GOLDEN("iq2_k"),
        GOLDEN("iq3_k"),   GOLDEN("iq4_k"),   GOLDEN("iq5_k"),  GOLDEN("iq6_k"),   GOLDEN("iq4_ks"),
        GOLDEN("iq2_ks"),  GOLDEN("iq4_kss"), GOLDEN("iq5_ks"), GOLDEN("iq2_kt"),  GOLDEN("iq3_kt"),
        GOLDEN("iq4_kt"),  GOLDEN("iq3_ks"),  GOLDEN("iq2_kl"), GOLDEN("iq1_kt"),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
