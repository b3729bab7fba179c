/* SPDX-License-Identifier: MIT */
/* tests/placement/plan_test.c - the plan against the engine's own account, and its promises. */
#include "plan_support.h"

#include <time.h>

#include "placement/changes.h"
#include "rank/engine.h"

static const char *const small_models[] = { "tiny-v2-f16", "tiny-v3-q4_k_m",
                                            "tiny-v3-legacy-iq4_ks" };

/* One rank on CPU: weights, cache and activations are those that the engine maps. */
static void one_rank_is_the_engine(void **state)
{
    static const struct {
        enum cache_type engine;
        enum plan_cache_type plan;
        int ubatch, threads, amb;
    } rows[] = {
        {CACHE_F16,   PLAN_CACHE_F16,  512, 2, 256},
        { CACHE_Q8_0, PLAN_CACHE_Q8_0, 17,  5, 1  },
        { CACHE_F32,  PLAN_CACHE_F32,  1,   1, 64 },
    };

    (void)state;
    for (int i = 0; i < 9; i++) {
        struct case_plan c;
        struct engine_options o;
        struct engine_memory mem;
        struct err e = { 0 };
        char path[512];
        snprintf(path, sizeof path, "%s/models/%s.gguf", TEST_DATA, small_models[i % 3]);
        support_open(&c, path, "host(ram=8G,bw=20G,cores=2)", NULL);
        engine_options_default(&o);
        o.cache_type = rows[i / 3].engine;
        o.max_batch = c.in.opt.ubatch = rows[i / 3].ubatch;
        o.max_logits = c.in.opt.n_logits = 16;
        o.n_threads = c.in.opt.n_threads = rows[i / 3].threads;
        o.amb_mib = c.in.opt.amb_mib = rows[i / 3].amb;
        o.n_context = c.in.opt.n_context = 1000;
        c.in.opt.cache_type = rows[i / 3].plan;
        support_plan(&c);
        support_check_complete(&c);
        if (engine_plan(&mem, c.model, &o, &e) != ERR_OK)
            fail_msg("%s", e.msg);
        assert_int_equal(c.plan.n_devices, 1);
        assert_int_equal(c.plan.devices[0].weights_bytes, (int64_t)mem.weights);
        assert_int_equal(c.plan.devices[0].cache_bytes, (int64_t)mem.cache);
        assert_int_equal(c.plan.devices[0].activation_bytes, (int64_t)mem.activations);
        assert_true(c.plan.fits);
        support_close(&c);
    }
}

static void real_shapes_are_the_engine(void **state)
{
    static const char *const heads[] = { "v3-q4_k", "k2-q4_k", "glmflash-q4_k", "v2lite-q4_k",
                                         "v3-q4_k-legacy" };

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct case_plan c;
        struct engine_options o;
        struct engine_memory mem = { 0 };
        struct err e = { 0 };
        char path[512], name[64];
        snprintf(name, sizeof name, "rules/%s.head.gguf", heads[i]);
        support_open(&c, support_fixture(name, path, sizeof path), "host(ram=2T,bw=400G)", NULL);
        engine_options_default(&o);
        o.n_threads = c.in.opt.n_threads = 8;
        o.amb_mib = c.in.opt.amb_mib;
        o.n_context = 4096;
        o.max_logits = c.in.opt.n_logits = 1;
        support_plan(&c);
        support_check_complete(&c);
        engine_plan(&mem, c.model, &o, &e); /* may well not fit here: the sizes count */
        assert_int_equal(c.plan.devices[0].weights_bytes, (int64_t)mem.weights);
        assert_int_equal(c.plan.devices[0].activation_bytes, (int64_t)mem.activations);
        print_message("%s: %.1f GB, decode %.1f t/s, prefill %.0f t/s\n", heads[i],
                      1e-9 * (double)mem.weights, c.plan.predict.decode_tps,
                      c.plan.predict.prefill_tps);
        support_close(&c);
    }
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void big_cluster(void **state)
{
    struct case_plan c;
    char path[512];
    int64_t least = INT64_MAX, most = 0;

    (void)state;
    support_open(&c, support_fixture("rules/v3-q4_k.head.gguf", path, sizeof path),
                 "16*host(ram=512G,bw=400G,gpus=8*H200,link=50G/3us)", NULL);
    c.in.opt.n_context = 0;
    double start = now();
    support_plan(&c);
    print_message("128 GPUs: %.0f ms, %d parts, %.1f t/s\n", 1e3 * (now() - start), c.plan.n_parts,
                  c.plan.predict.decode_tps);
    support_check_complete(&c);
    assert_true(c.plan.fits);
    assert_int_equal(c.plan.opt.n_context, c.model->hp.context_length);
    for (int d = c.plan.n_ranks; d < c.plan.n_devices; d++) {
        int64_t w = c.plan.devices[d].weights_bytes;
        least = w < least ? w : least;
        most = w > most ? w : most;
    }
    assert_true((double)most <= 1.3 * (double)least);
    for (int r = 0; r < c.plan.n_ranks; r++) /* experts are all on GPUs */
        for (int i = 0; i < c.plan.n_parts; i++)
            if (c.plan.parts[i].axis == AXIS_EXPERTS)
                assert_true(c.plan.parts[i].device >= c.plan.n_ranks);
    support_close(&c);
}

/* Experts of layer `layer` on device d. */
static int64_t experts_on(const struct plan *p, int layer, int d)
{
    int64_t n = 0;

    for (int i = 0; i < p->n_parts; i++) {
        const struct plan_part *part = &p->parts[i];
        const struct plan_tensor *t = &p->tensors[part->tensor];
        if (t->role != ROLE_DOWN_EXPS || t->layer != layer || part->device != d)
            continue;
        for (int r = 0; r < part->n_ranges; r++)
            n += p->ranges[part->first_range + r].end - p->ranges[part->first_range + r].begin;
    }
    return n;
}

static void counts_and_the_rest(void **state)
{
    struct case_plan c;
    char path[512];

    (void)state;
    snprintf(path, sizeof path, "%s/models/tiny-v3-q4_k_m.gguf", TEST_DATA);
    support_open(&c, path, "host(ram=8G,bw=20G,gpus=2*RTX3090)", "exps=CUDA*:3+CPU");
    support_plan(&c);
    support_check_complete(&c);
    assert_int_equal(findings_count(&c.findings, FINDING_ERROR, -1), 0);
    for (int l = 1; l < 3; l++) {
        assert_int_equal(experts_on(&c.plan, l, 2), 3);
        assert_int_equal(experts_on(&c.plan, l, 3), 3);
        assert_int_equal(experts_on(&c.plan, l, 0), 5);
        assert_int_equal(experts_on(&c.plan, l, 1), 5);
    }
    support_close(&c);

    support_open(&c, path, "host(ram=8G,bw=20G,gpus=2*RTX3090)", NULL);
    support_plan(&c);
    assert_int_equal(experts_on(&c.plan, 1, 2), 8);
    assert_int_equal(experts_on(&c.plan, 1, 3), 8);
    support_close(&c);
}

static void refused_targets(void **state)
{
    static const struct {
        const char *rules, *says;
    } rows[] = {
        {"exps=CUDA*:99+CPU", "the counts ask for 198 experts of each layer, which has 16"},
        { "exps=CUDA*:3",     "say where the others go"                                   },
        { "exps=CUDA7",       "no CUDA7: this plan has 2 GPUs, CUDA0 to CUDA1"            },
        { "exps=CUDA[0-2]",   "no CUDA2"                                                  },
        { "exps=RANK9",       "no RANK9: this plan has 2 ranks"                           },
        { "exps=CPU1",        "no CPU1: this plan has 1 host"                             },
        { "exps=SIM0",        "no simulated GPU"                                          },
        { "exps=CUDA0+CUDA*", "CUDA0 stands in the target twice"                          },
        { "exps=CPU+RANK0",   "RANK0 stands in the target twice"                          },
    };
    char path[512];

    (void)state;
    snprintf(path, sizeof path, "%s/models/tiny-v3-q4_k_m.gguf", TEST_DATA);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct case_plan c;
        support_open(&c, path, "host(ram=8G,bw=20G,gpus=2*RTX3090)", rows[i].rules);
        support_plan(&c);
        support_want(&c.findings, FINDING_ERROR, 0, rows[i].says);
        assert_int_equal(findings_count(&c.findings, FINDING_ERROR, -1), 1);
        support_check_complete(&c); /* the report stays complete */
        support_close(&c);
    }
}

static void layers_are_pulled_together(void **state)
{
    struct case_plan c;
    char path[512];

    (void)state;
    snprintf(path, sizeof path, "%s/models/tiny-v3-q4_k_m.gguf", TEST_DATA);
    support_open(&c, path, "host(ram=8G,bw=20G,gpus=2*RTX3090)",
                 "blk\\.1\\.ffn_gate_exps=CUDA1,blk\\.1\\.ffn_(up|down)_exps=CPU,"
                 "blk\\.2\\.ffn_up_exps=CUDA0,blk\\.0\\.attn_output=CUDA1,ffn_norm=CUDA0");
    support_plan(&c);
    support_check_complete(&c);
    support_want(&c.findings, FINDING_WARNING, -1, "layer 1: an expert is placed whole");
    support_want(&c.findings, FINDING_WARNING, -1, "layer 2: an expert is placed whole");
    support_want(&c.findings, FINDING_WARNING, -1, "attention tensors of layer 0");
    support_want(&c.findings, FINDING_WARNING, -1, "3 stand on every rank");
    assert_int_equal(experts_on(&c.plan, 1, 3), 0); /* host memory is slower: it wins */
    assert_int_equal(experts_on(&c.plan, 1, 0), 8);
    assert_int_equal(experts_on(&c.plan, 2, 2), 16);
    /* Layer 0 attends on CUDA1 alone, and only there has a cache. */
    assert_true(c.plan.devices[2].cache_bytes < c.plan.devices[3].cache_bytes);
    support_close(&c);
}

static void small_tensors_far_from_their_gpu(void **state)
{
    struct case_plan c;
    char path[512];

    (void)state;
    snprintf(path, sizeof path, "%s/models/tiny-v3-q4_k_m.gguf", TEST_DATA);
    support_open(&c, path, "host(ram=8G,bw=20G,gpus=2*RTX3090)", "ffn.*=CPU");
    support_plan(&c);
    support_want(&c.findings, FINDING_WARNING, 0, "5 norms, routers and other small tensors");
    support_close(&c);
    support_open(&c, path, "host(ram=8G,bw=20G,gpus=2*RTX3090)", "ffn_.*_exps=CPU");
    support_plan(&c);
    assert_int_equal(findings_count(&c.findings, FINDING_WARNING, 0), 0);
    support_close(&c);
}

/* Device of one expert of a layer, or -1. */
static int device_of_expert(const struct plan *p, int layer, int expert)
{
    for (int i = 0; i < p->n_parts; i++) {
        const struct plan_part *part = &p->parts[i];
        const struct plan_tensor *t = &p->tensors[part->tensor];
        if (t->role != ROLE_DOWN_EXPS || t->layer != layer)
            continue;
        for (int r = 0; r < part->n_ranges; r++)
            if (expert >= p->ranges[part->first_range + r].begin &&
                expert < p->ranges[part->first_range + r].end)
                return part->device;
    }
    return -1;
}

/* With frequencies the GPU, which has room for some, gets the frequent ones. */
static void frequent_experts_first(void **state)
{
    struct case_plan c;
    struct hot hot = { .n_layers = 61, .n_experts = 256 };
    char path[512];

    (void)state;
    support_open(&c, support_fixture("rules/v3-q4_k.head.gguf", path, sizeof path),
                 "host(ram=512G,bw=400G,gpus=RTX5090)", NULL);
    hot.count = calloc((size_t)61 * 256, sizeof *hot.count);
    assert_non_null(hot.count);
    for (int l = 0; l < 61; l++)
        for (int x = 0; x < 256; x++)
            hot.count[l * 256 + x] = (x * 37 + l * 11) % 256;
    c.in.opt.hot = &hot;
    support_plan(&c);
    support_check_complete(&c);
    int64_t least_on_gpu = INT64_MAX, most_on_host = -1;
    for (int l = 3; l < 61; l++)
        for (int x = 0; x < 256; x++) {
            int64_t n = hot.count[l * 256 + x];
            if (device_of_expert(&c.plan, l, x) == 1)
                least_on_gpu = n < least_on_gpu ? n : least_on_gpu;
            else
                most_on_host = n > most_on_host ? n : most_on_host;
        }
    assert_true(least_on_gpu < INT64_MAX && most_on_host >= 0);
    assert_true(least_on_gpu >= most_on_host);
    free(hot.count);
    support_close(&c);
}

/* The latent cache lies beside the matrices that read it. */
static void cache_follows_attention(void **state)
{
    struct case_plan c;
    char path[512];
    int64_t cache = 0;

    (void)state;
    snprintf(path, sizeof path, "%s/models/tiny-v3-q4_k_m.gguf", TEST_DATA);
    for (int on_host = 0; on_host < 2; on_host++) {
        support_open(&c, path, "host(ram=8G,bw=20G,gpus=2*RTX3090)", on_host ? "attn=CPU" : NULL);
        support_plan(&c);
        for (int d = 0; d < 4; d++) {
            int holds = on_host ? d < 2 : d >= 2; /* every rank has its own */
            cache = holds ? c.plan.devices[d].cache_bytes : cache;
            assert_int_equal(c.plan.devices[d].cache_bytes, holds ? cache : 0);
        }
        assert_true(cache > 0);
        support_close(&c);
    }
}

/* Any number of ranks and GPUs holds every tensor once. */
static void any_number_of_ranks(void **state)
{
    static const char *const machines[] = {
        "host(ram=8G,bw=20G,ranks=3)",
        "host(ram=8G,bw=20G,ranks=7),2*host(ram=8G,bw=10G,ranks=2)",
        "host(ram=8G,bw=20G,gpus=3*RTX3090,ranks=2)",
        "host(ram=8G,bw=20G,gpus=2*RTX3090,ranks=5)",
        "2*host(ram=8G,bw=20G,gpus=5*T4),host(ram=8G,bw=20G)",
        "33*host(ram=8G,bw=20G,ranks=2)",
    };
    static const char *const rules[] = { NULL, "attn=CPU", "exps=CPU", "blk\\.1=RANK1",
                                         "ffn=RANK1+RANK0" };
    char path[512];

    (void)state;
    for (int i = 0; i < 6 * 5 * 3; i++) {
        struct case_plan c;
        snprintf(path, sizeof path, "%s/models/%s.gguf", TEST_DATA, small_models[i % 3]);
        support_open(&c, path, machines[i / 3 % 6], rules[i / 18]);
        support_plan(&c);
        support_check_complete(&c);
        assert_int_equal(findings_count(&c.findings, FINDING_ERROR, -1), 0);
        support_close(&c);
    }
}

static void too_small(void **state)
{
    struct case_plan c;
    char path[512];

    (void)state;
    support_open(&c, support_fixture("rules/v3-q4_k.head.gguf", path, sizeof path),
                 "host(ram=256G,bw=400G,gpus=1*RTX4090)", "exps=CPU");
    support_plan(&c);
    assert_false(c.plan.fits);
    assert_true(plan_slack(&c.plan.devices[0]) < 0);
    support_close(&c);
}

/* Ranks of a host share its memory: what counts is what they take together. */
static void ranks_share_a_host(void **state)
{
    char path[512], why[256];
    struct case_plan c;

    (void)state;
    snprintf(path, sizeof path, "%s/models/tiny-v3-q4_k_m.gguf", TEST_DATA);
    support_open(&c, path, "host(ram=64G,bw=20G,ranks=3),host(ram=64G,bw=20G)", "exps=RANK1");
    support_plan(&c);
    struct host *h = &c.inventory.hosts[0];
    int64_t needed = 0, most = plan_used(&c.plan.devices[1]), left = h->ram_bytes;
    for (int r = 0; r < 3; r++) {
        needed += plan_used(&c.plan.devices[r]);
        left -= c.plan.devices[r].capacity_bytes;
    }
    assert_int_equal(left, 0);
    assert_true(most > needed / 3);
    assert_true(c.plan.fits);
    for (int lacks = 0; lacks < 2; lacks++) {
        plan_free(&c.plan);
        h->ram_bytes = needed - lacks;
        support_plan(&c);
        assert_int_equal(c.plan.fits, !lacks);
    }
    changes_shortfall(&c.plan, why, sizeof why);
    assert_non_null(strstr(why, "host 0 (RANK0 and 2 more) needs "));
    assert_non_null(strstr(why, " available, 1 B too little"));
    plan_free(&c.plan);
    h->ram_bytes = needed;
    h->apart = 1; /* bound to nodes: a rank cannot take what others leave */
    support_plan(&c);
    assert_false(c.plan.fits);
    changes_shortfall(&c.plan, why, sizeof why);
    assert_non_null(strstr(why, "RANK1 needs "));
    support_close(&c);
}

/* What rules leave goes where the host has room, whichever rank has how much already. */
static void free_experts_fill_a_host(void **state)
{
    char path[512];
    struct case_plan c;
    int64_t needed = 0;

    (void)state;
    snprintf(path, sizeof path, "%s/models/tiny-v3-q4_k_m.gguf", TEST_DATA);
    support_open(&c, path, "2*host(ram=64G,bw=20G,ranks=2)", "blk\\.1\\..*exps=RANK1");
    support_plan(&c);
    for (int r = 0; r < 2; r++)
        needed += plan_used(&c.plan.devices[r]);
    plan_free(&c.plan);
    c.inventory.hosts[0].ram_bytes = needed;
    support_plan(&c);
    assert_true(c.plan.fits);
    assert_true(plan_slack(&c.plan.devices[0]) + plan_slack(&c.plan.devices[1]) < needed / 1000);
    support_close(&c);
}

/* Where mpirun deals ranks out over the hosts, ranks 0 and 1 are the first of theirs. */
static void ranks_in_turn(void **state)
{
    static const int host_of[] = { 0, 1, 0, 1, 1 };
    char path[512];
    struct case_plan c;

    (void)state;
    snprintf(path, sizeof path, "%s/models/tiny-v3-q4_k_m.gguf", TEST_DATA);
    support_open(&c, path, "host(ram=8G,bw=20G,ranks=2),host(ram=8G,bw=20G,ranks=3)", NULL);
    c.inventory.host_of = calloc(5, sizeof(int));
    assert_non_null(c.inventory.host_of);
    memcpy(c.inventory.host_of, host_of, sizeof host_of);
    support_plan(&c);
    support_check_complete(&c);
    for (int r = 0; r < 5; r++) {
        assert_int_equal(c.plan.ranks[r].host, host_of[r]);
        assert_int_equal(c.plan.devices[r].comm_bytes > c.plan.devices[2].comm_bytes, r < 2);
    }
    support_close(&c);
}

/* A rule that is wrong in every layer is told of once. */
static void layers_that_are_alike(void **state)
{
    struct case_plan c;
    char path[512];

    (void)state;
    snprintf(path, sizeof path, "%s/models/tiny-v3-q4_k_m.gguf", TEST_DATA);
    support_open(&c, path, "host(ram=8G,bw=20G,ranks=3)", "attn_output=RANK1");
    support_plan(&c);
    support_check_complete(&c);
    support_want(&c.findings, FINDING_WARNING, -1,
                 "of layer 0 are computed together, so that blk.0.attn_q_b.weight follows "
                 "blk.0.attn_output.weight; 2 more layers alike");
    assert_int_equal(findings_count(&c.findings, FINDING_WARNING, 0), 1);
    support_close(&c);
}

static int has_finding(const struct findings *f, const char *part)
{
    int n = 0;

    for (int i = 0; i < f->n; i++)
        n += strstr(f->v[i].text, part) != NULL;
    return n;
}

/* The context is lowered as far as that helps, and what is said of it is true. */
static void context_of_what_does_not_fit(void **state)
{
    static const struct {
        const char *machine;
        int64_t context;
        const char *note;
    } cases[] = {
        {"host(ram=100M,bw=100G,gpus=1*H200)", 163840, NULL                                             }, /* the cache lies on the GPU */
        { "host(ram=100M,bw=100G)",            64,     "64 positions, and even so the plan does not fit"},
    };
    char path[512];

    (void)state;
    snprintf(path, sizeof path, "%s/models/tiny-v3-q4_k_m.gguf", TEST_DATA);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct case_plan c;
        support_open(&c, path, cases[i].machine, NULL);
        c.in.opt.n_context = 0;
        support_plan(&c);
        assert_false(c.plan.fits);
        assert_int_equal(c.plan.opt.n_context, cases[i].context);
        assert_int_equal(has_finding(&c.findings, "lowered"), cases[i].note != NULL);
        if (cases[i].note)
            support_want(&c.findings, FINDING_NOTE, -1, cases[i].note);
        support_close(&c);
    }
}

static void ranks_without_a_gpu(void **state)
{
    static const struct {
        const char *machine, *warning;
    } cases[] = {
        {"host(ram=8G,bw=20G,gpus=2*RTX3090)",                      NULL                            },
        { "host(ram=8G,bw=20G,ranks=7)",                            NULL                            },
        { "host(ram=8G,bw=20G,gpus=2*RTX3090,ranks=1)",             NULL                            },
        { "host(ram=8G,bw=20G,gpus=2*RTX3090,ranks=7)",             "5 of 7 ranks have no GPU"      },
        { "host(ram=8G,bw=20G,gpus=2*RTX3090,ranks=7)",             "--ranks 2 has one for each GPU"},
        { "host(ram=8G,bw=20G,gpus=1*RTX3090),host(ram=8G,bw=20G)", "CUDA* moves them"              },
    };
    char path[512];

    (void)state;
    snprintf(path, sizeof path, "%s/models/tiny-v3-q4_k_m.gguf", TEST_DATA);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct case_plan c;
        support_open(&c, path, cases[i].machine, NULL);
        support_plan(&c);
        assert_int_equal(has_finding(&c.findings, "have no GPU"), cases[i].warning != NULL);
        if (cases[i].warning)
            support_want(&c.findings, FINDING_WARNING, -1, cases[i].warning);
        support_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_is_the_engine),
        cmocka_unit_test(counts_and_the_rest),
        cmocka_unit_test(refused_targets),
        cmocka_unit_test(layers_are_pulled_together),
        cmocka_unit_test(real_shapes_are_the_engine),
        cmocka_unit_test(big_cluster),
        cmocka_unit_test(too_small),
        cmocka_unit_test(ranks_share_a_host),
        cmocka_unit_test(free_experts_fill_a_host),
        cmocka_unit_test(ranks_in_turn),
        cmocka_unit_test(context_of_what_does_not_fit),
        cmocka_unit_test(ranks_without_a_gpu),
        cmocka_unit_test(layers_that_are_alike),
        cmocka_unit_test(small_tensors_far_from_their_gpu),
        cmocka_unit_test(any_number_of_ranks),
        cmocka_unit_test(frequent_experts_first),
        cmocka_unit_test(cache_follows_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
