/* SPDX-License-Identifier: MIT */
/* tests/rank/link_test.c - frames over a socket, and each kind to bytes and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "rank/link.h"

static const struct step_limits limits = {
    .n_vocab = 100, .n_sequences = 4, .n_pages = 8, .max_batch = 16, .n_context = 256
};

static void frames_cross_a_socket(void **state)
{
    int fd[2];
    struct link_frame f;
    struct err e = { 0 };
    (void)state;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(link_send(fd[0], LINK_STEP, "abc", 3, &e), ERR_OK);
    assert_int_equal(link_send(fd[0], LINK_QUIT, NULL, 0, &e), ERR_OK);
    assert_int_equal(link_recv(fd[1], &f, &e), ERR_OK);
    assert_int_equal(f.kind, LINK_STEP);
    assert_int_equal(f.n, 3);
    assert_memory_equal(f.payload, "abc", 3);
    free(f.payload);
    assert_int_equal(link_recv(fd[1], &f, &e), ERR_OK);
    assert_int_equal(f.kind, LINK_QUIT);
    assert_int_equal(f.n, 0);
    free(f.payload);
    close(fd[0]);
    assert_int_equal(link_recv(fd[1], &f, &e), ERR_IO);
    assert_string_equal(e.msg, "link: the other side has closed it");
    close(fd[1]);
}

static void a_frame_that_is_too_long_is_not_read(void **state)
{
    static const uint8_t head[5] = { 1, 0, 0, 4, LINK_STEP }; /* 64 MiB and one byte */
    int fd[2];
    struct link_frame f;
    (void)state;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(write(fd[0], head, sizeof head), sizeof head);
    assert_int_equal(link_recv(fd[1], &f, NULL), ERR_FORMAT);
    assert_int_equal(link_send(fd[0], LINK_STEP, head, LINK_MAX_FRAME + 1, NULL), ERR_FORMAT);
    assert_int_equal(write(fd[0], "\3\0\0\0\1ab", 7), 7);
    close(fd[0]);
    assert_int_equal(link_recv(fd[1], &f, NULL), ERR_IO); /* cut in the middle */
    close(fd[1]);
}

static struct link_frame frame(enum link_kind kind, const struct str *s)
{
    return (struct link_frame){ .kind = (uint8_t)kind, .payload = (uint8_t *)s->data, .n = s->len };
}

static void hello_ranks_and_ready_come_back(void **state)
{
    struct link_hello h = { .version = 7, .pid = 123456789012, .token = "00ff" }, h2;
    struct link_rank two[2] = {
        {.host = "a",  .device = "RANK0",  .n_threads = 3,   .figures = { 5, 1LL << 40 } },
        { .host = "b", .weights_bytes = 7, .cache_bytes = 8, .figures = { 0, 0, 1, 2, 3 }}
    };
    struct link_ranks ranks = { .n = 2, .v = two }, ranks2;
    struct link_plan plan = { 0 }, plan2;
    struct link_ready r = { .limits = limits,
                            .n_ranks = 2,
                            .model_hash = "abc",
                            .kernel_set = "0.1 avx2",
                            .cache_type = "f16",
                            .mla = 3,
                            .exact_math = 1 },
                      r2;
    struct str s = { 0 };
    struct link_frame f;
    (void)state;

    assert_int_equal(link_put_hello(&s, &h, NULL), ERR_OK);
    f = frame(LINK_HELLO, &s);
    assert_int_equal(link_get_hello(&h2, &f, NULL), ERR_OK);
    assert_int_equal(h2.version, 7);
    assert_int_equal(h2.pid, 123456789012);
    assert_string_equal(h2.token, "00ff");
    assert_int_equal(link_get_ranks(&ranks2, &f, NULL), ERR_FORMAT); /* another kind */

    str_clear(&s);
    str_puts(&plan.text[LINK_PLAN_JSON], "{}");
    str_puts(&plan.text[LINK_PLAN_METRICS], "latentd_rules 0\n");
    assert_int_equal(link_put_plan(&s, &plan, NULL), ERR_OK);
    f = frame(LINK_PLAN, &s);
    assert_int_equal(link_get_plan(&plan2, &f, NULL), ERR_OK);
    assert_int_equal(plan2.text[LINK_PLAN_REPORT].len, 0);
    assert_string_equal(plan2.text[LINK_PLAN_JSON].data, "{}");
    assert_string_equal(plan2.text[LINK_PLAN_METRICS].data, "latentd_rules 0\n");
    link_plan_free(&plan2);
    for (f.n = 0; f.n < s.len; f.n++)
        assert_int_equal(link_get_plan(&plan2, &f, NULL), ERR_FORMAT);
    link_plan_free(&plan);

    str_clear(&s);
    assert_int_equal(link_put_ranks(&s, &ranks, NULL), ERR_OK);
    f = frame(LINK_RANKS, &s);
    assert_int_equal(link_get_ranks(&ranks2, &f, NULL), ERR_OK);
    assert_int_equal(ranks2.n, 2);
    assert_memory_equal(ranks2.v, two, sizeof two);
    link_ranks_free(&ranks2);
    for (f.n = 0; f.n < s.len; f.n++)
        assert_int_equal(link_get_ranks(&ranks2, &f, NULL), ERR_FORMAT);
    two[1].figures[COMM_STEPS] = -1;
    str_clear(&s);
    assert_int_equal(link_put_ranks(&s, &ranks, NULL), ERR_OK);
    f = frame(LINK_RANKS, &s);
    assert_int_equal(link_get_ranks(&ranks2, &f, NULL), ERR_FORMAT);

    str_clear(&s);
    assert_int_equal(link_put_ready(&s, &r, NULL), ERR_OK);
    f = frame(LINK_READY, &s);
    assert_int_equal(link_get_ready(&r2, &f, NULL), ERR_OK);
    assert_int_equal(r2.limits.n_context, 256);
    assert_int_equal(r2.n_ranks, 2);
    assert_string_equal(r2.kernel_set, "0.1 avx2");
    assert_int_equal(r2.exact_math, 1);
    r.limits.n_pages = 0;
    str_clear(&s);
    assert_int_equal(link_put_ready(&s, &r, NULL), ERR_OK);
    f = frame(LINK_READY, &s);
    assert_int_equal(link_get_ready(&r2, &f, NULL), ERR_FORMAT);
    str_free(&s);
}

static void begin_comes_back_whole_or_not_at_all(void **state)
{
    struct logit_bias bias[] = {
        {5,  -1.5f},
        { 6, 2    }
    };
    int32_t history[] = { 1, 99, 3 };
    struct link_begin b = { .seq = 2, .history = history, .n_history = 3 }, got;
    struct str s = { 0 };
    struct err e = { 0 };
    (void)state;

    sampling_default(&b.sampling);
    b.sampling.seed = UINT64_MAX;
    b.sampling.bias = bias;
    b.sampling.n_bias = 2;
    assert_int_equal(link_put_begin(&s, &b, NULL), ERR_OK);
    struct link_frame f = frame(LINK_BEGIN, &s);
    if (link_get_begin(&got, &f, &limits, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(got.seq, 2);
    assert_true(got.sampling.seed == UINT64_MAX);
    assert_true(got.sampling.temperature == b.sampling.temperature);
    assert_int_equal(got.sampling.n_bias, 2);
    assert_true(got.sampling.bias[0].id == 5 && got.sampling.bias[0].bias == -1.5f);
    assert_int_equal(got.n_history, 3);
    assert_memory_equal(got.history, history, sizeof history);
    link_begin_free(&got);
    for (f.n = 0; f.n < s.len; f.n++)
        assert_int_equal(link_get_begin(&got, &f, &limits, NULL), ERR_FORMAT);
    history[1] = 100;
    str_clear(&s);
    assert_int_equal(link_put_begin(&s, &b, NULL), ERR_OK);
    f = frame(LINK_BEGIN, &s);
    assert_int_equal(link_get_begin(&got, &f, &limits, NULL), ERR_FORMAT);
    str_free(&s);
}

static void a_result_comes_back_or_is_refused(void **state)
{
    struct link_sample samples[] = {
        {.seq = 1,    .pos = 10,   .token = 99   },
        { .seq = 2, .pos = 256, .token = -1, .bad_layer = 3 }
    };
    struct link_bad bad[] = {
        {.seq = 2, .pos = 255, .bad_layer = 3}
    };
    struct link_result r = { .step = 9,
                             .step_us = 1.5,
                             .sum_us = 0.25,
                             .n_samples = 2,
                             .n_bad = 1,
                             .samples = samples,
                             .bad = bad },
                       got;
    struct str s = { 0 };
    (void)state;

    assert_int_equal(link_put_result(&s, &r, NULL), ERR_OK);
    struct link_frame f = frame(LINK_RESULT, &s);
    assert_int_equal(link_get_result(&got, &f, &limits, NULL), ERR_OK);
    assert_int_equal(got.step, 9);
    assert_true(got.step_us == 1.5 && got.sum_us == 0.25);
    assert_int_equal(got.n_samples, 2);
    for (int i = 0; i < 2; i++) { /* there is padding between the fields */
        assert_int_equal(got.samples[i].seq, samples[i].seq);
        assert_int_equal(got.samples[i].pos, samples[i].pos);
        assert_int_equal(got.samples[i].token, samples[i].token);
        assert_int_equal(got.samples[i].bad_layer, samples[i].bad_layer);
    }
    assert_int_equal(got.n_bad, 1);
    assert_int_equal(got.bad[0].seq, 2);
    assert_int_equal(got.bad[0].pos, 255);
    assert_int_equal(got.bad[0].bad_layer, 3);
    link_result_free(&got);
    for (f.n = 0; f.n < s.len; f.n++)
        assert_int_equal(link_get_result(&got, &f, &limits, NULL), ERR_FORMAT);
    samples[1].token = 5; /* a token though its sums failed */
    str_clear(&s);
    assert_int_equal(link_put_result(&s, &r, NULL), ERR_OK);
    f = frame(LINK_RESULT, &s);
    assert_int_equal(link_get_result(&got, &f, &limits, NULL), ERR_FORMAT);
    str_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_cross_a_socket),
        cmocka_unit_test(a_frame_that_is_too_long_is_not_read),
        cmocka_unit_test(hello_ranks_and_ready_come_back),
        cmocka_unit_test(begin_comes_back_whole_or_not_at_all),
        cmocka_unit_test(a_result_comes_back_or_is_refused),
    };
    return cmocka_run_group_tests_name("rank/link", tests, NULL, NULL);
}
