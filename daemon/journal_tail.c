/* SPDX-License-Identifier: MIT */
/* daemon/journal_tail.c - see journal_tail.h. */
#include "daemon/journal_tail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Half of the steps that may be unrecorded, with 256 requests in each: 192 KiB. */
enum { TAIL_RECORDS = 8192 };

struct tail_file {
    uint64_t run;
    struct tail_record {
        int64_t number, position;
        int32_t token;
        uint32_t check;
    } records[TAIL_RECORDS];
};

/* Half-written records must not pass; nobody forges them.  The multiplier is that of
 * Knuth's MMIX generator. */
static uint32_t check_of(const struct journal_token *t)
{
    const uint64_t by = 6364136223846793005u;
    uint64_t h = (uint64_t)t->number * by + 1;

    h = (h ^ h >> 32 ^ (uint64_t)t->position) * by;
    h = (h ^ h >> 32 ^ (uint32_t)t->token) * by;
    return (uint32_t)(h >> 32);
}

/* ---- The file ------------------------------------------------------------- */

static enum err_code map(struct journal_tail *t, const char *path, struct err *e)
{
    const size_t size = sizeof *t->file;
    int rc;

    t->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (t->fd < 0)
        return err_sys(e, "%s: cannot be opened", path);
    /* A mapped page for which the disk has no room would end the process. */
    if ((rc = posix_fallocate(t->fd, 0, (off_t)size)) != 0) {
        errno = rc;
        return err_sys(e, "%s: no room", path);
    }
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, t->fd, 0);
    if (at == MAP_FAILED)
        return err_sys(e, "%s: cannot be mapped", path);
    t->file = at;
    return ERR_OK;
}

enum err_code journal_tail_open(struct journal_tail *t, const char *path, struct err *e)
{
    *t = (struct journal_tail){ .fd = -1 };
    enum err_code rc = map(t, path, e);

    if (rc != ERR_OK)
        journal_tail_close(t);
    return rc;
}

void journal_tail_close(struct journal_tail *t)
{
    if (t->file)
        (void)munmap(t->file, sizeof *t->file);
    if (t->fd >= 0)
        close(t->fd);
    *t = (struct journal_tail){ .fd = -1 };
}

int journal_tail_is_there(const struct journal_tail *t)
{
    struct stat st;

    return t->file && fstat(t->fd, &st) == 0 && st.st_nlink > 0;
}

uint64_t journal_tail_run(const struct journal_tail *t)
{
    return t->file ? t->file->run : 0;
}

void journal_tail_begin(struct journal_tail *t, uint64_t run)
{
    memset(t->file->records, 0, sizeof t->file->records);
    t->file->run = run;
    t->next = t->used = 0;
}

/* ---- Tokens --------------------------------------------------------------- */

int journal_tail_put(struct journal_tail *t, const struct journal_token *tokens, int n)
{
    if (!t->file || n > TAIL_RECORDS - t->used)
        return 0;
    for (int i = 0; i < n; i++) {
        t->file->records[t->next] = (struct tail_record){ .number = tokens[i].number,
                                                          .position = tokens[i].position,
                                                          .token = tokens[i].token,
                                                          .check = check_of(&tokens[i]) };
        t->next = (t->next + 1) % TAIL_RECORDS;
    }
    t->used += n;
    return 1;
}

void journal_tail_release(struct journal_tail *t, int n)
{
    t->used -= n;
}

static int compare(const void *a, const void *b)
{
    const struct journal_token *x = a, *y = b;

    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

enum err_code journal_tail_read(const struct journal_tail *t, struct journal_token **found, int *n,
                                struct err *e)
{
    *n = 0;
    *found = malloc(TAIL_RECORDS * sizeof **found);
    if (!*found)
        return err_set(e, ERR_NOMEM, "no memory for the tail of the journal");
    for (int i = 0; t->file && i < TAIL_RECORDS; i++) {
        const struct tail_record *r = &t->file->records[i];
        struct journal_token token = { .number = r->number,
                                       .position = r->position,
                                       .token = r->token };
        if (r->number > 0 && r->position >= 0 && r->check == check_of(&token))
            (*found)[(*n)++] = token;
    }
    qsort(*found, (size_t)*n, sizeof **found, compare);
    return ERR_OK;
}
