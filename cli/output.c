/* SPDX-License-Identifier: MIT */
#include "cli/output.h"

#include <errno.h>
#include <stdio.h>

enum err_code output_flush(struct err *e)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return ERR_OK;
    if (errno == EPIPE)
        return ERR_CANCELLED;
    if (errno == 0)
        errno = EIO; /* an earlier write failed and its reason is gone */
    return err_sys(e, "standard output: the result is incomplete");
}

enum err_code output_write(const char *bytes, size_t n, struct err *e)
{
    errno = 0;
    if (fwrite(bytes, 1, n, stdout) != n && errno == EPIPE)
        return ERR_CANCELLED;
    return output_flush(e);
}
