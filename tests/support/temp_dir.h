/* SPDX-License-Identifier: MIT */
/* tests/support/temp_dir.h - a new folder that the test works in, so that its files have
 * plain names; cmocka group fixtures. */
#ifndef TESTS_SUPPORT_TEMP_DIR_H
#define TESTS_SUPPORT_TEMP_DIR_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char temp_dir[512];

static inline int temp_dir_enter(void **state)
{
    const char *base = getenv("TMPDIR");

    (void)state;
    snprintf(temp_dir, sizeof temp_dir, "%s/latentd-test-XXXXXX", base ? base : "/tmp");
    return mkdtemp(temp_dir) ? chdir(temp_dir) : -1;
}

static inline int temp_dir_remove_one(const char *path, const struct stat *st, int flag,
                                      struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static inline int temp_dir_remove(void **state)
{
    (void)state;
    return nftw(temp_dir, temp_dir_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Writes a file of this text; 0, or -1. */
static inline int temp_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    int ok = f && fputs(text, f) >= 0;

    return f && fclose(f) == 0 && ok ? 0 : -1;
}

#endif
