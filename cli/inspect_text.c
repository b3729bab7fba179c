/* SPDX-License-Identifier: MIT */
/* cli/inspect_text.c - the page that `latent inspect` prints for people. */
#include "cli/inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/json_out.h"

enum { VALUE_MAX = 60, KEY_WIDTH = 40 };

void inspect_count_types(const struct gguf *g, struct type_total totals[QUANT_COUNT])
{
    memset(totals, 0, QUANT_COUNT * sizeof *totals);
    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        totals[t->type].bytes += t->bytes;
        totals[t->type].n_tensors++;
    }
}

/* ---- Values --------------------------------------------------------------- */

static const char *gguf_type_name(enum gguf_type t)
{
    static const char *const names[] = {
        [GGUF_U8] = "u8",   [GGUF_I8] = "i8",       [GGUF_U16] = "u16",     [GGUF_I16] = "i16",
        [GGUF_U32] = "u32", [GGUF_I32] = "i32",     [GGUF_F32] = "f32",     [GGUF_BOOL] = "bool",
        [GGUF_U64] = "u64", [GGUF_STRING] = "text", [GGUF_ARRAY] = "array", [GGUF_I64] = "i64",
        [GGUF_F64] = "f64",
    };
    return names[t];
}

void inspect_append_value(struct str *s, const struct gguf_value *v)
{
    struct gguf_string text;
    int64_t i;
    double d;
    int b;

    if (v->type == GGUF_ARRAY)
        str_printf(s, "%" PRIu64 " values of type %s", v->count, gguf_type_name(v->element));
    else if (gguf_as_string(v, &text) == 0)
        str_printable(s, text.data, text.len, VALUE_MAX);
    else if (v->type == GGUF_BOOL && gguf_as_bool(v, &b) == 0)
        str_puts(s, b ? "true" : "false");
    else if (gguf_as_i64(v, &i) == 0)
        str_printf(s, "%" PRId64, i);
    else if (gguf_as_f64(v, &d) == 0)
        str_printf(s, "%.9g", d);
    else
        str_printf(s, "a value of type %s", gguf_type_name(v->type));
}

/* ---- Sections ------------------------------------------------------------- */

static void print_bytes(uint64_t bytes)
{
    if (bytes >= 1000000000)
        printf("%.2f GB", (double)bytes / 1e9);
    else
        printf("%.2f MB", (double)bytes / 1e6);
}

static void print_head(const struct inspection *in)
{
    int parts = gguf_part_count(in->gguf);

    printf("file          %s (", in->path);
    print_bytes(gguf_total_bytes(in->gguf));
    if (parts > 1)
        printf(" in %d parts", parts);
    printf(")\narchitecture  %s\n", gguf_architecture(in->gguf));
    if (in->has_hparams)
        printf("layout        %s\n", attn_layout_name(in->hp.layout));
    printf("runs here     %s%s\n", in->unfit.code == ERR_OK ? "yes" : "no: ", in->unfit.msg);
}

static void print_hparams(const struct inspection *in)
{
    if (!in->has_hparams)
        return;
    printf("\nhyper-parameters\n");
    for (int i = 0; i < in->hp.n_notes; i++) {
        const struct hparam_note *n = &in->hp.notes[i];
        printf("  %-*s %-14s %s%s%s\n", KEY_WIDTH, n->key, n->value, hparam_source_name(n->source),
               *n->why ? ": " : "", n->why);
    }
}

/* Metadata that is not among the hyper-parameters. */
static void print_metadata(const struct inspection *in)
{
    const char *arch = gguf_architecture(in->gguf);
    size_t arch_len = strlen(arch);

    printf("\nmetadata\n");
    for (int i = 0; i < gguf_kv_count(in->gguf); i++) {
        const struct gguf_kv *kv = gguf_kv_at(in->gguf, i);
        struct str line = { 0 };
        if (in->has_hparams && kv->key.len > arch_len && kv->key.data[arch_len] == '.' &&
            memcmp(kv->key.data, arch, arch_len) == 0)
            continue;
        str_printable(&line, kv->key.data, kv->key.len, 100);
        if (line.len < KEY_WIDTH)
            str_printf(&line, "%*s", (int)(KEY_WIDTH - line.len), "");
        str_puts(&line, " ");
        inspect_append_value(&line, &kv->value);
        if (kv->overridden)
            str_puts(&line, " (overridden)");
        if (!line.failed)
            printf("  %s\n", line.data);
        str_free(&line);
    }
}

static void print_types(const struct gguf *g)
{
    struct type_total totals[QUANT_COUNT];

    if (gguf_tensor_count(g) == 0)
        return;
    inspect_count_types(g, totals);
    printf("\ntypes\n");
    for (int t = 0; t < QUANT_COUNT; t++) {
        if (totals[t].n_tensors == 0)
            continue;
        printf("  %-10s %5d tensors  ", quant_info[t].name, totals[t].n_tensors);
        print_bytes(totals[t].bytes);
        printf("\n");
    }
}

static void print_tensors(const struct gguf *g)
{
    printf("\ntensors\n");
    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct str name = { 0 };
        str_printable(&name, t->name, strlen(t->name), 200);
        if (!name.failed)
            printf("  %-*s %-8s [", KEY_WIDTH, name.data ? name.data : "",
                   quant_info[t->type].name);
        str_free(&name);
        for (int d = 0; d < t->n_dims; d++)
            printf("%s%" PRId64, d ? ", " : "", t->dim[d]);
        printf("]  %" PRIu64 " bytes\n", t->bytes);
    }
}

void inspect_print_text(const struct inspection *in, int with_tensors)
{
    print_head(in);
    print_hparams(in);
    print_metadata(in);
    print_types(in->gguf);
    if (with_tensors)
        print_tensors(in->gguf);
}
