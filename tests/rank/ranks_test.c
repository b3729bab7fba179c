/* SPDX-License-Identifier: MIT */
/* tests/rank/ranks_test.c MKMODEL - the same bits for any number of ranks and any placement.
 *
 * Ranks are threads of this process here.  What one rank computes without a plan is the
 * reference; everything else is compared with it by memcmp.
 */
#include "ranks_support.h"

#include "tests/support/golden.h"
#include "tests/support/make_model.h"
#include "tests/support/temp_dir.h"

static const char *const models[] = { "tiny-v2-f16", "tiny-v3-q4_k_m", "tiny-v3-legacy-iq4_ks" };
static const int counts[] = { 1, 2, 3, 4, 8 };
static char *mkmodel;

/* A sanitizer makes all ten times as long, and sees no more in the second half. */
#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 2, N_PLACEMENTS = 15 };
#else
enum { EVERY = 1, N_PLACEMENTS = 50 };
#endif

static const char *data_path(const char *model)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%s/models/%s.gguf", TEST_DATA, model);
    return path;
}

/* Plays the file on a group and compares with the reference; frees nothing of it. */
static void check_group(const char *path, const struct world_options *o, struct play p,
                        const float *want)
{
    struct world w;

    world_open(&w, path, o);
    float *got = play(&w, &p);
    if (memcmp(got, want, rows_bytes(&w)) != 0)
        fail_msg("%s: other bits with %d ranks of %d threads, %d requests, rules %s", path,
                 o->ranks, o->threads, p.n_requests, o->rules ? o->rules : "none");
    free(got);
    world_close(&w);
}

static void numbers_of_ranks_do_not_matter(void **state)
{
    (void)state;
    for (int m = 0; m < 3; m++) {
        for (int exact = 0; exact < (m == 2 ? 2 : 1); exact++) {
            float *want = reference_rows(data_path(models[m]), exact, m == 0 ? 3 : 1);
            for (size_t i = (size_t)(m + exact) % EVERY; i < sizeof counts / sizeof *counts;
                 i += EVERY) {
                struct world_options o = { .ranks = counts[i],
                                           .threads = 1 + (counts[i] < 3),
                                           .exact_math = exact,
                                           .mla = m == 0 ? 3 : 1 };
                struct play p = { .n_requests = i % 2 ? N_REQUESTS : 1,
                                  .first_seq = 3,
                                  .seed = (uint32_t)i,
                                  .bad_request = -1 };
                check_group(data_path(models[m]), &o, p, want);
            }
            free(want);
        }
    }
}

/* Shapes that divide badly: more ranks than groups of heads, atoms or experts. */
static void shapes_do_not_matter(void **state)
{
    static const char *const shapes[] = {
        "--preset glm-flash --d-model 128 --d-ffn 192 --q-lora 96 --kv-lora 128 --heads 5 "
        "--experts 8 --d-expert 64 --type F16 --layers 2 --dense 1 --vocab 333",
        "--preset v2-lite --d-model 256 --d-ffn 736 --kv-lora 256 --heads 2 --experts 8 "
        "--d-expert 352 --type Q4_K --small-type Q5_0 --layers 2 --dense 1 --vocab 333",
        "--preset kimi --d-model 128 --d-ffn 768 --q-lora 128 --kv-lora 64 --heads 16 --d-nope 32 "
        "--d-v 32 --d-expert 288 --type Q8_0 --layers 2 --dense 1 --vocab 320",
        "--preset tiny-v3 --d-model 100 --d-ffn 600 --q-lora 60 --kv-lora 72 --heads 3 --d-nope 24 "
        "--d-rope 12 --d-v 40 --shared 0 --d-expert 56 --type F32 --layers 2 --dense 1 --vocab 320",
    };
    static char path[] = "model.gguf";

    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        assert_int_equal(make_model(mkmodel, shapes[s], path), 0);
        float *want = reference_rows(path, 0, 1);
        for (int ranks = 2; ranks <= 7; ranks += ranks == 3 ? 4 : 1) {
            struct world_options o = { .ranks = ranks, .threads = 1, .mla = 1 };
            struct play p = { .n_requests = 2, .seed = (uint32_t)ranks, .bad_request = -1 };
            check_group(path, &o, p, want);
        }
        free(want);
    }
}

/* ---- Placements --------------------------------------------------------------- */

static void add_target(struct str *s, uint32_t *random, int ranks)
{
    int first = (int)(next_random(random) % (uint32_t)ranks);
    int n = 1 + (int)(next_random(random) % (uint32_t)ranks);

    for (int i = 0; i < n; i++)
        str_printf(s, "%sRANK%d", i ? "+" : "=", (first + i * (ranks - 1)) % ranks);
}

/* Rules for some of the tensors of some layers; the rest falls where it falls. */
static void random_rules(struct str *s, uint32_t *random, int ranks, int n_layers)
{
    static const char *const groups[] = { "attn", "ffn_(gate|up|down)\\.", "ffn_.*_shexp" };

    for (int l = 0; l < n_layers; l++) {
        uint32_t kind = next_random(random) % 4;
        if (kind == 0) {
            str_printf(s, "blk\\.%d\\.ffn_.*_exps", l);
            add_target(s, random, ranks);
        } else if (kind == 1) {
            str_printf(s, "blk\\.%d\\.ffn_.*_exps", l);
            int lone = (int)(next_random(random) % (uint32_t)ranks);
            str_printf(s, "=RANK%d:%d+RANK%d", lone, 1 + (int)(next_random(random) % 7),
                       (lone + 1) % ranks);
        } else {
            str_printf(s, "blk\\.%d\\.%s", l, groups[next_random(random) % 3]);
            add_target(s, random, ranks);
        }
        str_puts(s, ",");
    }
    str_puts(s, "^output\\.weight");
    add_target(s, random, ranks);
}

static void placements_do_not_matter(void **state)
{
    const char *path = data_path("tiny-v3-q4_k_m");
    float *want = reference_rows(path, 0, 1);
    uint32_t random = 7;

    (void)state;
    for (int i = 0; i < N_PLACEMENTS; i++) {
        struct str rules = { 0 };
        struct world_options o = { .ranks = 2 + (int)(next_random(&random) % 5),
                                   .threads = 1 + i % 2,
                                   .mla = 1 };
        struct play p = { .n_requests = i % 3 ? 1 : N_REQUESTS,
                          .first_seq = i % N_REQUESTS,
                          .seed = (uint32_t)i,
                          .bad_request = -1 };
        random_rules(&rules, &random, o.ranks, 3);
        o.rules = rules.data;
        check_group(path, &o, p, want);
        str_free(&rules);
    }
    free(want);
}

/* All attention and dense work on rank 0, experts on ranks that have nothing else. */
static void ranks_of_experts_alone(void **state)
{
    const char *path = data_path("tiny-v3-q4_k_m");
    float *want = reference_rows(path, 0, 1);
    struct world_options o = { .ranks = 4,
                               .threads = 1,
                               .mla = 1,
                               .rules = "exps=RANK1:2+RANK2:13+RANK3,attn=RANK0,shexp=RANK0,"
                                        "ffn_(up|gate|down)\\.=RANK0,^output\\.weight=RANK0" };
    struct play p = { .n_requests = N_REQUESTS, .bad_request = -1 };

    (void)state;
    check_group(path, &o, p, want);
    free(want);
}

/* ---- Other promises ----------------------------------------------------------- */

static void rounded_sums_are_near(void **state)
{
    const char *path = data_path("tiny-v3-q4_k_m");

    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        float *want = reference_rows(path, exact, 1);
        struct world_options o = {
            .ranks = 3, .threads = 1, .exact_math = exact, .mla = 1, .reduce = COMM_F32
        };
        struct play p = { .n_requests = 1, .bad_request = -1 };
        struct world w;
        world_open(&w, path, &o);
        float *got = play(&w, &p);
        double limit = exact ? 1e-5 : 5e-3;
        double error = relative_error(got, want, (int64_t)(rows_bytes(&w) / sizeof *got));
        print_message("--reduce f32%s: %.1e\n", exact ? " --exact-math" : "", error);
        if (!(error <= limit))
            fail_msg("--reduce f32 differs by %.2e, at most %.0e", error, limit);
        free(got);
        free(want);
        world_close(&w);
    }
}

/* Makes a copy of the model in which `row` of an F16 tensor begins with infinity. */
static void make_bad_copy(const char *from, const char *to, const char *tensor, long row)
{
    struct gguf *g = NULL;
    static const uint8_t infinity[2] = { 0x00, 0x7c };
    char buf[1 << 14];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "w+b");

    assert_true(in && out);
    for (size_t n; (n = fread(buf, 1, sizeof buf, in)) > 0;)
        assert_int_equal(fwrite(buf, 1, n, out), n);
    assert_int_equal(gguf_open(&g, from, 0, NULL), ERR_OK);
    const struct gguf_tensor *t = gguf_tensor_find(g, tensor);
    assert_true(t && t->type == QUANT_F16);
    assert_int_equal(fseek(out, (long)t->offset + row * (long)t->dim[0] * 2, SEEK_SET), 0);
    assert_int_equal(fwrite(infinity, 1, 2, out), 2);
    gguf_close(&g);
    assert_int_equal(fclose(in) | fclose(out), 0);
}

static void a_bad_number_ends_one_request(void **state)
{
    const char *path = data_path("tiny-v2-f16");
    float *want = reference_rows(path, 0, 1);

    (void)state;
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        struct world_options o = { .ranks = ranks, .threads = 2, .mla = 1 };
        struct play p = { .n_requests = N_REQUESTS, .bad_request = 4 };
        struct world w;
        world_plan(&w, path, &o);
        p.bad_token = w.c.model->hp.n_vocab - 1;
        for (int r = 0; r < N_REQUESTS; r++) /* nobody else has it */
            for (int i = 0; i < request_length(r); i++)
                assert_int_not_equal(token_of(w.c.model, r, i), p.bad_token);
        world_close(&w);
        make_bad_copy(path, "bad.gguf", "token_embd.weight", p.bad_token);
        world_open(&w, "bad.gguf", &o);
        float *got = play(&w, &p);
        for (int r = 0; r < N_REQUESTS; r++)
            assert_int_equal(p.bad_seen[r] > 0, r == p.bad_request);
        assert_memory_equal(got, want, rows_bytes(&w));
        free(got);
        p.bad_request = -1; /* and its pages serve the next one */
        p.first_seq = 2;
        got = play(&w, &p);
        assert_memory_equal(got, want, rows_bytes(&w));
        free(got);
        world_close(&w);
    }
    free(want);
}

/* One rank that cannot load ends all of them, with its reason. */
static void a_rank_that_fails_ends_the_group(void **state)
{
    struct world_options o = { .ranks = 3, .threads = 1 };
    struct engine_options engine;
    struct world w;
    struct err e = { 0 };

    (void)state;
    make_bad_copy(data_path("tiny-v2-f16"), "bad.gguf", "blk.1.ffn_down_exps.weight", 0);
    world_plan(&w, "bad.gguf", &o);
    engine_options_default(&engine);
    engine.check_tensors = 1; /* only the rank of expert 0 meets it */
    assert_int_equal(group_create(&w.group, &w.c.plan, &engine, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "blk.1.ffn_down_exps.weight"));
    assert_null(w.group);
    engine.check_tensors = 0;
    assert_int_equal(group_create(&w.group, &w.c.plan, &engine, &e), ERR_OK);
    world_close(&w);
}

/* What is mapped for sums is what the plan says; all else is in rank/share. */
static void comm_bytes_are_those_of_the_plan(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct world_options o = { .ranks = counts[i], .threads = 1 };
        struct world w;
        world_open(&w, data_path("tiny-v3-q4_k_m"), &o);
        const struct plan_device *d = &w.c.plan.devices[0];
        assert_int_equal(engine_memory_used(w.engine)->comm, d->comm_bytes);
        assert_int_equal(engine_memory_used(w.engine)->weights, d->weights_bytes);
        assert_int_equal(engine_memory_used(w.engine)->activations, d->activation_bytes);
        assert_int_equal(engine_memory_used(w.engine)->cache, d->cache_bytes);
        world_close(&w);
    }
}

/* The same of every rank of several hosts. */
static void every_rank_has_its_bytes(void **state)
{
    enum { RANKS = 6, HOSTS = 3 };
    struct comm *c[RANKS];
    struct comm_options o;
    struct case_plan plan;
    struct err e = { 0 };

    (void)state;
    support_open(&plan, data_path("tiny-v3-q4_k_m"), "3*host(ram=8G,bw=20G,ranks=2)", NULL);
    support_plan(&plan);
    comm_options_default(&o);
    o.hosts = HOSTS;
    assert_int_equal(comm_create_threads(c, RANKS, &o, &e), ERR_OK);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(comm_bytes(c[r], plan.in.opt.ubatch, plan.model->hp.d_model),
                         plan.plan.devices[r].comm_bytes);
    comm_abort(c[0], "the test ends");
    for (int r = 0; r < RANKS; r++)
        comm_free(&c[r]);
    support_close(&plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_ranks_do_not_matter),
        cmocka_unit_test(shapes_do_not_matter),
        cmocka_unit_test(placements_do_not_matter),
        cmocka_unit_test(ranks_of_experts_alone),
        cmocka_unit_test(rounded_sums_are_near),
        cmocka_unit_test(a_bad_number_ends_one_request),
        cmocka_unit_test(a_rank_that_fails_ends_the_group),
        cmocka_unit_test(comm_bytes_are_those_of_the_plan),
        cmocka_unit_test(every_rank_has_its_bytes),
    };

    if (argc != 2)
        return 2;
    mkmodel = argv[1];
    return cmocka_run_group_tests_name("rank/ranks", tests, temp_dir_enter, temp_dir_remove);
}
