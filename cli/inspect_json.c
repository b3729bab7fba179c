/* SPDX-License-Identifier: MIT */
/* cli/inspect_json.c - the object that `latent inspect --json` prints (docs/cli.md). */
#include "cli/inspect.h"

#include <math.h>
#include <string.h>

#include "cli/json_out.h"

/* "61" and "0.1" as numbers, "true" as a boolean, anything else as text. */
static json_t *json_note_value(const char *text)
{
    json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);

    if (j && (json_is_number(j) || json_is_boolean(j)))
        return j;
    json_decref(j);
    return json_text(text, strlen(text));
}

static json_t *json_value(const struct gguf_value *v)
{
    struct gguf_string text;
    struct str s = { 0 };
    int64_t i;
    double d;
    int b;

    if (gguf_as_string(v, &text) == 0)
        return json_text(text.data, text.len);
    if (v->type == GGUF_BOOL && gguf_as_bool(v, &b) == 0)
        return json_boolean(b);
    if (v->type != GGUF_ARRAY && gguf_as_i64(v, &i) == 0)
        return json_integer(i);
    if (v->type != GGUF_ARRAY && gguf_as_f64(v, &d) == 0 && isfinite(d))
        return json_real(d);
    inspect_append_value(&s, v);
    json_t *j = json_string(s.data ? s.data : "");
    str_free(&s);
    return j;
}

static json_t *json_hparams(const struct inspection *in)
{
    json_t *all = json_object();

    for (int i = 0; in->has_hparams && i < in->hp.n_notes; i++) {
        const struct hparam_note *n = &in->hp.notes[i];
        json_t *one = json_object();
        json_object_set_new(one, "value", json_note_value(n->value));
        json_object_set_new(one, "source", json_string(hparam_source_name(n->source)));
        if (*n->why)
            json_object_set_new(one, "why", json_string(n->why));
        json_object_set_new(all, n->key, one);
    }
    return all;
}

static json_t *json_metadata(const struct gguf *g)
{
    json_t *all = json_object();

    for (int i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        struct str key = { 0 };
        str_printable(&key, kv->key.data, kv->key.len, kv->key.len);
        json_object_set_new(all, key.data ? key.data : "", json_value(&kv->value));
        str_free(&key);
    }
    return all;
}

static json_t *json_types(const struct gguf *g)
{
    struct type_total totals[QUANT_COUNT];
    json_t *all = json_object();

    inspect_count_types(g, totals);
    for (int t = 0; t < QUANT_COUNT; t++)
        if (totals[t].n_tensors)
            json_object_set_new(all, quant_info[t].name,
                                json_pack("{s:i,s:I}", "tensors", totals[t].n_tensors, "bytes",
                                          (json_int_t)totals[t].bytes));
    return all;
}

static json_t *json_tensors(const struct gguf *g)
{
    json_t *all = json_array();

    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        json_t *one = json_object(), *shape = json_array();
        for (int d = 0; d < t->n_dims; d++)
            json_array_append_new(shape, json_integer(t->dim[d]));
        json_object_set_new(one, "name", json_text(t->name, strlen(t->name)));
        json_object_set_new(one, "type", json_string(quant_info[t->type].name));
        json_object_set_new(one, "shape", shape);
        json_object_set_new(one, "bytes", json_integer((json_int_t)t->bytes));
        json_array_append_new(all, one);
    }
    return all;
}

enum err_code inspect_print_json(const struct inspection *in, struct err *e)
{
    const char *arch = gguf_architecture(in->gguf);
    json_t *root = json_object();

    json_object_set_new(root, "file", json_text(in->path, strlen(in->path)));
    json_object_set_new(root, "parts", json_integer(gguf_part_count(in->gguf)));
    json_object_set_new(root, "bytes", json_integer((json_int_t)gguf_total_bytes(in->gguf)));
    json_object_set_new(root, "architecture", json_text(arch, strlen(arch)));
    json_object_set_new(root, "layout",
                        in->has_hparams ? json_string(attn_layout_name(in->hp.layout))
                                        : json_null());
    json_object_set_new(root, "refused",
                        in->unfit.code == ERR_OK ? json_null()
                                                 : json_text(in->unfit.msg, strlen(in->unfit.msg)));
    json_object_set_new(root, "hparams", json_hparams(in));
    json_object_set_new(root, "metadata", json_metadata(in->gguf));
    json_object_set_new(root, "types", json_types(in->gguf));
    json_object_set_new(root, "tensors", json_tensors(in->gguf));

    return json_print(root, e);
}
