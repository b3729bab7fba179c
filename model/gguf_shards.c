/* SPDX-License-Identifier: MIT */
/* model/gguf_shards.c - finds and verifies the files of a split model.
 *
 * A shard says split.no (from 0), split.count and split.tensors.count.  Its name,
 * PREFIX-00002-of-00007.gguf, serves to find the siblings; which of them is which is
 * decided by split.no.  All must exist before the first of them is opened.
 */
#include "model/gguf_part.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"

enum { MAX_SHARDS = 65535 }; /* split.count is a u16 where it is written */

/* ---- The keys ----------------------------------------------------------- */

/* count is 1 for a file that is not split. */
struct split_keys {
    int64_t no, count, tensors;
};

/* Writers differ in the integer type.  *out keeps its value if the key is missing. */
static enum err_code read_key(const struct gguf_part *p, const char *key, int64_t *out,
                              struct err *e)
{
    const struct gguf_kv *kv = gguf_part_find(p, gguf_text(key));

    if (kv && gguf_as_i64(&kv->value, out))
        return err_set(e, ERR_FORMAT,
                       "%s: %s at offset %" PRIu64 " is of type %s, expected an integer", p->label,
                       key, gguf_part_offset(p, kv->key.data), gguf_type_name(kv->value.type));
    return ERR_OK;
}

/* A merged file keeps the keys, with a count of 0. */
static enum err_code read_split_keys(const struct gguf_part *p, struct split_keys *s, struct err *e)
{
    *s = (struct split_keys){ .no = -1, .count = -1, .tensors = -1 };
    TRY(read_key(p, "split.no", &s->no, e));
    TRY(read_key(p, "split.count", &s->count, e));
    TRY(read_key(p, "split.tensors.count", &s->tensors, e));
    if (s->count == 0 || (s->count < 0 && s->no <= 0)) {
        *s = (struct split_keys){ .no = 0, .count = 1, .tensors = p->n_tensors };
        return ERR_OK;
    }
    if (s->count == -1)
        return err_set(e, ERR_FORMAT, "%s: split.no is %" PRId64 ", but split.count is missing",
                       p->label, s->no);
    if (s->count < 1 || s->count > MAX_SHARDS)
        return err_set(e, ERR_FORMAT, "%s: split.count is %" PRId64 ", expected 1 to %d", p->label,
                       s->count, MAX_SHARDS);
    if (s->no < 0 || s->no >= s->count)
        return err_set(e, ERR_FORMAT, "%s: split.no is %" PRId64 ", expected 0 to %" PRId64,
                       p->label, s->no, s->count - 1);
    if (s->tensors < 0)
        return err_set(e, ERR_FORMAT,
                       "%s: split.tensors.count is missing or negative in shard %" PRId64
                       " of %" PRId64,
                       p->label, s->no + 1, s->count);
    return ERR_OK;
}

/* ---- The names ---------------------------------------------------------- */

/* Reads "-00001" backwards from *end; leaves *end at the dash.  -1: it is not there. */
static int64_t number_before(const char *path, size_t *end)
{
    size_t first = *end;
    int64_t n = 0;

    while (first > 0 && path[first - 1] >= '0' && path[first - 1] <= '9')
        first--;
    if (*end - first != 5 || first == 0 || path[first - 1] != '-')
        return -1;
    for (size_t i = first; i < *end; i++)
        n = 10 * n + (path[i] - '0');
    *end = first - 1;
    return n;
}

/* Length of PREFIX; *no (from 1) and *count as the name has them, or -1. */
static size_t parse_name(const char *path, int64_t *no, int64_t *count)
{
    static const char ending[] = ".gguf", of[] = "-of";
    size_t len = strlen(path), end = len - (sizeof ending - 1);

    *no = *count = -1;
    if (len < sizeof ending || strcmp(path + end, ending) != 0)
        return len;
    *count = number_before(path, &end);
    if (*count < 0 || end < sizeof of - 1 ||
        memcmp(path + end - (sizeof of - 1), of, sizeof of - 1) != 0)
        return len;
    end -= sizeof of - 1;
    *no = number_before(path, &end);
    return end;
}

static void put_name(struct str *s, const char *path, size_t prefix, int64_t no, int64_t count)
{
    str_clear(s);
    str_append(s, path, prefix);
    str_printf(s, "-%05" PRId64 "-of-%05" PRId64 ".gguf", no, count);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Fails with the names of the first few that are missing. */
static enum err_code check_names(const struct gguf_part *p, size_t prefix, int64_t count,
                                 struct err *e)
{
    enum { SHOWN = 3 };
    struct str name = { 0 }, missing = { 0 };
    int64_t n_missing = 0;
    enum err_code rc = ERR_OK;

    for (int64_t i = 1; i <= count; i++) {
        put_name(&name, p->path, prefix, i, count);
        if (name.failed || access(name.data, F_OK) == 0)
            continue;
        if (n_missing++ < SHOWN)
            str_printf(&missing, "%s%.60s", n_missing > 1 ? ", " : "", base_name(name.data));
    }
    if (name.failed || missing.failed)
        rc = err_set(e, ERR_NOMEM, "%s: no memory for names", p->label);
    else if (n_missing)
        rc = err_set(e, ERR_FORMAT,
                     "%s: %" PRId64 " of the model's %" PRId64 " shards are not beside it: %s%s",
                     p->label, n_missing, count, missing.data, n_missing > SHOWN ? ", ..." : "");
    str_free(&name);
    str_free(&missing);
    return rc;
}

/* ---- The set ------------------------------------------------------------ */

/* Moves *p to its place among parts[count]. */
static enum err_code place(struct gguf_part *parts, struct gguf_part *p,
                           const struct split_keys *want, int64_t name_no, struct err *e)
{
    struct split_keys s;

    TRY(read_split_keys(p, &s, e));
    if (s.count != want->count || s.tensors != want->tensors)
        return err_set(e, ERR_FORMAT,
                       "%s: says %" PRId64 " shards with %" PRId64 " tensors, but another "
                       "shard says %" PRId64 " with %" PRId64 "; they belong to different models",
                       p->label, s.count, s.tensors, want->count, want->tensors);
    struct gguf_part *to = &parts[s.no];
    if (to->path)
        return err_set(e, ERR_FORMAT, "%s: split.no is %" PRId64 ", which %s has already", p->label,
                       s.no, base_name(to->path));
    if (s.no + 1 != name_no)
        log_info("%s is shard %" PRId64 " by its split.no, which counts more than its name",
                 p->label, s.no + 1);
    *to = *p;
    *p = (struct gguf_part){ .fd = -1 };
    return ERR_OK;
}

static enum err_code check_total(const struct gguf_part *parts, const struct split_keys *want,
                                 struct err *e)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < want->count; i++)
        sum += parts[i].n_tensors;
    if (sum != want->tensors)
        return err_set(e, ERR_FORMAT,
                       "%s: split.tensors.count is %" PRId64 ", but the %" PRId64
                       " shards have %" PRId64 " tensors",
                       parts[0].label, want->tensors, want->count, sum);
    return ERR_OK;
}

/* Opens every sibling; takes *given, which is one of them. */
static enum err_code open_siblings(struct gguf_part *parts, struct gguf_part *given, size_t prefix,
                                   int64_t given_no, const struct split_keys *want, struct err *e)
{
    struct str name = { 0 };
    struct gguf_part p = { .fd = -1 };
    enum err_code rc = place(parts, given, want, given_no, e);

    for (int64_t i = 1; i <= want->count && rc == ERR_OK; i++) {
        if (i == given_no)
            continue;
        put_name(&name, parts[want->no].path, prefix, i, want->count);
        rc = name.failed ? err_set(e, ERR_NOMEM, "%s: no memory for names", parts[want->no].label)
                         : gguf_part_open(&p, name.data, e);
        if (rc == ERR_OK)
            rc = place(parts, &p, want, i, e);
        gguf_part_close(&p);
    }
    str_free(&name);
    return rc;
}

enum err_code gguf_shards_open(struct gguf_part **parts, int *n_parts, const char *path,
                               struct err *e)
{
    struct gguf_part given, *all = NULL;
    struct split_keys want = { .count = 0 };
    int64_t name_no = 1, name_count = 1;
    size_t prefix = 0;
    enum err_code rc = gguf_part_open(&given, path, e);

    if (rc != ERR_OK)
        return rc;
    if ((rc = read_split_keys(&given, &want, e)) != ERR_OK)
        goto out;
    if (want.count > 1) {
        prefix = parse_name(path, &name_no, &name_count);
        if (name_no < 1 || name_count != want.count || name_no > name_count) {
            rc = err_set(e, ERR_FORMAT,
                         "%s: is shard %" PRId64 " of %" PRId64 " by its split.* keys; the "
                         "shards are found by name, so name them NAME-00001-of-%05" PRId64
                         ".gguf and so on",
                         given.label, want.no + 1, want.count, want.count);
            goto out;
        }
        if ((rc = check_names(&given, prefix, want.count, e)) != ERR_OK)
            goto out;
    }
    if (!(all = calloc((size_t)want.count, sizeof *all))) {
        rc = err_set(e, ERR_NOMEM, "%s: no memory for %" PRId64 " shards", given.label, want.count);
        goto out;
    }
    if ((rc = open_siblings(all, &given, prefix, name_no, &want, e)) != ERR_OK)
        goto out;
    if ((rc = check_total(all, &want, e)) != ERR_OK)
        goto out;
    *parts = all;
    *n_parts = (int)want.count;
    all = NULL;
out:
    gguf_part_close(&given);
    for (int64_t i = 0; all && i < want.count; i++)
        gguf_part_close(&all[i]);
    free(all);
    return rc;
}
