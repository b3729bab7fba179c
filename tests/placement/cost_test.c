/* SPDX-License-Identifier: MIT */
/* tests/placement/cost_test.c - the prediction against sums that the test does itself. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "placement/cost.h"
#include "placement/cost_parts.h"
#include "plan_support.h"

static const char model_path[] = TEST_DATA "/models/tiny-v3-q4_k_m.gguf";

static void near(double got, double want, const char *what)
{
    if (!(fabs(got - want) <= 1e-6 * fabs(want) + 1e-12))
        fail_msg("%s: got %.9g, want %.9g", what, got, want);
}

static double term_us(const struct plan *p, enum plan_phase phase, const char *name)
{
    for (int i = 0; i < p->predict.n_terms; i++)
        if (p->predict.terms[i].phase == phase && !strcmp(p->predict.terms[i].name, name))
            return p->predict.terms[i].us;
    return 0;
}

static double all_us(const struct plan *p, enum plan_phase phase)
{
    double us = 0;

    for (int i = 0; i < p->predict.n_terms; i++)
        us += p->predict.terms[i].phase == phase ? p->predict.terms[i].us : 0;
    return us;
}

/* ---- One device --------------------------------------------------------------- */

/* Bytes that a step of `batch` requests reads from the only device. */
static double bytes_met(const struct plan *p, int batch)
{
    const struct hparams *hp = &p->model->hp;
    double met = 1 - pow(1 - (double)hp->n_experts_used / hp->n_experts, batch), sum = 0;

    for (int i = 0; i < p->n_parts; i++) {
        const struct plan_part *part = &p->parts[i];
        if (part->axis == AXIS_EXPERTS)
            sum += met * (double)part->memory_bytes;
        else if (p->tensors[part->tensor].layer >= 0 || part->axis == AXIS_VOCAB)
            sum += (double)part->memory_bytes;
    }
    return sum;
}

static void memory_sets_the_pace(void **state)
{
    static const int batches[] = { 1, 3, 16 };
    const struct efficiency *latentd = efficiency_by_name("latentd");

    (void)state;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct case_plan c;
        /* 64,000 cores: arithmetic takes no time beside 1 GB/s. */
        support_open(&c, model_path, "host(ram=8G,bw=1G,cores=64000)", NULL);
        c.in.opt.batch = batches[i];
        support_plan(&c);
        const struct plan *p = &c.plan;
        double launches = term_us(p, PHASE_DECODE, "launches and barriers");
        near(launches, latentd->host_us * p->model->hp.n_layers, "launches");
        near(all_us(p, PHASE_DECODE) - launches,
             1e6 * bytes_met(p, batches[i]) / (1e9 * latentd->host_bw), "weights");
        near(p->predict.decode_tps, 1e6 * batches[i] / all_us(p, PHASE_DECODE), "tokens/s");
        assert_int_equal(p->predict.n_links, 0);
        support_close(&c);
    }
}

static void depth_costs_the_cache(void **state)
{
    struct case_plan c;

    (void)state;
    support_open(&c, model_path, "host(ram=8G,bw=1G,cores=64000)", NULL);
    c.in.opt.depth = 1000;
    c.in.opt.batch = 2;
    support_plan(&c);
    double row = 2.0 * (double)(c.model->hp.kv_lora_rank + c.model->hp.d_rope);
    near(term_us(&c.plan, PHASE_DECODE, "reading the latent cache"),
         1e6 * 2 * 1000 * row * c.model->hp.n_layers / 0.9e9, "cache");
    support_close(&c);
}

/* ---- Several devices ------------------------------------------------------------ */

/* Experts or routers in host memory, and attention once more where part of it lies there. */
static void crossings_are_counted(void **state)
{
    static const struct {
        const char *rules;
        int moe, all; /* crossings of a MoE layer, of any layer besides */
    } rows[] = {
        {"exps=CUDA0",                               0, 0},
        { "exps=CPU",                                2, 0},
        { "exps=CUDA0,ffn_gate_inp=CPU",             2, 0},
        { "exps=CPU,ffn_gate_inp=CPU,attn_norm=CPU", 2, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct case_plan c;
        support_open(&c, model_path, "host(ram=8G,bw=100G,gpus=H100)", rows[i].rules);
        support_plan(&c);
        const struct plan *p = &c.plan;
        int layers = p->model->hp.n_layers, moe = layers - p->model->hp.n_dense;
        int want = rows[i].moe * moe + rows[i].all * layers;
        near(p->predict.crossings, want, rows[i].rules);
        assert_int_equal(p->predict.n_links, want > 0);
        if (want > 0) {
            near(p->predict.links[0].messages, want, "messages");
            near(p->predict.links[0].bytes, want * (double)p->model->hp.d_model * 4, "bus bytes");
        }
        support_close(&c);
    }
}

static void sums_cost_latency(void **state)
{
    struct case_plan c;

    (void)state;
    support_open(&c, model_path, "4*host(ram=8G,bw=100G,ranks=2,link=10G/7us)", NULL);
    support_plan(&c);
    const struct plan *p = &c.plan;
    int sums = 2 * p->model->hp.n_layers;
    /* two barriers in shared memory, 2 log2(4) messages between hosts */
    near(term_us(p, PHASE_DECODE, "sums over ranks, latency"), sums * (5 + 2 * 2 * 7.0), "sums");
    assert_int_equal(p->predict.n_links, 2);
    near(p->predict.links[1].bytes, sums * (double)p->model->hp.d_model * 12 * 3 / 4, "bytes");
    assert_true(p->predict.links[1].messages == 4.0 * sums);
    support_close(&c);
}

/* Host and GPU experts overlap, so moving some to an idle GPU cannot cost more than all of them
 * on the host; an engine that takes turns cannot be faster than one that does not. */
static void overlap_helps(void **state)
{
    const char *devices = "host(ram=8G,bw=1G,gpus=H100)";
    struct efficiency serial = *efficiency_by_name("latentd");
    struct case_plan all, some;
    struct err e = { 0 };

    (void)state;
    serial.serial = 1;
    support_open(&all, model_path, devices, "exps=CPU");
    support_plan(&all);
    support_open(&some, model_path, devices, "exps=CUDA0:4+CPU");
    support_plan(&some);
    assert_true(some.plan.predict.decode_tps > all.plan.predict.decode_tps);
    double side_by_side = some.plan.predict.decode_tps;
    assert_int_equal(cost_predict(&some.plan, &serial, &e), ERR_OK);
    assert_true(some.plan.predict.decode_tps < side_by_side);
    support_close(&all);
    support_close(&some);
}

static void dominating_term_comes_first(void **state)
{
    struct case_plan c;

    (void)state;
    support_open(&c, model_path, "2*host(ram=8G,bw=1000G,cores=1000,link=1G/5000us)", NULL);
    support_plan(&c);
    const struct plan_term *t = cost_dominating(&c.plan.predict, PHASE_DECODE);
    assert_non_null(t);
    assert_string_equal(t->name, "sums over ranks, latency");
    for (int i = 1; i < c.plan.predict.n_terms; i++)
        assert_true(c.plan.predict.terms[i].phase > c.plan.predict.terms[i - 1].phase ||
                    c.plan.predict.terms[i].us <= c.plan.predict.terms[i - 1].us);
    support_close(&c);
}

/* ---- Chance ---------------------------------------------------------------------- */

static void expected_maximum(void **state)
{
    struct draw two[] = {
        {2,  0.5, 1},
        { 2, 0.5, 1}
    }; /* 0, 1, 2 with 1/4, 1/2, 1/4 */
    struct draw odd[] = {
        {1,  0.5, 3},
        { 1, 0.5, 1}
    };
    struct draw sure[] = {
        {4,  1, 2},
        { 8, 1, 2}
    };
    struct draw one[] = {
        {8, 0.25, 3}
    };
    struct draw eight[8];
    double mean;

    (void)state;
    near(cost_draw_max(two, 2, &mean), 1.375, "two equal devices");
    near(mean, 1, "their mean");
    near(cost_draw_max(odd, 2, &mean), 0.5 * 3 + 0.25 * 1, "a slow and a fast one");
    near(cost_draw_max(sure, 2, &mean), 16, "all experts are met");
    near(cost_draw_max(one, 1, &mean), 6, "one device");
    /* V3 at batch 1: 8 of 256 experts over 8 ranks; drawn without replacement the fullest rank
     * has 2.57 on average (simulated); independent draws say a little more. */
    for (int i = 0; i < 8; i++)
        eight[i] = (struct draw){ 32, 8.0 / 256, 1 };
    double most = cost_draw_max(eight, 8, &mean);
    near(mean, 1, "mean");
    if (!(most > 2.4 && most < 2.75))
        fail_msg("fullest of 8 ranks: %.3f experts", most);
}

static void engines_by_name(void **state)
{
    (void)state;
    assert_non_null(efficiency_by_name("ik_llama.cpp"));
    assert_non_null(efficiency_by_name("LATENTD"));
    assert_null(efficiency_by_name("vllm"));
    assert_non_null(strstr(efficiency_names(), "ktransformers"));
    assert_true(efficiency_is_codebook(QUANT_IQ2_XXS));
    assert_false(efficiency_is_codebook(QUANT_Q4_K));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_sets_the_pace),  cmocka_unit_test(depth_costs_the_cache),
        cmocka_unit_test(crossings_are_counted), cmocka_unit_test(sums_cost_latency),
        cmocka_unit_test(overlap_helps),         cmocka_unit_test(dominating_term_comes_first),
        cmocka_unit_test(expected_maximum),      cmocka_unit_test(engines_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
