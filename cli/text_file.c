/* SPDX-License-Identifier: MIT */
#include "cli/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static enum err_code read_all(int fd, const char *path, struct str *out, struct err *e)
{
    char piece[1 << 16];

    for (;;) {
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, "%s: cannot be read", path);
        if (n == 0)
            return ERR_OK;
        if (out->len + (size_t)n > TEXT_FILE_MAX)
            return err_set(e, ERR_USAGE, "%s: larger than %d bytes; give a shorter text", path,
                           TEXT_FILE_MAX);
        str_append(out, piece, (size_t)n);
        if (out->failed)
            return err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
    }
}

enum err_code text_file_read(const char *path, struct str *out, struct err *e)
{
    if (strcmp(path, "-") == 0)
        return read_all(STDIN_FILENO, "standard input", out, e);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "%s: cannot be read", path);
    enum err_code rc = read_all(fd, path, out, e);
    close(fd);
    return rc;
}
