/* SPDX-License-Identifier: MIT */
#include "tests/support/replay.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "placement/rules.h"
#include "tests/support/sheet.h"
#include "tests/support/temp_dir.h"

static void die(const struct replay_row *row, const char *what)
{
    fprintf(stderr, "replay, row %d: %s\n", row->number, what);
    exit(1);
}

/* ---- The file ---------------------------------------------------------------------- */

static enum quant type_of(const struct replay_row *row, const char *name)
{
    char types[3][20];

    if (sscanf(row->types, "%19[^/]/%19[^/]/%19s", types[0], types[1], types[2]) != 3)
        die(row, "types are no three names");
    int which = !fnmatch("*ffn_down_exps*", name, 0) ? 1 : !fnmatch("*_exps*", name, 0) ? 0 : 2;
    enum quant t = quant_by_name(types[which]);
    if (t == QUANT_COUNT)
        die(row, "unknown type");
    return t;
}

static void write_header(struct replay_row *row, const char *path)
{
    enum shape_id id = !strcmp(row->model, "kimi") ? SHAPE_kimi
                       : !strcmp(row->model, "r1") ? SHAPE_r1
                                                   : SHAPE_v3;
    struct sheet s;

    sheet_make(&s, &shapes[id], LAYOUT_MAINLINE);
    for (int i = 0; i < s.n_tensors; i++) {
        struct sheet_tensor *t = &s.tensors[i];
        if (t->type != QUANT_F16)
            continue;
        t->type = type_of(row, t->name);
        if (t->dim[0] % (int64_t)quant_info[t->type].values != 0)
            t->type = QUANT_Q8_0;
        double rows = (double)t->dim[1] * (double)(t->n_dims > 2 ? t->dim[2] : 1);
        row->file_gigabytes += 1e-9 * rows * (double)quant_row_bytes(t->type, (size_t)t->dim[0]);
    }
    sheet_write_header(&s, path);
    sheet_free(&s);
}

/* ---- The plan ------------------------------------------------------------------------ */

static void plan_row(struct replay_row *row)
{
    static const char path[] = "replay.gguf";
    struct err e = { 0 };

    write_header(row, path);
    if (model_open(&row->model_open, path, GGUF_HEADERS_ONLY, NULL, 0, &e) != ERR_OK ||
        inventory_read(&row->inventory, row->devices, &e) != ERR_OK ||
        (*row->rules && rules_add_text(&row->rules_read, "-ot", row->rules, &e) != ERR_OK))
        die(row, e.msg);
    int n = gguf_tensor_count(row->model_open->gguf);
    row->names = calloc((size_t)n, sizeof *row->names);
    if (!row->names)
        die(row, "no memory");
    for (int i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(row->model_open->gguf, i);
        row->names[i] = (struct named_tensor){ t->name, (int64_t)t->bytes };
    }
    if (match_rules(&row->match, &row->rules_read, row->names, n, &row->findings, &e) != ERR_OK)
        die(row, e.msg);
    struct plan_input in = {
        .model = row->model_open,
        .inventory = &row->inventory,
        .rules = &row->rules_read,
        .match = &row->match,
        .opt = {.n_context = 4096,
                .n_sequences = 1,
                .ubatch = 512,
                .amb_mib = 256,
                .batch = 1,
                .depth = 1024}
    };
    if (plan_make_at(&row->plan, &in, 4096, &row->findings, &e) != ERR_OK)
        die(row, e.msg);
    if (findings_count(&row->findings, FINDING_ERROR, -1) > 0)
        die(row, "a rule of it is wrong");
}

/* ---- The table ------------------------------------------------------------------------- */

static void read_row(struct replay_row *row, char *line)
{
    char *field[10];

    for (int i = 0; i < 10; i++) {
        field[i] = strsep(&line, "\t");
        if (!field[i])
            die(row, "fewer than ten fields");
    }
    row->number = atoi(field[0]);
    snprintf(row->engine, sizeof row->engine, "%s", field[1]);
    snprintf(row->model, sizeof row->model, "%s", field[2]);
    row->gigabytes = atof(field[3]);
    snprintf(row->types, sizeof row->types, "%s", field[4]);
    snprintf(row->devices, sizeof row->devices, "%s", field[5]);
    snprintf(row->rules, sizeof row->rules, "%s", field[6]);
    row->tps = atof(field[7]);
    row->pp = atof(field[8]);
    snprintf(row->source, sizeof row->source, "%s", field[9]);
}

void replay_open(struct replay *r, const char *tsv)
{
    char line[2048];
    FILE *f = fopen(tsv, "r");

    *r = (struct replay){ .rows = calloc(REPLAY_MAX_ROWS, sizeof *r->rows) };
    if (!f || !r->rows || temp_dir_enter(NULL) != 0) {
        fprintf(stderr, "replay: %s cannot be read, or there is no temporary folder\n", tsv);
        exit(1);
    }
    while (r->n < REPLAY_MAX_ROWS && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (*line == '#' || !*line)
            continue;
        read_row(&r->rows[r->n], line);
        plan_row(&r->rows[r->n++]);
    }
    fclose(f);
    temp_dir_remove(NULL);
}

void replay_close(struct replay *r)
{
    for (int i = 0; i < r->n; i++) {
        struct replay_row *row = &r->rows[i];
        plan_free(&row->plan);
        findings_free(&row->findings);
        match_free(&row->match);
        rules_free(&row->rules_read);
        inventory_free(&row->inventory);
        free(row->names);
        model_close(&row->model_open);
    }
    free(r->rows);
    *r = (struct replay){ 0 };
}

double replay_tps(struct replay_row *row, const struct efficiency *x)
{
    struct err e = { 0 };

    if (cost_predict(&row->plan, x, &e) != ERR_OK)
        die(row, e.msg);
    return row->plan.predict.decode_tps;
}
