/* SPDX-License-Identifier: MIT */
/* tests/support/sheet.c - see sheet.h.
 *
 * Reading order: lists that grow; keys; tensors of a block; the header.
 */
#include "tests/support/sheet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct shape shapes[SHAPE_COUNT] = {
#define X(id, ...) [SHAPE_##id] = { __VA_ARGS__, 512 },
#include "tests/support/shapes.def"
#undef X
};

static void die(const char *what)
{
    (void)fprintf(stderr, "sheet: %s\n", what);
    exit(1);
}

/* ---- Keys --------------------------------------------------------------- */

static void whole_name(char out[64], const char *key)
{
    int own = strncmp(key, "general.", 8) == 0 || strncmp(key, "tokenizer.", 10) == 0;
    (void)snprintf(out, 64, "%s%s", own ? "" : "deepseek2.", key);
}

static struct sheet_key *key_slot(struct sheet *s, const char *key)
{
    char name[64];

    whole_name(name, key);
    for (int i = 0; i < s->n_keys; i++)
        if (strcmp(s->keys[i].name, name) == 0)
            return &s->keys[i];
    s->keys = realloc(s->keys, (size_t)(s->n_keys + 1) * sizeof *s->keys);
    if (!s->keys)
        die("no memory");
    memset(&s->keys[s->n_keys], 0, sizeof *s->keys);
    memcpy(s->keys[s->n_keys].name, name, sizeof name);
    return &s->keys[s->n_keys++];
}

void sheet_set_int(struct sheet *s, const char *key, uint32_t v)
{
    struct sheet_key *k = key_slot(s, key);
    k->type = GGUF_U32;
    k->integer = v;
}

void sheet_set_real(struct sheet *s, const char *key, float v)
{
    struct sheet_key *k = key_slot(s, key);
    k->type = GGUF_F32;
    k->real = v;
}

void sheet_set_flag(struct sheet *s, const char *key, int v)
{
    struct sheet_key *k = key_slot(s, key);
    k->type = GGUF_BOOL;
    k->integer = (uint32_t)v;
}

void sheet_set_word(struct sheet *s, const char *key, const char *v)
{
    struct sheet_key *k = key_slot(s, key);
    k->type = GGUF_STRING;
    (void)snprintf(k->text, sizeof k->text, "%s", v);
}

void sheet_set_list(struct sheet *s, const char *key, const uint32_t *v, int n)
{
    struct sheet_key *k = key_slot(s, key);
    k->type = GGUF_ARRAY;
    k->n_list = n;
    memcpy(k->list, v, (size_t)n * sizeof *v);
}

void sheet_drop_key(struct sheet *s, const char *key)
{
    struct sheet_key *k = key_slot(s, key);
    *k = s->keys[--s->n_keys];
}

static void make_attention_keys(struct sheet *s, const struct shape *m, enum attn_layout layout)
{
    uint32_t d_head = (uint32_t)(m->d_nope + m->d_rope), d_v = (uint32_t)m->d_v;
    uint32_t d_c = (uint32_t)m->kv_lora, d_r = (uint32_t)m->d_rope;
    int mainline = layout == LAYOUT_MAINLINE;

    sheet_set_int(s, "attention.head_count", (uint32_t)m->n_heads);
    sheet_set_int(s, "attention.head_count_kv", mainline ? 1 : (uint32_t)m->n_heads);
    sheet_set_real(s, "attention.layer_norm_rms_epsilon", (float)m->eps);
    if (m->q_lora)
        sheet_set_int(s, "attention.q_lora_rank", (uint32_t)m->q_lora);
    sheet_set_int(s, "attention.kv_lora_rank", d_c);
    sheet_set_int(s, "attention.key_length", mainline ? d_c + d_r : d_head);
    sheet_set_int(s, "attention.value_length", mainline ? d_c : d_v);
    if (mainline) {
        sheet_set_int(s, "attention.key_length_mla", d_head);
        sheet_set_int(s, "attention.value_length_mla", d_v);
    }
    sheet_set_int(s, "rope.dimension_count", d_r);
    sheet_set_real(s, "rope.freq_base", (float)m->theta);
    if (m->yarn_factor != 0) {
        sheet_set_word(s, "rope.scaling.type", "yarn");
        sheet_set_real(s, "rope.scaling.factor", (float)m->yarn_factor);
        sheet_set_int(s, "rope.scaling.original_context_length", (uint32_t)m->yarn_context);
        sheet_set_real(s, "rope.scaling.yarn_log_multiplier", (float)m->yarn_log_mul);
    }
}

static void make_keys(struct sheet *s, const struct shape *m, enum attn_layout layout)
{
    sheet_set_word(s, "general.architecture", "deepseek2");
    sheet_set_word(s, "general.name", m->name);
    sheet_set_int(s, "block_count", (uint32_t)m->n_layers);
    sheet_set_int(s, "context_length", (uint32_t)m->context);
    sheet_set_int(s, "embedding_length", (uint32_t)m->d_model);
    sheet_set_int(s, "feed_forward_length", (uint32_t)m->d_ffn);
    sheet_set_int(s, "vocab_size", (uint32_t)m->n_vocab);
    sheet_set_int(s, "leading_dense_block_count", (uint32_t)m->n_dense);
    make_attention_keys(s, m, layout);
    sheet_set_int(s, "expert_count", (uint32_t)m->n_experts);
    sheet_set_int(s, "expert_used_count", (uint32_t)m->n_used);
    sheet_set_int(s, "expert_shared_count", (uint32_t)m->n_shared);
    sheet_set_int(s, "expert_feed_forward_length", (uint32_t)m->d_expert);
    sheet_set_int(s, "expert_gating_func", (uint32_t)m->gating);
    sheet_set_real(s, "expert_weights_scale", (float)m->scale);
    if (m->norm) /* as the converter: only where it is true */
        sheet_set_flag(s, "expert_weights_norm", 1);
    if (m->n_groups > 1) {
        sheet_set_int(s, "expert_group_count", (uint32_t)m->n_groups);
        sheet_set_int(s, "expert_group_used_count", (uint32_t)m->n_groups_used);
    }
}

/* ---- Tensors ------------------------------------------------------------ */

struct sheet_tensor *sheet_tensor(struct sheet *s, const char *name)
{
    for (int i = 0; i < s->n_tensors; i++)
        if (strcmp(s->tensors[i].name, name) == 0)
            return &s->tensors[i];
    return NULL;
}

void sheet_add_tensor(struct sheet *s, const char *name, enum quant type, int64_t d0, int64_t d1,
                      int64_t d2)
{
    struct sheet_tensor *t;

    if (s->n_tensors % 256 == 0)
        s->tensors = realloc(s->tensors, (size_t)(s->n_tensors + 256) * sizeof *t);
    if (!s->tensors)
        die("no memory");
    t = &s->tensors[s->n_tensors++];
    memset(t, 0, sizeof *t);
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    t->type = type;
    t->n_dims = d2 ? 3 : d1 ? 2 : 1;
    t->dim[0] = d0;
    t->dim[1] = d1;
    t->dim[2] = d2;
}

void sheet_drop_tensor(struct sheet *s, const char *name)
{
    struct sheet_tensor *t = sheet_tensor(s, name);

    if (!t)
        die("no such tensor to drop");
    memmove(t, t + 1, (size_t)(&s->tensors[--s->n_tensors] - t) * sizeof *t);
}

/* Appends blk.LAYER.NAME: a matrix in F16, or a vector (d1 0) in F32. */
static void add(struct sheet *s, int layer, const char *name, int64_t d0, int64_t d1, int64_t d2)
{
    char full[64];

    (void)snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    sheet_add_tensor(s, full, d1 ? QUANT_F16 : QUANT_F32, d0, d1, d2);
}

static void make_attention(struct sheet *s, const struct shape *m, enum attn_layout layout, int n)
{
    int64_t h = m->n_heads, q_width = h * (m->d_nope + m->d_rope), d_c = m->kv_lora;

    add(s, n, "attn_norm.weight", m->d_model, 0, 0);
    if (m->q_lora) {
        add(s, n, "attn_q_a.weight", m->d_model, m->q_lora, 0);
        add(s, n, "attn_q_a_norm.weight", m->q_lora, 0, 0);
        add(s, n, "attn_q_b.weight", m->q_lora, q_width, 0);
    } else {
        add(s, n, "attn_q.weight", m->d_model, q_width, 0);
    }
    add(s, n, "attn_kv_a_mqa.weight", m->d_model, d_c + m->d_rope, 0);
    add(s, n, "attn_kv_a_norm.weight", d_c, 0, 0);
    if (layout != LAYOUT_MAINLINE)
        add(s, n, "attn_kv_b.weight", d_c, h * (m->d_nope + m->d_v), 0);
    if (layout == LAYOUT_MAINLINE) {
        add(s, n, "attn_k_b.weight", m->d_nope, d_c, h);
        add(s, n, "attn_v_b.weight", d_c, m->d_v, h);
    } else if (layout == LAYOUT_IK) {
        add(s, n, "attn_k_b.weight", m->d_nope, d_c * h, 0);
        add(s, n, "attn_v_b.weight", d_c, m->d_v * h, 0);
    }
    add(s, n, "attn_output.weight", h * m->d_v, m->d_model, 0);
    add(s, n, "ffn_norm.weight", m->d_model, 0, 0);
}

static void make_ffn(struct sheet *s, const struct shape *m, int n)
{
    int64_t shared = m->n_shared * m->d_expert;

    if (n < m->n_dense) {
        add(s, n, "ffn_gate.weight", m->d_model, m->d_ffn, 0);
        add(s, n, "ffn_up.weight", m->d_model, m->d_ffn, 0);
        add(s, n, "ffn_down.weight", m->d_ffn, m->d_model, 0);
        return;
    }
    add(s, n, "ffn_gate_inp.weight", m->d_model, m->n_experts, 0);
    s->tensors[s->n_tensors - 1].type = QUANT_F32;
    if (m->has_bias)
        add(s, n, "exp_probs_b.bias", m->n_experts, 0, 0);
    add(s, n, "ffn_gate_exps.weight", m->d_model, m->d_expert, m->n_experts);
    add(s, n, "ffn_up_exps.weight", m->d_model, m->d_expert, m->n_experts);
    add(s, n, "ffn_down_exps.weight", m->d_expert, m->d_model, m->n_experts);
    if (m->n_shared) {
        add(s, n, "ffn_gate_shexp.weight", m->d_model, shared, 0);
        add(s, n, "ffn_up_shexp.weight", m->d_model, shared, 0);
        add(s, n, "ffn_down_shexp.weight", shared, m->d_model, 0);
    }
}

void sheet_make(struct sheet *s, const struct shape *shape, enum attn_layout layout)
{
    memset(s, 0, sizeof *s);
    make_keys(s, shape, layout);
    sheet_add_tensor(s, "token_embd.weight", QUANT_F16, shape->d_model, shape->n_vocab, 0);
    sheet_add_tensor(s, "output_norm.weight", QUANT_F32, shape->d_model, 0, 0);
    sheet_add_tensor(s, "output.weight", QUANT_F16, shape->d_model, shape->n_vocab, 0);
    for (int n = 0; n < shape->n_layers; n++) {
        make_attention(s, shape, layout, n);
        make_ffn(s, shape, n);
    }
}

void sheet_free(struct sheet *s)
{
    free(s->keys);
    free(s->tensors);
    memset(s, 0, sizeof *s);
}

/* ---- The header --------------------------------------------------------- */

static void put_u32(struct str *s, uint32_t v)
{
    str_append(s, (const char *)&v, sizeof v);
}

static void put_u64(struct str *s, uint64_t v)
{
    str_append(s, (const char *)&v, sizeof v);
}

static void put_string(struct str *s, const char *text)
{
    put_u64(s, strlen(text));
    str_puts(s, text);
}

static void put_list(struct str *s, const struct sheet_key *k)
{
    put_u32(s, GGUF_U32);
    put_u64(s, (uint64_t)k->n_list);
    str_append(s, (const char *)k->list, (size_t)k->n_list * sizeof k->list[0]);
}

static void put_key(struct str *s, const struct sheet_key *k)
{
    char flag = (char)(k->integer != 0);

    put_string(s, k->name);
    put_u32(s, k->type);
    if (k->type == GGUF_STRING)
        put_string(s, k->text);
    else if (k->type == GGUF_BOOL)
        str_append(s, &flag, 1);
    else if (k->type == GGUF_F32)
        str_append(s, (const char *)&k->real, sizeof k->real);
    else if (k->type == GGUF_ARRAY)
        put_list(s, k);
    else
        put_u32(s, k->integer);
}

static uint64_t tensor_bytes(const struct sheet_tensor *t)
{
    uint64_t bytes = quant_row_bytes(t->type, (size_t)t->dim[0]);

    for (int i = 1; i < t->n_dims; i++)
        bytes *= (uint64_t)t->dim[i];
    return (bytes + 31) / 32 * 32;
}

void sheet_write_header(const struct sheet *s, const char *path)
{
    struct str out = { 0 };
    uint64_t offset = 0;
    FILE *f = fopen(path, "wbe");

    str_append(&out, "GGUF", 4);
    put_u32(&out, 3);
    put_u64(&out, (uint64_t)s->n_tensors);
    put_u64(&out, (uint64_t)s->n_keys);
    for (int i = 0; i < s->n_keys; i++)
        put_key(&out, &s->keys[i]);
    for (int i = 0; i < s->n_tensors; i++) {
        const struct sheet_tensor *t = &s->tensors[i];
        put_string(&out, t->name);
        put_u32(&out, (uint32_t)t->n_dims);
        for (int d = 0; d < t->n_dims; d++)
            put_u64(&out, (uint64_t)t->dim[d]);
        put_u32(&out, quant_info[t->type].gguf_id);
        put_u64(&out, offset);
        offset += tensor_bytes(t);
    }
    while (out.len % 32)
        str_append(&out, "", 1);
    if (!f || out.failed || fwrite(out.data, 1, out.len, f) != out.len || fclose(f) != 0)
        die("cannot write the header");
    str_free(&out);
}
