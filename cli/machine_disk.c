/* SPDX-License-Identifier: MIT */
/* cli/machine_disk.c - how fast a file comes from the disk, as the loader would read it: every
 * thread a part of its own, some megabytes at a time, past the page cache (O_DIRECT).  A file
 * system without that is asked to forget the file first. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/machine.h"

enum { PIECE = 4 << 20, ALIGNMENT = 4096 };

static const int64_t READ_MAX = (int64_t)1 << 30;

struct disk_test {
    int fd;
    int64_t pieces;
    int64_t done; /* bytes */
    int failed;   /* errno of the first thread that failed */
};

static void read_part(void *arg, int thread, int n_threads)
{
    struct disk_test *t = arg;
    int64_t end = team_end(t->pieces, thread, n_threads), bytes = 0;
    void *piece = NULL;

    if (posix_memalign(&piece, ALIGNMENT, PIECE) != 0)
        __atomic_store_n(&t->failed, ENOMEM, __ATOMIC_RELAXED);
    for (int64_t i = team_begin(t->pieces, thread, n_threads); piece && i < end; i++) {
        ssize_t n = pread(t->fd, piece, PIECE, (off_t)(i * PIECE));
        if (n < 0) {
            __atomic_store_n(&t->failed, errno, __ATOMIC_RELAXED);
            break;
        }
        bytes += n;
    }
    free(piece);
    __atomic_fetch_add(&t->done, bytes, __ATOMIC_RELAXED);
}

static int open_uncached(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);

    if (fd >= 0 || errno != EINVAL)
        return fd;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return fd;
}

enum err_code machine_disk_rate(double *bytes_per_s, const char *path, const struct team *team,
                                struct err *e)
{
    struct disk_test t = { .fd = open_uncached(path) };
    enum err_code rc = ERR_OK;
    struct stat st;

    if (t.fd < 0 || fstat(t.fd, &st) != 0) {
        rc = err_sys(e, "%s: cannot be read", path);
        goto out;
    }
    if (st.st_size < MACHINE_DISK_MIN) {
        rc = err_set(e, ERR_USAGE,
                     "%s: less than %d MiB, too small to measure a disk; name a model "
                     "file",
                     path, MACHINE_DISK_MIN >> 20);
        goto out;
    }
    t.pieces = (st.st_size < READ_MAX ? st.st_size : READ_MAX) / PIECE;
    double begin = clock_seconds();
    team_run(team, read_part, &t);
    double seconds = clock_seconds() - begin;
    errno = t.failed;
    if (t.failed)
        rc = err_sys(e, "%s: cannot be read", path);
    else
        *bytes_per_s = (double)t.done / seconds;
out:
    if (t.fd >= 0)
        close(t.fd);
    return rc;
}
