/* SPDX-License-Identifier: MIT */
/* tests/cli/npy_test.c - the bytes of a NumPy file, and what happens when it cannot be written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cli/npy.h"
#include "cli/text_file.h"
#include "tests/support/temp_dir.h"

static const char path[] = "test.npy";

static void header_and_values_as_numpy_reads_them(void **state)
{
    static const float values[6] = { 1, -2, 0.5f, 4, 5, -0.0f };
    struct npy_writer *w;
    struct str s = { 0 };
    (void)state;

    assert_int_equal(npy_create(&w, path, 2, 3, NULL), ERR_OK);
    assert_int_equal(npy_write(w, values, 2, NULL), ERR_OK);
    assert_int_equal(npy_write(w, values + 2, 4, NULL), ERR_OK);
    assert_int_equal(npy_finish(&w, NULL), ERR_OK);
    assert_null(w);

    assert_int_equal(text_file_read(path, &s, NULL), ERR_OK);
    assert_int_equal(s.len, 128 + sizeof values);
    assert_memory_equal(s.data,
                        "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', "
                        "'fortran_order': False, 'shape': (2, 3), }  ",
                        10 + 60);
    assert_int_equal(s.data[127], '\n');
    assert_memory_equal(s.data + 128, values, sizeof values);
    str_free(&s);
}

static void a_wrong_count_leaves_no_file(void **state)
{
    static const float values[4];
    struct npy_writer *w;
    struct err e;
    (void)state;

    unlink(path);
    assert_int_equal(npy_create(&w, path, 1, 4, NULL), ERR_OK);
    assert_int_equal(npy_write(w, values, 3, NULL), ERR_OK);
    assert_int_equal(npy_write(w, values, 2, &e), ERR_IO);
    assert_int_equal(npy_finish(&w, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "1 values are missing"));
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access("test.npy.part", F_OK), -1);
}

static void failures_to_write_are_seen(void **state)
{
    static float values[1 << 16];
    struct npy_writer *w;
    struct err e;
    (void)state;

    assert_int_equal(npy_create(&w, "no/such/folder/x.npy", 1, 1, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "no/such/folder/x.npy"));
    assert_int_equal(npy_create(&w, path, INT64_MAX, 2, &e), ERR_IO);
    if (access("/dev/full", W_OK) != 0)
        return;
    assert_int_equal(npy_create(&w, "/dev/full", 1, 1, NULL), ERR_OK);
    assert_int_equal(npy_write(w, values, 1, NULL), ERR_OK); /* still in the buffer */
    assert_int_equal(npy_finish(&w, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "No space left"));
    assert_int_equal(access("/dev/full", F_OK), 0); /* never removed */
}

static void text_is_bytes(void **state)
{
    enum { N = 1 << 20 };
    struct str s = { 0 };
    struct err e;
    FILE *f = fopen(path, "wb");
    (void)state;

    assert_non_null(f);
    for (int i = 0; i < N; i++)
        fputc(i % 256, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(text_file_read(path, &s, NULL), ERR_OK);
    assert_int_equal(s.len, N);
    for (int i = 0; i < N; i++)
        if ((unsigned char)s.data[i] != i % 256)
            fail_msg("byte %d is %d", i, s.data[i]);
    str_free(&s);
    assert_int_equal(text_file_read("no such file", &s, &e), ERR_IO);
    assert_int_equal(text_file_read(".", &s, &e), ERR_IO);
    str_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_and_values_as_numpy_reads_them),
        cmocka_unit_test(a_wrong_count_leaves_no_file),
        cmocka_unit_test(failures_to_write_are_seen),
        cmocka_unit_test(text_is_bytes),
    };
    return cmocka_run_group_tests_name("cli/npy", tests, temp_dir_enter, temp_dir_remove);
}
