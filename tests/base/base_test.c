/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/str.h"
#include "base/team.h"

static void str_keeps_nul_bytes(void **state)
{
    struct str s = { 0 };
    (void)state;
    str_append(&s, "a\0b", 3);
    str_printf(&s, "%d%s", 42, "x");
    assert_int_equal(s.len, 6);
    assert_memory_equal(s.data, "a\0b42x", 7);
    str_clear(&s);
    assert_int_equal(s.len, 0);
    str_free(&s);
}

static void bytes_take_the_unit_that_fits(void **state)
{
    static const struct {
        double bytes;
        const char *text;
    } cases[] = {
        {0,        "0 B"     },
        { 999,     "999 B"   },
        { 1000,    "1.0 kB"  },
        { -88e6,   "-88.0 MB"},
        { 999.6e6, "1.0 GB"  },
        { 8.37e6,  "8.4 MB"  },
        { 151e9,   "151 GB"  },
        { 4.2e15,  "4200 TB" },
    };
    char text[32];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(str_bytes(text, sizeof text, cases[i].bytes), cases[i].text);
}

static void distance_counts_edits(void **state)
{
    (void)state;
    assert_int_equal(str_distance("", ""), 0);
    assert_int_equal(str_distance("CUDA0", "CUDA0"), 0);
    assert_int_equal(str_distance("--ctx-sise", "--ctx-size"), 1);
    assert_int_equal(str_distance("kitten", "sitting"), 3);
}

static void arena_refuses_what_does_not_fit(void **state)
{
    struct arena a;
    (void)state;
    assert_int_equal(arena_map(&a, 256, "test", NULL), ERR_OK);
    assert_non_null(arena_take(&a, 100)); /* takes 128 */
    size_t mark = a.used;
    assert_non_null(arena_take(&a, 128));
    assert_null(arena_take(&a, 1));
    assert_null(arena_take(&a, SIZE_MAX));
    arena_reset(&a, mark);
    assert_non_null(arena_take(&a, 1));
    arena_unmap(&a);
    assert_null(a.base);
}

struct marks {
    int seen[64];
};

/* A pipe that nobody reads, of 64 KiB, and lines of 1 MB. */
static void a_lossy_log_waits_for_nobody(void **state)
{
    enum { N = 10000, SIZE = 1 << 17 };
    char *text = calloc(1, SIZE);
    int fd[2], real = dup(STDERR_FILENO), kept = 0;
    size_t len = 0;
    ssize_t n;

    (void)state;
    assert_non_null(text);
    assert_int_equal(pipe(fd), 0);
    (void)dup2(fd[1], STDERR_FILENO);
    close(fd[1]);
    (void)fcntl(fd[0], F_SETFL, O_NONBLOCK);
    log_set_lossy(1);
    for (int i = 0; i < N; i++)
        log_info("%0100d", i);
    while ((n = read(fd[0], text + len, SIZE - 1 - len)) > 0)
        len += (size_t)n;
    for (const char *c = text; (c = strchr(c, '\n')); c++, kept++)
        if (kept < 10)
            assert_int_equal(atoi(c - 4), kept);
    log_info("read again");
    n = read(fd[0], text, SIZE - 1);
    log_set_lossy(0);
    (void)dup2(real, STDERR_FILENO);
    close(real);
    close(fd[0]);
    assert_in_range(kept, 100, N - 1);
    assert_true(n > 0);
    text[n] = '\0';
    char told[100];
    (void)snprintf(told, sizeof told,
                   "latent: warning: %d lines are left out: nobody took them\nlatent: read again\n",
                   N - kept);
    assert_string_equal(text, told);
    free(text);
}

static void mark_range(void *arg, int thread, int n_threads)
{
    struct marks *m = arg;
    for (int64_t i = team_begin(64, thread, n_threads); i < team_end(64, thread, n_threads); i++)
        m->seen[i]++;
}

static void team_covers_every_item_once(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        struct marks m = { { 0 } };
        struct team t;
        team_init(&t, n);
        team_run(&t, mark_range, &m);
        for (int i = 0; i < 64; i++)
            assert_int_equal(m.seen[i], 1);
    }
}

static void crowds_are_more_threads_than_cores(void **state)
{
    struct team all;

    (void)state;
    team_init(&all, 0);
    assert_false(team_is_crowded(1, all.n_threads));
    assert_true(team_is_crowded(1, all.n_threads + 1));
    assert_true(team_is_crowded(all.n_threads + 1, 1));
    assert_false(team_is_crowded(1000, 0)); /* these share the cores */
}

static void note_core(void *arg, int thread, int n_threads)
{
    cpu_set_t *sets = arg;

    (void)n_threads;
    assert_int_equal(sched_getaffinity(0, sizeof *sets, &sets[thread]), 0);
}

/* In a process of its own: nobody gives threads their freedom back. */
static void bound_threads_have_a_core_each(void **state)
{
    static cpu_set_t sets[CPU_SETSIZE], all;
    struct team t;
    int status;

    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        team_init(&t, 0);
        team_bind(&t);
        team_run(&t, note_core, sets);
        for (int i = 0; i < t.n_threads; i++) {
            CPU_OR(&all, &all, &sets[i]);
            if (t.n_threads > 1 && CPU_COUNT(&sets[i]) != 1)
                _exit(1);
        }
        _exit(CPU_COUNT(&all) == t.n_threads ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(str_keeps_nul_bytes),
        cmocka_unit_test(bytes_take_the_unit_that_fits),
        cmocka_unit_test(distance_counts_edits),
        cmocka_unit_test(arena_refuses_what_does_not_fit),
        cmocka_unit_test(a_lossy_log_waits_for_nobody),
        cmocka_unit_test(bound_threads_have_a_core_each), /* first: OpenMP stands no fork */
        cmocka_unit_test(team_covers_every_item_once),
        cmocka_unit_test(crowds_are_more_threads_than_cores),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
