/* SPDX-License-Identifier: MIT */
#include "cli/output.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

/* An earlier printf failed and its errno is gone: a pipe still tells whether anybody reads. */
static int reader_is_gone(void)
{
    struct pollfd fd = { .fd = STDOUT_FILENO, .events = POLLOUT };

    return poll(&fd, 1, 0) == 1 && (fd.revents & POLLERR);
}

/* What errno says, 0 when it is gone. */
static enum err_code incomplete(struct err *e)
{
    if (errno == EPIPE || (errno == 0 && reader_is_gone()))
        return ERR_CANCELLED;
    if (errno == 0)
        errno = EIO;
    return err_sys(e, "standard output: the result is incomplete");
}

enum err_code output_flush(struct err *e)
{
    errno = 0;
    return fflush(stdout) == 0 && !ferror(stdout) ? ERR_OK : incomplete(e);
}

enum err_code output_put(const void *bytes, size_t n, struct err *e)
{
    errno = 0;
    return fwrite(bytes, 1, n, stdout) == n ? ERR_OK : incomplete(e);
}

enum err_code output_write(const char *bytes, size_t n, struct err *e)
{
    TRY(output_put(bytes, n, e));
    return output_flush(e);
}
