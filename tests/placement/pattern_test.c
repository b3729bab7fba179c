/* SPDX-License-Identifier: MIT */
/* tests/placement/pattern_test.c - patterns with and without machine code. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "placement/pattern.h"
#include "tests/placement/support.h"

#ifndef PR_SET_MDWE
#define PR_SET_MDWE              65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

/* Searches with two patterns; returns one bit per answer. */
static int search_all(void)
{
    static const char *const texts[] = { "blk\\.(1[0-9]|[3-8])\\.ffn_.*_exps", "^output|\\bnorm$" };
    static const char *const names[] = { "blk.12.ffn_up_exps.weight", "blk.9.ffn_up_exps.weight",
                                         "output.weight", "blk.1.attn.norm" };
    int bits = 0;

    for (size_t i = 0; i < 2; i++) {
        struct pattern *p = NULL;
        struct err e = { 0 };
        int column;
        if (pattern_compile(&p, texts[i], &column, &e) != ERR_OK)
            return -1;
        pattern_speed_up(p);
        for (size_t j = 0; j < 4; j++)
            bits = bits << 1 | (pattern_search(p, names[j], strlen(names[j])) == 1);
        pattern_free(&p);
    }
    return bits;
}

/* In a process that may not have memory which is writable and executable.  Its standard error
 * goes to `to`. */
static void child(int to)
{
    dup2(to, STDERR_FILENO);
    if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) != 0)
        _exit(255); /* before Linux 6.3 */
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
        MAP_FAILED)
        _exit(254);
    _exit(search_all());
}

static void test_no_executable_memory(void **state)
{
    int ends[2], status;
    char said[1024];
    size_t n = 0;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child(ends[1]);
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], said + n, sizeof said - 1 - n)) > 0;)
        n += (size_t)got;
    said[n] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 255)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0x83); /* 1000 0011 */
    assert_int_equal(WEXITSTATUS(status), search_all());

    /* Two patterns, one line. */
    assert_non_null(strstr(said, "interpreted"));
    assert_ptr_equal(strchr(said, '\n'), said + n - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_executable_memory) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
