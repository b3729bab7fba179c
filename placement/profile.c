/* SPDX-License-Identifier: MIT */
/* placement/profile.c - see profile.h. */
#include "placement/profile.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/draft.h"

enum { VERSION = 1, MAX_FILE = 1 << 20, MAX_COUNT = 65536 };

/* Faster than any machine: 1 PB/s, 1e18 operations a second. */
static const double max_bytes_per_s = 1e15, max_ops_per_s = 1e18;
static const double max_us = 1e9;

/* ---- Reading ----------------------------------------------------------------------- */

struct reader {
    const char *path;
    struct err *e;
};

static enum err_code read_number(const struct reader *x, const json_t *o, const char *key,
                                 double min, double max, double *out)
{
    const json_t *v = json_object_get(o, key);
    double n = json_is_number(v) ? json_number_value(v) : -1;

    if (!json_is_number(v) || !(n >= min && n <= max))
        return err_set(x->e, ERR_FORMAT,
                       "%s: %s is no number from %g to %g; measure again with latent bench "
                       "--devices",
                       x->path, key, min, max);
    *out = n;
    return ERR_OK;
}

static enum err_code read_count(const struct reader *x, const json_t *o, const char *key, int min,
                                int *out)
{
    double n = 0;

    TRY(read_number(x, o, key, min, MAX_COUNT, &n));
    *out = (int)n;
    return ERR_OK;
}

static enum err_code read_readings(const struct reader *x, const json_t *root, struct profile *p)
{
    const json_t *all = json_object_get(root, "reads");
    size_t n = json_array_size(all);

    if (!json_is_array(all) || n < 1 || n > PROFILE_MAX_READS)
        return err_set(x->e, ERR_FORMAT,
                       "%s: reads is no list of 1 to %d readings; measure again with latent bench "
                       "--devices",
                       x->path, PROFILE_MAX_READS);
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(all, i);
        struct profile_reading *r = &p->reads[p->n_reads++];
        TRY(read_count(x, o, "threads", 1, &r->threads));
        TRY(read_count(x, o, "node", PROFILE_ALL_NODES, &r->node));
        TRY(read_number(x, o, "bytes_per_s", 1, max_bytes_per_s, &r->bytes_per_s));
    }
    return ERR_OK;
}

/* Profiles of before have none. */
static enum err_code read_sums(const struct reader *x, const json_t *root, struct profile *p)
{
    const json_t *all = json_object_get(root, "sums");
    size_t n = json_array_size(all);

    if (all && (!json_is_array(all) || n > PROFILE_MAX_SUMS))
        return err_set(x->e, ERR_FORMAT,
                       "%s: sums is no list of at most %d; measure again with mpirun latent bench "
                       "--devices",
                       x->path, PROFILE_MAX_SUMS);
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(all, i);
        struct profile_sum *s = &p->sums[p->n_sums++];
        TRY(read_count(x, o, "ranks", 1, &s->ranks));
        TRY(read_count(x, o, "hosts", 1, &s->hosts));
        TRY(read_number(x, o, "row_us", 0, max_us, &s->row_us));
        TRY(read_number(x, o, "latency_us", 0, max_us, &s->latency_us));
        TRY(read_number(x, o, "bytes_per_s", 1, max_bytes_per_s, &s->bytes_per_s));
    }
    return ERR_OK;
}

static enum err_code read_profile(const struct reader *x, const json_t *root, struct profile *p)
{
    const char *cpu = json_string_value(json_object_get(root, "cpu"));
    int version = 0;

    TRY(read_count(x, root, "version", 1, &version));
    if (version != VERSION)
        return err_set(x->e, ERR_FORMAT,
                       "%s: version %d, this program reads %d; measure again with "
                       "latent bench --devices",
                       x->path, version, VERSION);
    snprintf(p->cpu, sizeof p->cpu, "%s", cpu ? cpu : "");
    TRY(read_count(x, root, "cores", 1, &p->cores));
    TRY(read_count(x, root, "numa", 1, &p->numa));
    TRY(read_readings(x, root, p));
    TRY(read_sums(x, root, p));
    TRY(read_number(x, root, "int8_ops_per_s", 1, max_ops_per_s, &p->int8_ops_per_s));
    TRY(read_number(x, root, "bf16_ops_per_s", 0, max_ops_per_s, &p->bf16_ops_per_s));
    TRY(read_number(x, root, "f32_ops_per_s", 0, max_ops_per_s, &p->f32_ops_per_s));
    return read_number(x, root, "disk_bytes_per_s", 0, max_bytes_per_s, &p->disk_bytes_per_s);
}

/* The whole file, at most MAX_FILE bytes. */
static enum err_code read_text(const char *path, char **text, size_t *n, struct err *e)
{
    FILE *f = fopen(path, "rb");

    if (!f)
        return err_sys(e, "%s: cannot be read", path);
    *text = malloc(MAX_FILE + 1);
    *n = *text ? fread(*text, 1, MAX_FILE + 1, f) : 0;
    int failed = ferror(f);
    fclose(f);
    if (!*text)
        return err_set(e, ERR_NOMEM, "no memory to read %s", path);
    if (failed)
        return err_sys(e, "%s: cannot be read", path);
    if (*n > MAX_FILE)
        return err_set(e, ERR_FORMAT, "%s: more than %d bytes, no profile", path, MAX_FILE);
    return ERR_OK;
}

enum err_code profile_read(struct profile *p, const char *path, struct err *e)
{
    struct reader x = { path, e };
    struct profile read = { 0 };
    json_error_t why;
    char *text = NULL;
    size_t n = 0;
    enum err_code rc = read_text(path, &text, &n, e);
    json_t *root = rc == ERR_OK ? json_loadb(text, n, 0, &why) : NULL;

    if (rc == ERR_OK && !root)
        rc = err_set(e, ERR_FORMAT, "%s:%d: %.100s", path, why.line, why.text);
    if (rc == ERR_OK)
        rc = read_profile(&x, root, &read);
    if (rc == ERR_OK)
        *p = read;
    json_decref(root);
    free(text);
    return rc;
}

/* ---- Writing ------------------------------------------------------------------------- */

static char *profile_text(const struct profile *p)
{
    json_t *reads = json_array(), *sums = json_array();

    for (int i = 0; i < p->n_reads; i++)
        json_array_append_new(reads,
                              json_pack("{s:i,s:i,s:f}", "threads", p->reads[i].threads, "node",
                                        p->reads[i].node, "bytes_per_s", p->reads[i].bytes_per_s));
    for (int i = 0; i < p->n_sums; i++)
        json_array_append_new(
            sums, json_pack("{s:i,s:i,s:f,s:f,s:f}", "ranks", p->sums[i].ranks, "hosts",
                            p->sums[i].hosts, "row_us", p->sums[i].row_us, "latency_us",
                            p->sums[i].latency_us, "bytes_per_s", p->sums[i].bytes_per_s));
    json_t *root =
        json_pack("{s:i,s:s,s:i,s:i,s:o,s:f,s:f,s:f,s:f,s:o}", "version", VERSION, "cpu", p->cpu,
                  "cores", p->cores, "numa", p->numa, "reads", reads, "int8_ops_per_s",
                  p->int8_ops_per_s, "bf16_ops_per_s", p->bf16_ops_per_s, "f32_ops_per_s",
                  p->f32_ops_per_s, "disk_bytes_per_s", p->disk_bytes_per_s, "sums", sums);
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    return text;
}

enum err_code profile_write(const struct profile *p, const char *path, struct err *e)
{
    struct draft draft;
    char *text = profile_text(p);

    if (!text)
        return err_set(e, ERR_NOMEM, "no memory to write %s", path);
    enum err_code rc = draft_open(&draft, path, e);
    if (rc == ERR_OK) {
        fprintf(draft.file, "%s\n", text);
        rc = draft_keep(&draft, e);
    }
    free(text);
    return rc;
}

/* ---- Use -------------------------------------------------------------------------------- */

void profile_add_sum(struct profile *p, const struct profile_sum *s)
{
    int at = 0;

    while (at < p->n_sums && (p->sums[at].ranks != s->ranks || p->sums[at].hosts != s->hosts))
        at++;
    if (at < p->n_sums || p->n_sums == PROFILE_MAX_SUMS) {
        at = at < p->n_sums ? at : 0;
        memmove(p->sums + at, p->sums + at + 1, (size_t)(--p->n_sums - at) * sizeof *p->sums);
    }
    p->sums[p->n_sums++] = *s;
}

static void apply_sums(const struct profile *p, struct host *h, int ranks)
{
    int nearest = -1;

    for (int i = 0; i < p->n_sums; i++)
        if (p->sums[i].hosts == 1 && p->sums[i].ranks > 1 &&
            (nearest < 0 || abs(p->sums[i].ranks - ranks) < abs(p->sums[nearest].ranks - ranks)))
            nearest = i;
    if (nearest >= 0) {
        h->sum_us = p->sums[nearest].latency_us;
        h->sum_bw = p->sums[nearest].bytes_per_s;
    }
}

int profile_apply(const struct profile *p, struct inventory *m, int ranks)
{
    double best = 0;

    if (m->n != 1 || m->hosts[0].cores != p->cores || m->hosts[0].numa != p->numa)
        return 0;
    for (int i = 0; i < p->n_reads; i++)
        if (p->reads[i].node == PROFILE_ALL_NODES && p->reads[i].bytes_per_s > best)
            best = p->reads[i].bytes_per_s;
    if (best > 0)
        m->hosts[0].ram_bw = best;
    m->hosts[0].int8_rate = p->int8_ops_per_s;
    if (p->disk_bytes_per_s > 0)
        m->hosts[0].disk_bw = p->disk_bytes_per_s;
    apply_sums(p, &m->hosts[0], ranks);
    m->guessed = best <= 0;
    return 1;
}
