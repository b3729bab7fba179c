/* SPDX-License-Identifier: MIT */
/* tests/support/sheet.h - a deepseek2 model on paper: its keys and its tensors' shapes.
 *
 *     shape (one row of shapes.def) -> sheet -> a header-only GGUF, or mkmodel's file
 *
 * A test takes the sheet of a model as converters write it, spoils or thins it, writes
 * the header and looks at what the reader says.
 */
#ifndef TESTS_SUPPORT_SHEET_H
#define TESTS_SUPPORT_SHEET_H

#include "base/str.h"
#include "model/gguf.h"
#include "model/hparams.h"

enum shape_id {
#define X(id, ...) SHAPE_##id,
#include "tests/support/shapes.def"
#undef X
    SHAPE_COUNT
};

struct shape {
    const char *name;
    int n_layers;
    int64_t d_model;
    int n_heads;
    int64_t q_lora, d_nope, d_rope, d_v;
    int n_dense;
    int64_t d_ffn, n_vocab, context;
    int n_experts, n_used, n_shared;
    int64_t d_expert;
    int gating, has_bias, norm;
    double scale;
    int n_groups, n_groups_used;
    double eps, theta, yarn_factor;
    int64_t yarn_context;
    double yarn_log_mul;
    int64_t kv_lora; /* 512 */
};

extern const struct shape shapes[SHAPE_COUNT];

struct sheet_key {
    char name[64];       /* whole */
    enum gguf_type type; /* as set below; another integer type of four bytes is also fine */
    uint32_t integer;
    float real;
    char text[64];
    uint32_t list[4]; /* of GGUF_ARRAY, of u32 */
    int n_list;
};

struct sheet_tensor {
    char name[64];
    enum quant type;
    int n_dims;
    int64_t dim[4];
};

struct sheet {
    struct sheet_key *keys; /* owned */
    int n_keys;
    struct sheet_tensor *tensors; /* owned */
    int n_tensors;
};

/* The keys and tensors that a converter writes for this shape in this layout, without the
 * tokenizer.  Matrices are F16, vectors and routers F32.  Ends the program if memory does. */
void sheet_make(struct sheet *s, const struct shape *shape, enum attn_layout layout);
void sheet_free(struct sheet *s);

/* Keys, by name without "deepseek2." (or whole, if it begins with "general."): set or drop. */
void sheet_set_int(struct sheet *s, const char *key, uint32_t v);
void sheet_set_real(struct sheet *s, const char *key, float v);
void sheet_set_flag(struct sheet *s, const char *key, int v);
void sheet_set_word(struct sheet *s, const char *key, const char *v);
void sheet_set_list(struct sheet *s, const char *key, const uint32_t *v, int n); /* n <= 4 */
void sheet_drop_key(struct sheet *s, const char *key);

/* Tensors: the one with this name or NULL; append; drop. */
struct sheet_tensor *sheet_tensor(struct sheet *s, const char *name);
void sheet_add_tensor(struct sheet *s, const char *name, enum quant type, int64_t d0, int64_t d1,
                      int64_t d2);
void sheet_drop_tensor(struct sheet *s, const char *name);

/* Writes the file up to where the data would begin.  Ends the program on failure. */
void sheet_write_header(const struct sheet *s, const char *path);

#endif
