/* SPDX-License-Identifier: MIT */
#include "rank/load.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void load_list_add(struct load_list *l, struct load_job job)
{
    if (l->ignore || l->failed)
        return;
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 64;
        struct load_job *jobs = realloc(l->jobs, (size_t)cap * sizeof *jobs);
        if (!jobs) {
            l->failed = 1;
            return;
        }
        l->jobs = jobs;
        l->cap = cap;
    }
    l->jobs[l->n++] = job;
}

void load_list_free(struct load_list *l)
{
    free(l->jobs);
    *l = (struct load_list){ 0 };
}

/* ---- Units of work ------------------------------------------------------ */

/* What a thread's buffers take, by the plan, unless a few rows are more than that. */
enum { STAGING_BYTES = 4 << 20 };

/* Units of each thread that are asked for before they are needed. */
enum { AHEAD = 4 };

/* Rows or slabs [begin, end) of a job: groups of one slab for a packed matrix, slabs for a
 * transposed one, rows otherwise. */
struct unit {
    const struct load_job *job;
    int slab;
    int64_t begin, end;
};

struct loader {
    const struct model *model;
    int check_values;
    struct unit *units;
    int64_t n_units;
    size_t staging_bytes; /* per thread */
    atomic_llong next, bytes_read;
    atomic_int failed;
    struct err *errs; /* [n_threads] */
    struct comm *comm;
};

/* Columns of the file that a job takes. */
static int64_t job_columns(const struct load_job *job)
{
    return job->to.data && !job->transpose ? job->to.cols : job->tensor->dim[0];
}

/* A row of them, once it is plain. */
static size_t job_row_bytes(const struct load_job *job)
{
    return quant_row_bytes(quant_info[job->tensor->type].plain, (size_t)job_columns(job));
}

/* The first row in the file of a job's slab. */
static int64_t job_first_row(const struct load_job *job, int slab)
{
    int64_t from = job->src_slabs ? job->src_slabs[slab] : slab;

    return from * job->src_stride + job->src_first;
}

/* How a job is cut: the number of items per slab, of slabs, and of items in a unit. */
static void job_cut(const struct load_job *job, int64_t *items, int *slabs, int64_t *per_unit)
{
    /* Interleaved rows are there twice while they are taken apart. */
    size_t room = STAGING_BYTES / (quant_info[job->tensor->type].interleave > 1 ? 2 : 1);
    int64_t groups = (int64_t)(room / job_row_bytes(job) / PACK_ROWS);

    groups = groups ? groups : 1;
    *slabs = 1;
    *per_unit = groups;
    if (job->vector) {
        *items = 1;
    } else if (job->rows) {
        *items = job->tensor->dim[1];
        *per_unit = groups * PACK_ROWS;
    } else if (job->transpose) {
        *slabs = job->to.n_slabs;
        *items = 1;
    } else {
        *slabs = job->to.n_slabs;
        *items = job->to.n_groups;
    }
}

/* Staging that one unit of the job needs. */
static size_t job_staging(const struct load_job *job, int64_t per_unit)
{
    size_t row = job_row_bytes(job);

    if (job->vector || job->rows)
        return row;
    if (job->transpose) {
        size_t cols = (size_t)job->to.cols, values = (size_t)job->to.rows * cols;
        return arena_round(cols * row) + (values + PACK_ROWS * cols) * sizeof(float);
    }
    return (size_t)per_unit * PACK_ROWS * row;
}

static enum err_code cut_units(struct loader *l, const struct load_list *list, struct err *e)
{
    for (int pass = 0; pass < 2; pass++) {
        int64_t n = 0;
        for (int j = 0; j < list->n; j++) {
            int64_t items, per_unit;
            int slabs;
            job_cut(&list->jobs[j], &items, &slabs, &per_unit);
            size_t staging = job_staging(&list->jobs[j], per_unit);
            if (staging > l->staging_bytes)
                l->staging_bytes = staging;
            for (int s = 0; s < slabs; s++)
                for (int64_t i = 0; i < items; i += per_unit, n++)
                    if (pass)
                        l->units[n] = (struct unit){ &list->jobs[j], s, i,
                                                     i + per_unit < items ? i + per_unit : items };
        }
        l->n_units = n;
        if (!pass && !(l->units = calloc((size_t)n + 1, sizeof *l->units)))
            return err_set(e, ERR_NOMEM, "no memory for the load list");
    }
    return ERR_OK;
}

/* ---- One unit ----------------------------------------------------------- */

static enum err_code load_packed(const struct loader *l, const struct unit *u, uint8_t *staging,
                                 struct err *e)
{
    const struct matrix *to = &u->job->to;
    size_t row = job_row_bytes(u->job);
    int64_t first = u->begin * PACK_ROWS;
    int64_t end = u->end * PACK_ROWS < to->rows ? u->end * PACK_ROWS : to->rows;

    TRY(model_read_columns(l->model, u->job->tensor, job_first_row(u->job, u->slab) + first,
                           end - first, u->job->src_col, to->cols, l->check_values, staging, e));
    for (int64_t g = u->begin; g < u->end; g++) {
        int64_t r = g * PACK_ROWS;
        int n = end - r < PACK_ROWS ? (int)(end - r) : PACK_ROWS;
        pack_group(to->type, staging + (size_t)(r - first) * row, row, n, to->cols,
                   (uint8_t *)matrix_group(to, u->slab, g));
    }
    return ERR_OK;
}

static void store_float(enum quant type, uint8_t *row, int64_t i, float v)
{
    if (type == QUANT_F32)
        ((float *)(void *)row)[i] = v;
    else
        ((uint16_t *)(void *)row)[i] = type == QUANT_F16 ? half_from_float(v) : bf16_from_float(v);
}

/* One head: to.cols rows of the file become the columns of to.rows rows.
 * staging: the file's rows, the same as f32, and one group of finished rows. */
static enum err_code load_transposed(const struct loader *l, const struct unit *u, uint8_t *staging,
                                     struct err *e)
{
    const struct matrix *to = &u->job->to;
    enum quant from_type = quant_info[u->job->tensor->type].plain;
    size_t in_row = job_row_bytes(u->job);
    size_t out_row = quant_row_bytes(to->type, (size_t)to->cols);
    float *values = (float *)(void *)(staging + arena_round((size_t)to->cols * in_row));
    uint8_t *rows = (uint8_t *)(values + to->rows * to->cols);

    TRY(model_read_rows(l->model, u->job->tensor, job_first_row(u->job, u->slab), to->cols,
                        l->check_values, staging, e));
    for (int64_t i = 0; i < to->cols; i++)
        quant_dequantize_row(from_type, staging + (size_t)i * in_row, to->rows,
                             values + i * to->rows);
    for (int64_t g = 0; g < to->n_groups; g++) {
        int n = 0;
        for (int64_t r = g * PACK_ROWS; r < to->rows && n < PACK_ROWS; r++, n++)
            for (int64_t i = 0; i < to->cols; i++)
                store_float(to->type, rows + (size_t)n * out_row, i, values[i * to->rows + r]);
        pack_group(to->type, rows, out_row, n, to->cols, (uint8_t *)matrix_group(to, u->slab, g));
    }
    return ERR_OK;
}

static enum err_code load_unit(const struct loader *l, const struct unit *u, uint8_t *staging,
                               struct err *e)
{
    const struct load_job *job = u->job;

    if (job->vector) {
        if (l->check_values)
            TRY(model_read_rows(l->model, job->tensor, 0, 1, 1, staging, e));
        return model_read_floats(l->model, job->tensor, 0, 1, job->vector, e);
    }
    if (job->rows)
        return model_read_rows(l->model, job->tensor, u->begin, u->end - u->begin, l->check_values,
                               job->rows + (size_t)u->begin * job_row_bytes(job), e);
    if (job->transpose)
        return load_transposed(l, u, staging, e);
    return load_packed(l, u, staging, e);
}

/* What load_unit takes from the file. */
static int64_t unit_file_bytes(const struct unit *u)
{
    const struct load_job *job = u->job;
    int64_t rows = job->vector      ? 1
                   : job->rows      ? u->end - u->begin
                   : job->transpose ? job->to.cols
                                    : (u->end - u->begin) * PACK_ROWS;

    if (job->to.data && !job->transpose && u->end == job->to.n_groups)
        rows -= job->to.n_groups * PACK_ROWS - job->to.rows;
    return rows * (int64_t)quant_row_bytes(job->tensor->type, (size_t)job_columns(job));
}

/* Asks for a unit that will be loaded soon, so that the disk is busy while threads pack.  Parts of
 * rows are left out: what lies between them belongs to other ranks. */
static void expect_unit(const struct loader *l, const struct unit *u)
{
    const struct load_job *job = u->job;
    uint64_t row = quant_row_bytes(job->tensor->type, (size_t)job->tensor->dim[0]);
    int64_t first = job->rows ? u->begin : job_first_row(job, u->slab);

    if (job->vector || job_columns(job) != job->tensor->dim[0])
        return;
    if (job->to.data && !job->transpose)
        first += u->begin * PACK_ROWS;
    gguf_will_read(l->model->gguf, job->tensor, (uint64_t)first * row,
                   (uint64_t)unit_file_bytes(u));
}

static void load_thread(void *arg, int thread, int n_threads)
{
    struct loader *l = arg;
    struct err *e = &l->errs[thread];
    uint8_t *staging = aligned_alloc(ARENA_ALIGN, arena_round(l->staging_bytes) + ARENA_ALIGN);

    if (!staging) {
        err_set(e, ERR_NOMEM, "no memory for %zu bytes of staging", l->staging_bytes);
        atomic_store(&l->failed, 1);
    }
    while (staging && !atomic_load(&l->failed)) {
        int64_t i = atomic_fetch_add(&l->next, 1);
        if (i >= l->n_units)
            break;
        if (i + AHEAD * n_threads < l->n_units)
            expect_unit(l, &l->units[i + AHEAD * n_threads]);
        if (load_unit(l, &l->units[i], staging, e) != ERR_OK)
            atomic_store(&l->failed, 1);
        int64_t bytes = unit_file_bytes(&l->units[i]);
        atomic_fetch_add(&l->bytes_read, bytes);
        if (l->comm)
            comm_add(l->comm, COMM_LOADED, bytes);
    }
    free(staging);
}

/* Says how much there is to read. */
static void announce(const struct loader *l)
{
    int64_t bytes = 0;

    for (int64_t i = 0; i < l->n_units; i++)
        bytes += unit_file_bytes(&l->units[i]);
    if (l->comm)
        comm_add(l->comm, COMM_TO_LOAD, bytes);
}

enum err_code load_run(const struct load_list *list, const struct model *m, const struct team *team,
                       const struct load_options *opt, int64_t *bytes_read, struct err *e)
{
    struct loader l = { .model = m, .check_values = opt->check_values, .comm = opt->comm };
    enum err_code rc;

    if (list->failed)
        return err_set(e, ERR_NOMEM, "no memory for the load list");
    if ((rc = cut_units(&l, list, e)) != ERR_OK)
        goto out;
    l.errs = calloc((size_t)team->n_threads, sizeof *l.errs);
    if (!l.errs) {
        rc = err_set(e, ERR_NOMEM, "no memory for the load list");
        goto out;
    }
    announce(&l);
    team_run(team, load_thread, &l);
    for (int t = 0; t < team->n_threads && rc == ERR_OK; t++)
        if (l.errs[t].code != ERR_OK)
            rc = err_set(e, l.errs[t].code, "%s", l.errs[t].msg);
    *bytes_read = atomic_load(&l.bytes_read);
out:
    free(l.errs);
    free(l.units);
    return rc;
}
