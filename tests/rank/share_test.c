/* SPDX-License-Identifier: MIT */
/* tests/rank/share_test.c MKMODEL - what a plan says of each rank is what the rank maps and reads.
 *
 * To the byte for weights, cache and activations, however many ranks there are and whatever
 * the rules; and no rank reads more of the file than its own parts.  What the process really
 * maps is held against it too, so that nothing large is allocated beside the plan.
 */
#include "tests/placement/plan_support.h"

#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include "rank/group.h"
#include "rank/weights.h"
#include "tests/support/make_model.h"
#include "tests/support/temp_dir.h"

static char *mkmodel;
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

/* ---- What the process maps --------------------------------------------------------- */

static const struct mapped {
    int ranks, sequences, ubatch, logits;
    int64_t context;
    enum plan_cache_type cache;
} mapped[] = {
    {1,  1,   512, 1,   64,     PLAN_CACHE_F16 },
    { 1, 1,   64,  64,  4096,   PLAN_CACHE_F32 },
    { 1, 999, 512, 512, 130000, PLAN_CACHE_F16 },
    { 2, 16,  512, 16,  65536,  PLAN_CACHE_Q8_0},
    { 3, 1,   256, 256, 4096,   PLAN_CACHE_BF16},
    { 4, 64,  32,  32,  65536,  PLAN_CACHE_F16 },
};

/* Private memory that can be written: not the plug-ins that libraries load meanwhile. */
static int64_t mapped_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d %*d %*d %*d %*d %ld", &pages), 1);
    (void)fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static void drop_logits(void *arg, int64_t pos, const float *logits)
{
    (void)arg;
    (void)pos;
    (void)logits;
}

/* More than the plan says, once the ranks are loaded and have worked. */
static int64_t mapped_beside_the_plan(const char *path, const struct mapped *x)
{
    enum { N_TOKENS = 40 };
    char machine[64];
    struct case_plan c;
    struct engine_options o;
    struct group *group = NULL;
    struct err e = { 0 };
    int32_t tokens[N_TOKENS] = { 0 };
    int64_t planned = 0;

    (void)snprintf(machine, sizeof machine, "host(ram=64G,bw=20G,ranks=%d)", x->ranks);
    support_open(&c, path, machine, NULL);
    model_close(&c.model);
    assert_int_equal(model_open(&c.model, path, 0, NULL, 0, &e), ERR_OK);
    c.in.model = c.model;
    c.in.opt = (struct plan_options){ .n_context = x->context,
                                      .n_sequences = x->sequences,
                                      .ubatch = x->ubatch,
                                      .n_logits = x->logits,
                                      .cache_type = x->cache,
                                      .n_threads = x->ranks > 1 ? 1 : 2,
                                      .amb_mib = 256 };
    support_plan(&c);
    for (int r = 0; r < x->ranks; r++) {
        const struct plan_device *d = &c.plan.devices[r];
        planned += d->weights_bytes + d->cache_bytes + d->activation_bytes + d->comm_bytes;
    }
    int64_t before = mapped_bytes();
    engine_options_default(&o);
    if (group_create(&group, &c.plan, &o, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    engine_begin(group_engine(group), 0, N_TOKENS);
    int64_t n = x->context < N_TOKENS ? x->context : N_TOKENS;
    if (engine_feed(group_engine(group), 0, tokens, n, ENGINE_ALL, drop_logits, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    int64_t more = mapped_bytes() - before - planned;
    print_message("%d ranks: %lld bytes planned, %lld beside them\n", x->ranks, (long long)planned,
                  (long long)more);
    group_free(&group);
    support_close(&c);
    return more;
}

/* Stacks, watches and lists are what is left: 1 MiB, and a half for each rank. */
static void nothing_large_beside_the_plan(void **state)
{
    static char path[] = "model.gguf";
    pthread_attr_t small;

    (void)state;
#ifdef __SANITIZE_ADDRESS__
    print_message("skipped: the sanitizer maps memory of its own\n");
    skip();
#endif
    assert_int_equal(mallopt(M_ARENA_MAX, 1), 1);
    assert_int_equal(mallopt(M_MMAP_THRESHOLD, 1 << 17), 1);
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 1 << 18), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    assert_int_equal(
        make_model(mkmodel, "--preset tiny-v3 --vocab 60000 --context 131072 --type Q8_0", path),
        0);
    for (size_t i = 0; i < sizeof mapped / sizeof *mapped; i++) {
        int64_t more = mapped_beside_the_plan(path, &mapped[i]);
        int64_t allowed = (2 + mapped[i].ranks) << 19;
        if (more < -(1 << 16) || more > allowed)
            fail_msg("row %zu: %lld bytes more than planned", i, (long long)more);
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_plan),
        cmocka_unit_test(nothing_is_lost_or_doubled),
        cmocka_unit_test(reads_its_own_bytes_only),
        cmocka_unit_test(nothing_large_beside_the_plan),
        cmocka_unit_test(gpus_are_refused),
    };
    if (argc != 2)
        return 2;
    mkmodel = argv[1];
    return cmocka_run_group_tests_name("rank/share", tests, temp_dir_enter, temp_dir_remove);
}
