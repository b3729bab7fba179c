/* SPDX-License-Identifier: MIT */
/* tests/cli/roofline_test.c - the floors of bench, for a small model and a made-up machine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cli/roofline.h"

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * want))
        fail_msg("got %.9g, want %.9g", got, want);
}

/* Sums over the tensor list of the file, made with another program. */
static void work_of_a_small_model(void **state)
{
    struct model *m;
    struct model_work w;
    struct err e;
    (void)state;

    if (model_open(&m, TEST_DATA "/models/tiny-v3-q4_k_m.gguf", 0, NULL, 0, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    model_work_read(&w, m);
    model_close(&m);
    near(w.shared_bytes, 3829376, 1e-12);
    near(w.shared_macs, 5042208, 1e-12);
    near(w.expert_bytes, 238080, 1e-12);
    near(w.expert_macs, 393216, 1e-12);
    assert_int_equal(w.n_experts, 16);
    assert_int_equal(w.n_experts_used, 4);
}

static void floors(void **state)
{
    const struct machine m = { .read_bytes_per_s = 100, .int8_ops_per_s = 1000 };
    const struct model_work w = { .shared_bytes = 50,
                                  .shared_macs = 10,
                                  .expert_bytes = 5,
                                  .expert_macs = 20,
                                  .n_experts = 4,
                                  .n_experts_used = 2 };
    const struct model_work dense = { .shared_bytes = 100, .shared_macs = 10 };
    (void)state;

    near(roofline_decode_s(&m, 60, 40), 1, 1e-12);
    /* One token: 50 multiply-adds; the shared weights and two of four experts. */
    near(roofline_prefill_s(&m, &w, 1, 512), 0.1 + 0.6, 1e-12);
    /* Two at once meet 3/4 of the experts; in two steps they read everything twice. */
    near(roofline_prefill_s(&m, &w, 2, 512), 0.2 + 0.65, 1e-12);
    near(roofline_prefill_s(&m, &w, 2, 1), 0.2 + 1.2, 1e-12);
    near(roofline_prefill_s(&m, &dense, 3, 2), 0.06 + 2, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_of_a_small_model),
        cmocka_unit_test(floors),
    };
    return cmocka_run_group_tests_name("cli/roofline", tests, NULL, NULL);
}
