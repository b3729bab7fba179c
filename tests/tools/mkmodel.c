/* SPDX-License-Identifier: MIT */
/* tests/tools/mkmodel.c - writes a synthetic model of any shape and type mix.
 *
 * The file is complete: every key that readers ask for, a tokenizer, random weights that
 * keep activations finite.  Shapes are those of shapes.def, each number adjustable, so a
 * few layers of a large model make a benchmark that fits in memory.
 *
 * Reading order: options; the type of a tensor; writing.
 */
#include <fnmatch.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tests/support/sheet.h"
#include "tests/tools/filler_vocab.h"
#include "tests/tools/random_weights.h"

enum { MAX_RULES = 16, CHUNK_BYTES = 1 << 20 }; /* a chunk is this and a row */

struct job {
    struct shape shape;
    enum attn_layout layout;
    enum quant type, small_type, embedding_type, output_type; /* QUANT_COUNT: not given */
    struct {
        const char *pattern; /* fnmatch(3) on the tensor's name */
        enum quant type;
    } rules[MAX_RULES];
    int n_rules;
    uint64_t seed;
    int header_only;
    const char *path;
};

/* ---- Options ------------------------------------------------------------ */

static const char usage[] =
    "usage: mkmodel [options] OUT.gguf\n"
    "  --preset NAME      v2-lite, v2, v3, kimi, glm-flash, ... (default tiny-v3)\n"
    "  --layers N --dense N --vocab N --context N\n"
    "  --d-model N --heads N --q-lora N --kv-lora N --d-nope N --d-rope N --d-v N\n"
    "  --d-ffn N --experts N --used N --shared N --d-expert N --groups N --groups-used N\n"
    "  --layout legacy|ik|mainline  (default mainline; ik: three tensors that do not belong\n"
    "                     together, convert a mainline file for those that do)\n"
    "  --type T           of matrices              (default Q4_K)\n"
    "  --small-type T     where the width of a row does not divide by T's block (Q8_0)\n"
    "  --embedding-type T --output-type T          (default Q8_0 and Q6_K, if T is no larger)\n"
    "  --tensor GLOB=T    of the tensors whose names match; the last one decides\n"
    "  --seed N           (default 1)\n"
    "  --header           stop where the weights would begin, no tokenizer\n";

/* Numbers of a shape that options set. */
static const struct {
    const char *name;
    size_t offset;
    int is_int; /* otherwise int64_t */
} numbers[] = {
#define INT(name, field)                       \
    {                                          \
        name, offsetof(struct shape, field), 1 \
    }
#define WIDE(name, field)                      \
    {                                          \
        name, offsetof(struct shape, field), 0 \
    }
    INT("layers", n_layers),    INT("dense", n_dense),    WIDE("vocab", n_vocab),
    WIDE("context", context),   WIDE("d-model", d_model), INT("heads", n_heads),
    WIDE("q-lora", q_lora),     WIDE("kv-lora", kv_lora), WIDE("d-nope", d_nope),
    WIDE("d-rope", d_rope),     WIDE("d-v", d_v),         WIDE("d-ffn", d_ffn),
    INT("experts", n_experts),  INT("used", n_used),      INT("shared", n_shared),
    WIDE("d-expert", d_expert), INT("groups", n_groups),  INT("groups-used", n_groups_used),
#undef INT
#undef WIDE
};
enum { N_NUMBERS = sizeof numbers / sizeof numbers[0] };

enum {
    OPT_PRESET = N_NUMBERS,
    OPT_LAYOUT,
    OPT_TYPE,
    OPT_SMALL,
    OPT_EMBEDDING,
    OPT_OUTPUT,
    OPT_TENSOR,
    OPT_SEED,
    OPT_HEADER,
    N_OPTIONS
};

static void build_options(struct option options[N_OPTIONS + 1])
{
    static const char *const others[N_OPTIONS - N_NUMBERS] = {
        "preset",      "layout", "type", "small-type", "embedding-type",
        "output-type", "tensor", "seed", "header"
    };

    memset(options, 0, (N_OPTIONS + 1) * sizeof *options);
    for (int i = 0; i < N_OPTIONS; i++) {
        options[i].name = i < N_NUMBERS ? numbers[i].name : others[i - N_NUMBERS];
        options[i].has_arg = i == OPT_HEADER ? no_argument : required_argument;
        options[i].val = i;
    }
}

static enum err_code find_preset(struct job *job, const char *name, struct err *e)
{
    static const char *const ids[] = {
#define X(id, ...) #id,
#include "tests/support/shapes.def"
#undef X
    };
    char id[32];

    (void)snprintf(id, sizeof id, "%s", name);
    for (char *c = id; *c; c++)
        if (*c == '-')
            *c = '_';
    for (int i = 0; i < SHAPE_COUNT; i++)
        if (strcmp(id, ids[i]) == 0) {
            job->shape = shapes[i];
            return ERR_OK;
        }
    return err_set(e, ERR_USAGE, "--preset %s: no such preset; see shapes.def", name);
}

static enum err_code find_type(enum quant *out, const char *name, struct err *e)
{
    enum quant t = quant_by_name(name);

    if (t == QUANT_COUNT || !random_weights_knows(t))
        return err_set(e, ERR_USAGE, "type %s: not one that can be filled with random weights",
                       name);
    *out = t;
    return ERR_OK;
}

static enum err_code find_layout(struct job *job, const char *name, struct err *e)
{
    for (int l = LAYOUT_LEGACY; l <= LAYOUT_MAINLINE; l++)
        if (strcmp(name, attn_layout_name((enum attn_layout)l)) == 0) {
            job->layout = (enum attn_layout)l;
            return ERR_OK;
        }
    return err_set(e, ERR_USAGE, "--layout %s: legacy, ik or mainline", name);
}

static enum err_code add_rule(struct job *job, char *text, struct err *e)
{
    char *equals = strrchr(text, '=');

    if (!equals || job->n_rules == MAX_RULES)
        return err_set(e, ERR_USAGE, "--tensor %s: GLOB=TYPE, at most %d of them", text, MAX_RULES);
    *equals = '\0';
    job->rules[job->n_rules].pattern = text;
    return find_type(&job->rules[job->n_rules++].type, equals + 1, e);
}

static enum err_code read_number(const char *name, const char *text, int64_t *out, struct err *e)
{
    char *end;

    *out = strtoll(text, &end, 10);
    if (end == text || *end || *out < 0 || *out > INT32_MAX)
        return err_set(e, ERR_USAGE, "--%s %s: not a number from 0 to 2^31 - 1", name, text);
    return ERR_OK;
}

static enum err_code set_number(struct shape *shape, int i, const char *text, struct err *e)
{
    char *field = (char *)shape + numbers[i].offset;
    int64_t v;
    int narrow;

    TRY(read_number(numbers[i].name, text, &v, e));
    narrow = (int)v;
    if (numbers[i].is_int)
        memcpy(field, &narrow, sizeof narrow);
    else
        memcpy(field, &v, sizeof v);
    return ERR_OK;
}

static enum err_code take_option(struct job *job, int option, char *text, struct err *e)
{
    int64_t seed;

    switch (option) {
    case OPT_PRESET: /* was read before all others */
        return ERR_OK;
    case OPT_LAYOUT:
        return find_layout(job, text, e);
    case OPT_TYPE:
        return find_type(&job->type, text, e);
    case OPT_SMALL:
        return find_type(&job->small_type, text, e);
    case OPT_EMBEDDING:
        return find_type(&job->embedding_type, text, e);
    case OPT_OUTPUT:
        return find_type(&job->output_type, text, e);
    case OPT_TENSOR:
        return add_rule(job, text, e);
    case OPT_SEED:
        TRY(read_number("seed", text, &seed, e));
        job->seed = (uint64_t)seed;
        return ERR_OK;
    case OPT_HEADER:
        job->header_only = 1;
        return ERR_OK;
    default:
        return option >= 0 && option < N_NUMBERS ? set_number(&job->shape, option, text, e)
                                                 : err_set(e, ERR_USAGE, "unknown option");
    }
}

static enum err_code check_job(struct job *job, struct err *e)
{
    struct shape *s = &job->shape;

    if (s->n_dense > s->n_layers)
        s->n_dense = s->n_layers;
    if (s->n_layers < 1 || s->d_model < 1 || s->n_heads < 1 || s->kv_lora < 1 || s->d_nope < 1 ||
        s->d_rope < 1 || s->d_v < 1 || s->d_ffn < 1 || s->d_expert < 1 || s->n_experts < 1)
        return err_set(e, ERR_USAGE, "the shape has a width of 0");
    if (s->n_vocab < FILLER_VOCAB_MIN)
        return err_set(e, ERR_USAGE, "--vocab: at least %d", FILLER_VOCAB_MIN);
    return ERR_OK;
}

static enum err_code read_options(struct job *job, int argc, char **argv, struct err *e)
{
    struct option options[N_OPTIONS + 1];
    int option;

    build_options(options);
    job->shape = shapes[SHAPE_tiny_v3];
    for (opterr = 0; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (option == OPT_PRESET)
            TRY(find_preset(job, optarg, e));
    for (optind = 0; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        TRY(take_option(job, option, optarg, e));
    if (optind + 1 != argc)
        return err_set(e, ERR_USAGE, "one output file is needed");
    job->path = argv[optind];
    return check_job(job, e);
}

/* ---- Types -------------------------------------------------------------- */

static double bits_per_weight(enum quant t)
{
    return 8.0 * quant_info[t].bytes / quant_info[t].values;
}

/* What a quantiser does: large tables get more bits than small matrices. */
static enum quant at_least(enum quant given, enum quant usual, enum quant t)
{
    if (given != QUANT_COUNT)
        return given;
    return bits_per_weight(t) < bits_per_weight(usual) ? usual : t;
}

static enum quant choose_type(const struct job *job, const struct sheet_tensor *t)
{
    enum quant type = job->type;

    if (t->n_dims == 1 || strstr(t->name, "ffn_gate_inp"))
        return QUANT_F32;
    if (strcmp(t->name, "token_embd.weight") == 0)
        type = at_least(job->embedding_type, QUANT_Q8_0, type);
    else if (strcmp(t->name, "output.weight") == 0)
        type = at_least(job->output_type, QUANT_Q6_K, type);
    for (int i = 0; i < job->n_rules; i++)
        if (fnmatch(job->rules[i].pattern, t->name, 0) == 0)
            type = job->rules[i].type;
    if (t->dim[0] % quant_info[type].values != 0)
        type = job->small_type;
    return t->dim[0] % quant_info[type].values != 0 ? QUANT_F16 : type;
}

/* ---- Writing ------------------------------------------------------------ */

static void write_keys(struct gguf_writer *w, const struct sheet *s)
{
    for (int i = 0; i < s->n_keys; i++) {
        const struct sheet_key *k = &s->keys[i];
        if (k->type == GGUF_STRING)
            gguf_write_string(w, k->name, k->text, strlen(k->text));
        else if (k->type == GGUF_F32)
            gguf_write_f32(w, k->name, k->real);
        else if (k->type == GGUF_BOOL)
            gguf_write_bool(w, k->name, (int)k->integer);
        else
            gguf_write_u32(w, k->name, k->integer);
    }
    gguf_write_u32(w, "general.quantization_version", 2);
}

/* Norms are random around 1, the router's bias around 0. */
static void write_vector(struct gguf_writer *w, const struct sheet_tensor *t, uint64_t seed)
{
    struct random_weights r;
    int is_bias = strstr(t->name, "exp_probs_b") != NULL;

    random_weights_start(&r, seed, t->name, QUANT_F32, is_bias ? 1024 : 16);
    r.n = 1;
    for (int64_t i = 0; i < t->dim[0]; i++) {
        float v;
        random_weights_fill(&r, 1, (uint8_t *)&v);
        v += is_bias ? 0 : 1;
        gguf_write_data(w, &v, sizeof v);
    }
}

static void write_matrix(struct gguf_writer *w, const struct sheet_tensor *t, uint64_t seed,
                         uint8_t *chunk, struct progress *p)
{
    size_t row_bytes = quant_row_bytes(t->type, (size_t)t->dim[0]);
    int64_t rows = t->dim[1] * (t->n_dims > 2 ? t->dim[2] : 1);
    int64_t step = (int64_t)(CHUNK_BYTES / row_bytes) + 1;
    struct random_weights r;

    random_weights_start(&r, seed, t->name, t->type, t->dim[0]);
    for (int64_t row = 0; row < rows; row += step) {
        int64_t n = rows - row < step ? rows - row : step;
        random_weights_fill(&r, n, chunk);
        gguf_write_data(w, chunk, (uint64_t)n * row_bytes);
        progress_update(p, p->done + n * (int64_t)row_bytes);
    }
}

static int64_t total_bytes(const struct sheet *s)
{
    int64_t total = 0;

    for (int i = 0; i < s->n_tensors; i++) {
        const struct sheet_tensor *t = &s->tensors[i];
        if (t->n_dims > 1)
            total += (int64_t)quant_row_bytes(t->type, (size_t)t->dim[0]) * t->dim[1] *
                     (t->n_dims > 2 ? t->dim[2] : 1);
    }
    return total;
}

static enum err_code write_model(const struct job *job, const struct sheet *s, uint8_t *chunk,
                                 struct err *e)
{
    struct gguf_writer *w = NULL;
    struct progress p;
    double started = clock_seconds(), seconds;
    enum err_code rc;

    TRY(gguf_writer_create(&w, job->path, e));
    write_keys(w, s);
    rc = filler_vocab_write(w, (int)job->shape.n_vocab, e);
    if (rc != ERR_OK) {
        gguf_writer_abandon(&w);
        return rc;
    }
    for (int i = 0; i < s->n_tensors; i++)
        gguf_write_tensor(w, s->tensors[i].name, s->tensors[i].type, s->tensors[i].n_dims,
                          s->tensors[i].dim);
    progress_start(&p, "writing", total_bytes(s));
    for (int i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].n_dims == 1)
            write_vector(w, &s->tensors[i], job->seed);
        else
            write_matrix(w, &s->tensors[i], job->seed, chunk, &p);
    progress_end(&p);
    TRY(gguf_writer_finish(&w, e));
    seconds = clock_seconds() - started;
    log_info("%s: %.2f GB in %.1f s, %.2f GB/s", job->path, (double)p.total / 1e9, seconds,
             (double)p.total / 1e9 / seconds);
    return ERR_OK;
}

static enum err_code make(const struct job *job, struct err *e)
{
    size_t longest_row = 0;
    struct sheet s;
    uint8_t *chunk;
    enum err_code rc = ERR_OK;

    sheet_make(&s, &job->shape, job->layout);
    for (int i = 0; i < s.n_tensors; i++) {
        struct sheet_tensor *t = &s.tensors[i];
        size_t row_bytes;
        t->type = choose_type(job, t);
        row_bytes = quant_row_bytes(t->type, (size_t)t->dim[0]);
        longest_row = row_bytes > longest_row ? row_bytes : longest_row;
    }
    chunk = malloc(CHUNK_BYTES + longest_row);
    if (!chunk)
        rc = err_set(e, ERR_NOMEM, "no memory");
    else if (job->header_only)
        sheet_write_header(&s, job->path);
    else
        rc = write_model(job, &s, chunk, e);
    sheet_free(&s);
    free(chunk);
    return rc;
}

int main(int argc, char **argv)
{
    struct job job = { .layout = LAYOUT_MAINLINE,
                       .type = QUANT_Q4_K,
                       .small_type = QUANT_Q8_0,
                       .embedding_type = QUANT_COUNT,
                       .output_type = QUANT_COUNT,
                       .seed = 1 };
    struct err e = { 0 };

    log_set_program("mkmodel");
    if (read_options(&job, argc, argv, &e) != ERR_OK) {
        log_error("%s", e.msg);
        (void)fputs(usage, stderr);
        return 2;
    }
    if (make(&job, &e) != ERR_OK) {
        log_error("%s", e.msg);
        return 1;
    }
    return 0;
}
