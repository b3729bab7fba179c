/* SPDX-License-Identifier: MIT */
/* tests/rank/share_test.c - what a plan says of each rank is what the rank maps and reads.
 *
 * To the byte for weights, cache and activations, however many ranks there are and whatever
 * the rules; and no rank reads more of the file than its own parts.
 */
#include "tests/placement/plan_support.h"

#include "rank/engine.h"
#include "rank/weights.h"

static const char *const models[] = { "tiny-v2-f16", "tiny-v3-q4_k_m", "tiny-v3-legacy-iq4_ks" };

static const struct row {
    int ranks;
    const char *rules;
} rows[] = {
    {1,  NULL                                                                     },
    { 2, NULL                                                                     },
    { 3, NULL                                                                     },
    { 8, NULL                                                                     },
    { 2, "blk\\.1\\.=RANK1"                                                       },
    { 3, "attn=RANK2+RANK0,blk\\.2\\.ffn_.*exps=RANK1"                            },
    { 5, "exps=RANK4,output\\.weight=RANK1+RANK0"                                 },
    { 4, "blk\\.1\\.ffn_.*_exps=RANK0:3+RANK3:2+RANK2,ffn_(up|down|gate)\\.=RANK3"},
};

static void open_case(struct case_plan *c, const char *model, const struct row *row)
{
    char path[512], machine[64];

    (void)snprintf(path, sizeof path, "%s/models/%s.gguf", TEST_DATA, model);
    (void)snprintf(machine, sizeof machine, "host(ram=64G,bw=20G,ranks=%d)", row->ranks);
    support_open(c, path, machine, row->rules);
    model_close(&c->model);
    struct err e = { 0 };
    if (model_open(&c->model, path, 0, NULL, 0, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (int i = 0; i < gguf_tensor_count(c->model->gguf); i++)
        c->names[i].name = gguf_tensor_at(c->model->gguf, i)->name;
    c->in.model = c->model;
    c->in.opt.n_context = 1000;
    c->in.opt.ubatch = 33;
    c->in.opt.n_threads = 3;
    support_plan(c);
    support_check_complete(c);
    assert_int_equal(findings_count(&c->findings, FINDING_ERROR, -1), 0);
}

static struct engine_options options(void)
{
    struct engine_options o;

    engine_options_default(&o);
    o.max_batch = 33;
    o.n_threads = 3;
    return o;
}

static void bytes_are_those_of_the_plan(void **state)
{
    struct engine_options o = options();

    (void)state;
    for (size_t i = 0; i < 3 * sizeof rows / sizeof *rows; i++) {
        struct case_plan c;
        open_case(&c, models[i % 3], &rows[i / 3]);
        for (int r = 0; r < c.plan.n_ranks; r++) {
            const struct plan_device *d = &c.plan.devices[r];
            struct engine_memory mem;
            struct err e = { 0 };
            if (engine_plan_rank(&mem, &c.plan, r, &o, &e) != ERR_OK)
                fail_msg("%s", e.msg);
            assert_int_equal(mem.weights, d->weights_bytes);
            assert_int_equal(mem.cache, d->cache_bytes);
            assert_int_equal(mem.activations, d->activation_bytes);
        }
        support_close(&c);
    }
}

/* Each expert of each layer, each head and each row of the vocabulary belongs to one rank. */
static void nothing_is_lost_or_doubled(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3 * sizeof rows / sizeof *rows; i++) {
        struct case_plan c;
        int64_t heads = 0, experts = 0, vocab = 0;
        open_case(&c, models[i % 3], &rows[i / 3]);
        const struct hparams *hp = &c.model->hp;
        for (int r = 0; r < c.plan.n_ranks; r++) {
            struct share s;
            struct err e = { 0 };
            assert_int_equal(share_of_plan(&s, &c.plan, r, &e), ERR_OK);
            for (int l = 0; l < s.n_layers; l++) {
                heads += share_heads(&s.layers[l]);
                experts += s.layers[l].n_experts;
            }
            vocab += s.vocab[r].end - s.vocab[r].begin;
            share_free(&s);
        }
        assert_int_equal(heads, (int64_t)hp->n_layers * hp->n_heads);
        assert_int_equal(experts, (int64_t)(hp->n_layers - hp->n_dense) * hp->n_experts);
        assert_int_equal(vocab, hp->n_vocab);
        support_close(&c);
    }
}

static void reads_its_own_bytes_only(void **state)
{
    const struct team team = { 2 };

    (void)state;
    for (size_t i = 0; i < 3 * sizeof rows / sizeof *rows; i++) {
        struct case_plan c;
        open_case(&c, models[i % 3], &rows[i / 3]);
        for (int r = 0; r < c.plan.n_ranks; r++) {
            struct share s;
            struct weights *w = NULL;
            struct err e = { 0 };
            assert_int_equal(share_of_plan(&s, &c.plan, r, &e), ERR_OK);
            struct weights_options o = { .share = &s };
            if (weights_load(&w, c.model, &team, &o, &e) != ERR_OK)
                fail_msg("%s", e.msg);
            assert_int_equal(w->arena.size, c.plan.devices[r].weights_bytes);
            if (!((double)w->file_bytes <= 1.01 * (double)s.file_bytes))
                fail_msg("rank %d of %d reads %lld bytes, the plan says %lld", r, c.plan.n_ranks,
                         (long long)w->file_bytes, (long long)s.file_bytes);
            weights_free(&w);
            share_free(&s);
        }
        support_close(&c);
    }
}

static void gpus_are_refused(void **state)
{
    struct case_plan c;
    struct share s;
    struct err e = { 0 };
    char path[512];

    (void)state;
    (void)snprintf(path, sizeof path, "%s/models/tiny-v3-q4_k_m.gguf", TEST_DATA);
    support_open(&c, path, "host(ram=8G,bw=20G,gpus=T4)", NULL);
    support_plan(&c);
    assert_int_equal(share_of_plan(&s, &c.plan, 0, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "is planned on CUDA0"));
    share_free(&s);
    support_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_plan),
        cmocka_unit_test(nothing_is_lost_or_doubled),
        cmocka_unit_test(reads_its_own_bytes_only),
        cmocka_unit_test(gpus_are_refused),
    };
    return cmocka_run_group_tests_name("rank/share", tests, NULL, NULL);
}
