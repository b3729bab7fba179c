/* SPDX-License-Identifier: MIT */
/* model/gguf_part.c - opens one GGUF file and reads its header; see gguf_part.h. */
#include "model/gguf_part.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

enum { FIRST_READ = 64 << 10 };

static void free_directory(struct gguf_part *p)
{
    free(p->kv);
    free(p->keys);
    free(p->tensors);
    p->kv = NULL;
    p->keys = NULL;
    p->tensors = NULL;
    p->n_kv = p->n_tensors = 0;
}

/* ---- Reading ------------------------------------------------------------ */

/* Makes the first n bytes of the file, of which `have` are there, those of the buffer. */
static enum err_code load(struct gguf_part *p, uint64_t have, uint64_t n, struct err *e)
{
    uint8_t *grown = realloc(p->header, (size_t)n + 1);

    if (!grown)
        return err_set(e, ERR_NOMEM, "%s: no memory for a header of %" PRIu64 " bytes", p->label,
                       n);
    p->header = grown;
    while (have < n) {
        ssize_t got = pread(p->fd, grown + have, (size_t)(n - have), (off_t)have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(e, "%s: cannot read %" PRIu64 " bytes at offset %" PRIu64, p->label,
                           n - have, have);
        if (got == 0)
            return err_set(e, ERR_IO, "%s: became shorter while it was read, it ended at %" PRIu64,
                           p->label, have);
        have += (uint64_t)got;
    }
    return ERR_OK;
}

static enum err_code read_header(struct gguf_part *p, struct err *e)
{
    uint64_t have = 0, want = FIRST_READ;
    enum err_code rc;

    do {
        uint64_t n = want < 4 * have ? 4 * have : want;
        if (n > p->bytes)
            n = p->bytes;
        TRY(load(p, have, n, e));
        have = n;
        free_directory(p);
        rc = gguf_part_parse(p, have, &want, e);
    } while (rc == ERR_FULL);
    return rc;
}

static enum err_code open_file(struct gguf_part *p, struct err *e)
{
    struct stat st;

    /* O_NONBLOCK: a FIFO is refused instead of waited for; files do not notice */
    p->fd = open(p->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (p->fd < 0)
        return err_sys(e, "%s: cannot open", p->label);
    if (fstat(p->fd, &st))
        return err_sys(e, "%s: cannot stat", p->label);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_IO, "%s: is a %s, expected a GGUF file", p->label,
                       S_ISDIR(st.st_mode) ? "directory" : "device or pipe");
    p->bytes = (uint64_t)st.st_size;
    return ERR_OK;
}

/* Tensors may share bytes.  But one that reaches into the next is often one whose type id means
 * something else to the program that wrote it: forks reuse ids. */
static void warn_of_overrun(const struct gguf_part *p)
{
    for (int i = 0; i + 1 < p->n_tensors; i++) {
        const struct gguf_tensor *t = &p->tensors[i], *next = t + 1;
        if (next->offset <= t->offset || t->bytes <= next->offset - t->offset)
            continue;
        log_warn("%s: tensor %s has %" PRIu64
                 " bytes as %s (type id %u), but the next one, %s, begins "
                 "after %" PRIu64 "; perhaps the file's writer means another type by this id",
                 p->label, gguf_quote(gguf_text(t->name)).text, t->bytes, quant_info[t->type].name,
                 quant_info[t->type].gguf_id, gguf_quote(gguf_text(next->name)).text,
                 next->offset - t->offset);
        return;
    }
}

/* ---- The interface ------------------------------------------------------ */

enum err_code gguf_part_open(struct gguf_part *p, const char *path, struct err *e)
{
    enum { LABEL_MAX = 200 }; /* leaves a message room for its cause */
    size_t len = strlen(path);
    enum err_code rc;

    *p = (struct gguf_part){ .fd = -1, .path = strdup(path) };
    if (!p->path)
        return err_set(e, ERR_NOMEM, "%s: no memory", path);
    p->label = p->path + (len > LABEL_MAX ? len - LABEL_MAX : 0);
    if ((rc = open_file(p, e)) == ERR_OK)
        rc = read_header(p, e);
    if (rc != ERR_OK)
        gguf_part_close(p);
    else
        warn_of_overrun(p);
    return rc;
}

void gguf_part_close(struct gguf_part *p)
{
    if (!p->path)
        return;
    if (p->fd >= 0)
        close(p->fd);
    free_directory(p);
    free(p->header);
    free(p->path);
    *p = (struct gguf_part){ .fd = -1 };
}

struct gguf_kv *gguf_part_find(const struct gguf_part *p, struct gguf_string key)
{
    int i = gguf_names_find(p->keys, p->n_kv, key);

    return i < 0 ? NULL : &p->kv[p->keys[i].at];
}

enum err_code gguf_part_check_data(const struct gguf_part *p, struct err *e)
{
    const struct gguf_tensor *bad = NULL;
    uint64_t end = 0;

    for (int i = 0; i < p->n_tensors; i++) {
        const struct gguf_tensor *t = &p->tensors[i];
        if (t->offset + t->bytes > p->bytes && !bad)
            bad = t;
        if (t->offset + t->bytes > end)
            end = t->offset + t->bytes;
    }
    if (!bad)
        return ERR_OK;
    return err_set(e, ERR_FORMAT,
                   "%s: tensor %s: its data at offset %" PRIu64 " has %" PRIu64
                   " bytes (%s), but the file "
                   "ends at %" PRIu64 ", expected at least %" PRIu64 "; it is cut off or damaged",
                   p->label, gguf_quote(gguf_text(bad->name)).text, bad->offset, bad->bytes,
                   quant_info[bad->type].name, p->bytes, end);
}
