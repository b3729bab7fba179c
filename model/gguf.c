/* SPDX-License-Identifier: MIT */
/* model/gguf.c - see gguf.h.
 *
 * A gguf is the parts that gguf_shards_open found, one list of all their tensors, and
 * an index of the tensors' names.  Offsets and sizes were checked when the parts were
 * opened, so reading only compares with those.
 */
#include "model/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/gguf_part.h"

/* ---- Opening ------------------------------------------------------------ */

/* Sorts the names. */
static enum err_code check_names(struct gguf *g, struct err *e)
{
    int twice = gguf_names_sort(g->names, g->n_tensors);
    if (twice < 0)
        return ERR_OK;

    const struct gguf_tensor *first = &g->tensors[g->names[twice - 1].at];
    const struct gguf_tensor *second = &g->tensors[g->names[twice].at];
    const struct gguf_part *a = &g->parts[first->part], *b = &g->parts[second->part];
    return err_set(
        e, ERR_FORMAT,
        "%s: tensor %s at offset %" PRIu64 " was already listed at offset %" PRIu64 "%s%s",
        b->label, gguf_quote(g->names[twice].name).text, gguf_part_offset(b, second->name),
        gguf_part_offset(a, first->name), a == b ? "" : " of ", a == b ? "" : a->label);
}

/* One list of the tensors of all parts. */
static enum err_code join_tensors(struct gguf *g, struct err *e)
{
    size_t n = 0;

    for (int i = 0; i < g->n_parts; i++)
        n += (size_t)g->parts[i].n_tensors;
    if (n < INT32_MAX) {
        g->tensors = calloc(n + 1, sizeof *g->tensors);
        g->names = calloc(n + 1, sizeof *g->names);
    }
    if (!g->tensors || !g->names)
        return err_set(e, ERR_NOMEM, "%s: no memory for %zu tensors", g->parts[0].label, n);
    for (int i = 0; i < g->n_parts; i++) {
        const struct gguf_part *p = &g->parts[i];
        for (int k = 0; k < p->n_tensors; k++) {
            int at = g->n_tensors++;
            g->tensors[at] = p->tensors[k];
            g->tensors[at].part = i;
            g->names[at] = (struct gguf_name){ gguf_text(p->tensors[k].name), at };
        }
    }
    return check_names(g, e);
}

enum err_code gguf_set_architecture(struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, "general.architecture");
    struct gguf_string s = { "", 0 };

    if (kv && gguf_as_string(&kv->value, &s))
        return err_set(e, ERR_FORMAT, "%s: general.architecture is of type %s, expected string",
                       g->parts[0].label, gguf_type_name(kv->value.type));
    if (s.len >= sizeof g->architecture || memchr(s.data, 0, s.len))
        return err_set(e, ERR_FORMAT,
                       "%s: general.architecture %s is not a name of 1 to %zu letters",
                       g->parts[0].label, gguf_quote(s).text, sizeof g->architecture - 1);
    memcpy(g->architecture, s.data, s.len);
    g->architecture[s.len] = 0;
    return ERR_OK;
}

enum err_code gguf_open(struct gguf **out, const char *path, unsigned flags, struct err *e)
{
    enum err_code rc;
    struct gguf *g = calloc(1, sizeof *g);

    if (!g)
        return err_set(e, ERR_NOMEM, "%s: no memory", path);
    if ((rc = gguf_shards_open(&g->parts, &g->n_parts, path, e)) != ERR_OK)
        goto out;
    if ((rc = join_tensors(g, e)) != ERR_OK)
        goto out;
    for (int i = 0; i < g->n_parts && !(flags & GGUF_HEADERS_ONLY); i++)
        if ((rc = gguf_part_check_data(&g->parts[i], e)) != ERR_OK)
            goto out;
    if ((rc = gguf_set_architecture(g, e)) != ERR_OK)
        goto out;
    *out = g;
    g = NULL;
out:
    gguf_close(&g);
    return rc;
}

void gguf_close(struct gguf **g)
{
    struct gguf *old = *g;

    if (!old)
        return;
    for (int i = 0; i < old->n_parts; i++)
        gguf_part_close(&old->parts[i]);
    gguf_free_overrides(old);
    free(old->parts);
    free(old->tensors);
    free(old->names);
    free(old);
    *g = NULL;
}

/* ---- Metadata ----------------------------------------------------------- */

int gguf_kv_count(const struct gguf *g)
{
    return g->parts[0].n_kv;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, int i)
{
    return &g->parts[0].kv[i];
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    return gguf_part_find(&g->parts[0], gguf_text(key));
}

const struct gguf_kv *gguf_find_arch(const struct gguf *g, const char *arch_key)
{
    char key[256];
    int n = snprintf(key, sizeof key, "%s.%s", g->architecture, arch_key);

    return n < (int)sizeof key ? gguf_find(g, key) : NULL;
}

const char *gguf_architecture(const struct gguf *g)
{
    return g->architecture;
}

/* ---- Tensors ------------------------------------------------------------ */

int gguf_tensor_count(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, int i)
{
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    int i = gguf_names_find(g->names, g->n_tensors, gguf_text(name));

    return i < 0 ? NULL : &g->tensors[g->names[i].at];
}

enum err_code gguf_read(const struct gguf *g, const struct gguf_tensor *t, uint64_t offset,
                        void *buf, uint64_t bytes, struct err *e)
{
    const struct gguf_part *p = &g->parts[t->part];
    uint8_t *to = buf;

    if (offset > t->bytes || bytes > t->bytes - offset)
        return err_set(e, ERR_IO,
                       "%s: tensor %s has %" PRIu64 " bytes, asked for %" PRIu64 " at %" PRIu64,
                       p->label, t->name, t->bytes, bytes, offset);
    uint64_t at = t->offset + offset;
    while (bytes) {
        ssize_t got = pread(p->fd, to, (size_t)bytes, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(e, "%s: tensor %s: cannot read at offset %" PRIu64, p->label, t->name,
                           at);
        if (got == 0)
            return err_set(e, ERR_IO,
                           "%s: tensor %s: the file ends at offset %" PRIu64 ", %" PRIu64
                           " bytes too early",
                           p->label, t->name, at, bytes);
        to += got;
        at += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return ERR_OK;
}

void gguf_will_read(const struct gguf *g, const struct gguf_tensor *t, uint64_t offset,
                    uint64_t bytes)
{
    if (offset >= t->bytes)
        return;
    if (bytes > t->bytes - offset)
        bytes = t->bytes - offset;
    (void)posix_fadvise(g->parts[t->part].fd, (off_t)(t->offset + offset), (off_t)bytes,
                        POSIX_FADV_WILLNEED);
}

int gguf_part_count(const struct gguf *g)
{
    return g->n_parts;
}

const char *gguf_part_path(const struct gguf *g, int part)
{
    return g->parts[part].path;
}

uint64_t gguf_total_bytes(const struct gguf *g)
{
    uint64_t sum = 0;

    for (int i = 0; i < g->n_parts; i++)
        sum += g->parts[i].bytes;
    return sum;
}
