/* SPDX-License-Identifier: MIT */
/* tests/model/model_fixtures_test.c - every model among the big fixtures opens: small models in
 * all types, and the headers of full-size ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "model/model.h"

static void fixtures_open(void **state)
{
    static const struct {
        const char *path;
        unsigned flags;
        int n_layers, n_experts;
    } rows[] = {
        {"models/tiny-v2-legacy-f16.gguf",                   0,                 2,  8  },
        { "models/tiny-v3-f16.gguf",                         0,                 3,  16 },
        { "models/tiny-v3-iq4_xs.gguf",                      0,                 3,  16 },
        { "models/tiny-v3-legacy-q4_k_m.gguf",               0,                 3,  16 },
        { "models/tiny-v3-q2_k.gguf",                        0,                 3,  16 },
        { "models/tiny-v3-q4_k_m-split-00002-of-00003.gguf", 0,                 3,  16 },
        { "models/tiny-v3-q8_0.gguf",                        0,                 3,  16 },
        { "rules/glmflash-q4_k.head.gguf",                   GGUF_HEADERS_ONLY, 47, 64 },
        { "rules/k2-q4_k.head.gguf",                         GGUF_HEADERS_ONLY, 61, 384},
        { "rules/v2lite-q4_k.head.gguf",                     GGUF_HEADERS_ONLY, 27, 64 },
        { "rules/v3-q4_k.head.gguf",                         GGUF_HEADERS_ONLY, 61, 256},
        { "rules/v3-q4_k-legacy.head.gguf",                  GGUF_HEADERS_ONLY, 61, 256},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[512];
        struct model *m = NULL;
        struct err e = { 0 };
        (void)snprintf(path, sizeof path, "%s/%s", getenv("LATENTD_FIXTURES"), rows[i].path);
        if (model_open(&m, path, rows[i].flags, NULL, 0, &e) != ERR_OK)
            fail_msg("%s", e.msg);
        assert_int_equal(m->hp.n_layers, rows[i].n_layers);
        assert_int_equal(m->hp.n_experts, rows[i].n_experts);
        model_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(fixtures_open) };

    if (!getenv("LATENTD_FIXTURES")) {
        (void)printf("skipped: LATENTD_FIXTURES is not set\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
