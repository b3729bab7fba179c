/* SPDX-License-Identifier: MIT */
/* tests/base/draft_test.c - a file is complete or not there: kept, dropped, ended by a signal. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/draft.h"
#include "tests/support/temp_dir.h"

/* Whether the file holds exactly this text; NULL: there is no such file. */
static void holds(const char *path, const char *text)
{
    char found[64] = "";
    FILE *f = fopen(path, "rb");

    if (!text) {
        assert_null(f);
        return;
    }
    assert_non_null(f);
    found[fread(found, 1, sizeof found - 1, f)] = 0;
    fclose(f);
    assert_string_equal(found, text);
}

static void write_file(const char *path, const char *text)
{
    struct draft d;

    assert_int_equal(draft_open(&d, path, NULL), ERR_OK);
    assert_int_equal(fputs(text, d.file) >= 0, 1);
    assert_int_equal(draft_keep(&d, NULL), ERR_OK);
    assert_null(d.file);
}

static void the_name_comes_at_the_end(void **state)
{
    struct draft d;
    (void)state;

    write_file("a", "old");
    assert_int_equal(draft_open(&d, "a", NULL), ERR_OK);
    fputs("new", d.file);
    fflush(d.file);
    holds("a", "old");
    holds("a.part", "new");
    assert_int_equal(draft_keep(&d, NULL), ERR_OK);
    holds("a", "new");
    holds("a.part", NULL);
}

static void dropping_leaves_the_older_file(void **state)
{
    struct draft d;
    (void)state;

    write_file("b", "old");
    assert_int_equal(draft_open(&d, "b", NULL), ERR_OK);
    draft_drop(&d);
    draft_drop(&d);
    holds("b", "old");
    holds("b.part", NULL);
}

static void links_stay_links(void **state)
{
    struct stat st;
    (void)state;

    write_file("c", "old");
    assert_int_equal(symlink("c", "link"), 0);
    write_file("link", "new");
    holds("c", "new");
    assert_int_equal(lstat("link", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

/* A file that is open but has no name any more. */
static void nameless_files_are_written_directly(void **state)
{
    char path[32], found[8] = "";
    FILE *f = fopen("gone", "w+");
    (void)state;

    assert_non_null(f);
    assert_int_equal(unlink("gone"), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(f));
    write_file(path, "new");
    assert_int_equal(fread(found, 1, sizeof found, f), 3);
    assert_string_equal(found, "new");
    fclose(f);
    holds("gone", NULL);
}

static void devices_are_written_directly(void **state)
{
    struct draft d;
    struct err e;
    (void)state;

    assert_int_equal(draft_open(&d, "no/such/folder", &e), ERR_IO);
    assert_non_null(strstr(e.msg, "no/such/folder: "));
    assert_null(d.file);
    assert_int_equal(draft_open(&d, ".", NULL), ERR_IO);
    assert_int_equal(draft_open(&d, "/dev/null", NULL), ERR_OK);
    draft_drop(&d);
    assert_int_equal(access("/dev/null", F_OK), 0);
    if (access("/dev/full", W_OK) != 0)
        return;
    assert_int_equal(draft_open(&d, "/dev/full", NULL), ERR_OK);
    fputs("x", d.file);
    assert_int_equal(draft_keep(&d, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "No space left"));
    assert_int_equal(access("/dev/full", F_OK), 0);
}

static void die_while_writing(int number)
{
    struct draft first, second;

    draft_drop_on_signals();
    if (draft_open(&first, "d", NULL) == ERR_OK && draft_open(&second, "e", NULL) == ERR_OK &&
        access("d.part", F_OK) == 0 && access("e.part", F_OK) == 0)
        raise(number);
    _exit(0);
}

static void signals_leave_nothing(void **state)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
    (void)state;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            signal(numbers[i], SIG_DFL);
            die_while_writing(numbers[i]);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), numbers[i]);
        holds("d.part", NULL);
        holds("e.part", NULL);
        holds("d", NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_name_comes_at_the_end),
        cmocka_unit_test(dropping_leaves_the_older_file),
        cmocka_unit_test(links_stay_links),
        cmocka_unit_test(nameless_files_are_written_directly),
        cmocka_unit_test(devices_are_written_directly),
        cmocka_unit_test(signals_leave_nothing),
    };
    return cmocka_run_group_tests_name("base/draft", tests, temp_dir_enter, temp_dir_remove);
}
