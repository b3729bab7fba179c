/* SPDX-License-Identifier: MIT */
/* model/layout_convert.c - see layout_convert.h.
 *
 * For head h, with matrices as rows of contiguous values:
 *
 *     attn_kv_b  [d_n + d_v rows][d_c]   K rows, then V rows
 *     attn_k_b   [d_c rows][d_n]         K transposed
 *     attn_v_b   [d_v rows][d_c]         V as it is
 *
 * Heads follow each other in all three, so every tensor is made head by head and streamed.
 *
 * Reading order: the ways of making a tensor; the keys; the file.
 */
#include "model/layout_convert.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "model/gguf_write.h"
#include "model/layout_plan.h"

struct job {
    struct model *m;
    const struct hparams *hp;
    struct layout_plan plan;
    float *rows, *turned; /* [(d_n + d_v) * d_c], owned: one head, as read and as written */
    uint8_t *bytes;       /* [COPY_BYTES or one head in f32], owned                       */
    struct gguf_writer *w;
    struct progress progress;
    int64_t done;
    struct err *e;
};

enum { COPY_BYTES = 4 << 20 };

/* ---- The tensors -------------------------------------------------------- */

static enum err_code put(struct job *j, const void *data, uint64_t bytes)
{
    gguf_write_data(j->w, data, bytes);
    j->done += (int64_t)bytes;
    progress_update(&j->progress, j->done);
    return gguf_writer_failed(j->w) ? gguf_writer_finish(&j->w, j->e) : ERR_OK;
}

/* Writes n values as p->type. */
static enum err_code put_floats(struct job *j, const struct layout_piece *p, const float *values,
                                int64_t n)
{
    uint16_t *halves = (uint16_t *)j->bytes;

    if (p->type == QUANT_F32)
        return put(j, values, (uint64_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++) {
        halves[i] = p->type == QUANT_F16 ? half_from_float(values[i]) : bf16_from_float(values[i]);
        if (p->type == QUANT_F16 && isfinite(values[i]) && (halves[i] & 0x7c00) == 0x7c00)
            return err_set(j->e, ERR_NUMERIC, "%s: a weight of %s is %g, too large for F16",
                           p->name, p->from->name, (double)values[i]);
    }
    return put(j, halves, (uint64_t)n * sizeof *halves);
}

/* out[c][r] = in[r][c] */
static void transpose(const float *in, int64_t n_rows, int64_t n_columns, float *out)
{
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < n_columns; c++)
            out[c * n_rows + r] = in[r * n_columns + c];
}

static enum err_code copy(struct job *j, const struct layout_piece *p)
{
    for (uint64_t at = 0; at < p->from->bytes; at += COPY_BYTES) {
        uint64_t left = p->from->bytes - at, n = left < COPY_BYTES ? left : COPY_BYTES;
        TRY(gguf_read(j->m->gguf, p->from, at, j->bytes, n, j->e));
        TRY(put(j, j->bytes, n));
    }
    return ERR_OK;
}

static enum err_code make_k(struct job *j, const struct layout_piece *p)
{
    const struct hparams *hp = j->hp;
    int64_t d_n = hp->d_nope, d_c = hp->kv_lora_rank;

    for (int h = 0; h < hp->n_heads; h++) {
        TRY(model_read_floats(j->m, p->from, h * (d_n + hp->d_v), d_n, j->rows, j->e));
        transpose(j->rows, d_n, d_c, j->turned);
        TRY(put_floats(j, p, j->turned, d_n * d_c));
    }
    return ERR_OK;
}

static enum err_code make_v(struct job *j, const struct layout_piece *p)
{
    const struct hparams *hp = j->hp;
    uint64_t bytes = (uint64_t)hp->d_v * quant_row_bytes(p->type, (size_t)hp->kv_lora_rank);

    for (int h = 0; h < hp->n_heads; h++) {
        int64_t first = h * (hp->d_nope + hp->d_v) + hp->d_nope;
        TRY(model_read_rows(j->m, p->from, first, hp->d_v, 0, j->bytes, j->e));
        TRY(put(j, j->bytes, bytes));
    }
    return ERR_OK;
}

static enum err_code make_kv(struct job *j, const struct layout_piece *p)
{
    const struct hparams *hp = j->hp;
    int64_t d_n = hp->d_nope, d_c = hp->kv_lora_rank, d_v = hp->d_v;

    for (int h = 0; h < hp->n_heads; h++) {
        TRY(model_read_floats(j->m, p->from, h * d_c, d_c, j->rows, j->e));
        transpose(j->rows, d_c, d_n, j->turned);
        TRY(model_read_floats(j->m, p->from_v, h * d_v, d_v, j->turned + d_n * d_c, j->e));
        TRY(put_floats(j, p, j->turned, (d_n + d_v) * d_c));
    }
    return ERR_OK;
}

static int64_t piece_bytes(const struct layout_piece *p)
{
    return (int64_t)quant_row_bytes(p->type, (size_t)p->dim[0]) * p->dim[1] * p->dim[2] * p->dim[3];
}

static enum err_code write_tensors(struct job *j)
{
    static enum err_code (*const make[])(struct job *, const struct layout_piece *) = {
        [PIECE_COPY] = copy, [PIECE_K] = make_k, [PIECE_V] = make_v, [PIECE_KV] = make_kv
    };
    const struct hparams *hp = j->hp;
    size_t head = (size_t)((hp->d_nope + hp->d_v) * hp->kv_lora_rank) * sizeof(float);
    enum err_code rc = ERR_OK;
    int64_t total = 0;

    j->rows = malloc(head);
    j->turned = malloc(head);
    j->bytes = malloc(head > COPY_BYTES ? head : COPY_BYTES);
    if (!j->rows || !j->turned || !j->bytes)
        return err_set(j->e, ERR_NOMEM, "no memory for the projections of one head");
    for (int i = 0; i < j->plan.n_pieces; i++)
        total += piece_bytes(&j->plan.pieces[i]);
    progress_start(&j->progress, "converting", total);
    for (int i = 0; i < j->plan.n_pieces && rc == ERR_OK; i++)
        rc = make[j->plan.pieces[i].how](j, &j->plan.pieces[i]);
    progress_end(&j->progress);
    return rc;
}

/* ---- The keys ----------------------------------------------------------- */

/* A key that describes the layout, without the architecture; 0: it must not be there. */
struct layout_key {
    const char *key;
    int64_t value;
    int written;
};
enum { VALUE_LENGTH = 2, N_LAYOUT_KEYS = 5 }; /* of the list in write_keys */

static int has_name(const struct gguf_kv *kv, const char *prefix, const char *name)
{
    size_t n = strlen(prefix), m = strlen(name);

    return kv->key.len == n + m && memcmp(kv->key.data, prefix, n) == 0 &&
           memcmp(kv->key.data + n, name, m) == 0;
}

static void write_layout_key(struct job *j, const char *prefix, struct layout_key *k)
{
    char key[128];

    if (k->value && !k->written) {
        snprintf(key, sizeof key, "%s%s", prefix, k->key);
        gguf_write_u32(j->w, key, (uint32_t)k->value);
    }
    k->written = 1;
}

/* The new file is one file, aligned as the writer does. */
static int is_dropped(const struct gguf_kv *kv)
{
    return has_name(kv, "", "general.alignment") ||
           (kv->key.len >= 6 && memcmp(kv->key.data, "split.", 6) == 0);
}

static void write_keys(struct job *j)
{
    const struct hparams *hp = j->hp;
    const struct gguf *file = j->m->gguf;
    int latent = j->plan.to == LAYOUT_MAINLINE;
    int64_t d_head = hp->d_nope + hp->d_rope, d_c = hp->kv_lora_rank;
    struct layout_key keys[N_LAYOUT_KEYS] = {
        {"attention.head_count_kv",     latent ? 1 : hp->n_heads,           0},
        { "attention.key_length",       latent ? d_c + hp->d_rope : d_head, 0},
        { "attention.value_length",     latent ? d_c : hp->d_v,             0},
        { "attention.key_length_mla",   latent ? d_head : 0,                0},
        { "attention.value_length_mla", latent ? hp->d_v : 0,               0},
    };
    char prefix[80];

    snprintf(prefix, sizeof prefix, "%s.", gguf_architecture(file));
    for (int i = 0; i < gguf_kv_count(file); i++) {
        const struct gguf_kv *kv = gguf_kv_at(file, i);
        int k = 0;
        while (k < N_LAYOUT_KEYS && !has_name(kv, prefix, keys[k].key))
            k++;
        if (k == N_LAYOUT_KEYS && !is_dropped(kv))
            gguf_write_kv(j->w, kv);
        /* value_length brings those along that the other layouts lack, as in converters' files */
        int last = k == VALUE_LENGTH ? N_LAYOUT_KEYS - 1 : k;
        for (; k <= last && k < N_LAYOUT_KEYS; k++)
            write_layout_key(j, prefix, &keys[k]);
    }
    for (int k = 0; k < N_LAYOUT_KEYS; k++)
        write_layout_key(j, prefix, &keys[k]);
}

/* ---- The file ----------------------------------------------------------- */

static enum err_code write_file(struct job *j, const char *path)
{
    enum err_code rc;

    TRY(gguf_writer_create(&j->w, path, j->e));
    write_keys(j);
    for (int i = 0; i < j->plan.n_pieces; i++) {
        const struct layout_piece *p = &j->plan.pieces[i];
        gguf_write_tensor(j->w, p->name, p->type, p->n_dims, p->dim);
    }
    rc = write_tensors(j);
    if (rc == ERR_OK)
        rc = gguf_writer_finish(&j->w, j->e);
    gguf_writer_abandon(&j->w);
    return rc;
}

static enum err_code convert(struct job *j, const char *in, const char *out)
{
    TRY(gguf_open(&j->m->gguf, in, 0, j->e));
    TRY(hparams_read(&j->m->hp, j->m->gguf, j->e));
    TRY(layout_plan_make(&j->plan, j->e));
    return write_file(j, out);
}

/* The new file takes the place of `out`, which must not be that of a device or folder. */
static enum err_code check_out(const char *out, unsigned flags, struct err *e)
{
    struct stat st;

    if (stat(out, &st)) /* created below, or told there why not */
        return ERR_OK;
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_USAGE, "%s: is not a regular file; give another name", out);
    if (!(flags & LAYOUT_OVERWRITE))
        return err_set(e, ERR_USAGE, "%s: exists already; give another name or --force", out);
    return ERR_OK;
}

enum err_code layout_convert(const char *in, const char *out, enum attn_layout to, unsigned flags,
                             struct err *e)
{
    struct job j = { .plan = { .to = to }, .e = e };
    enum err_code rc;

    TRY(check_out(out, flags, e));
    j.m = calloc(1, sizeof *j.m);
    if (!j.m)
        return err_set(e, ERR_NOMEM, "%s: no memory for a model", in);
    j.hp = &j.m->hp;
    j.plan.m = j.m;
    rc = convert(&j, in, out);
    for (int i = 0; i < j.plan.n_changes && rc == ERR_OK; i++)
        log_info("%d blocks: %s", j.plan.changes[i].n_blocks, j.plan.changes[i].text);
    layout_plan_free(&j.plan);
    free(j.rows);
    free(j.turned);
    free(j.bytes);
    model_close(&j.m);
    return rc;
}
