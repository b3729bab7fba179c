/* SPDX-License-Identifier: MIT */
/* model/hparams.h - the numbers of one deepseek2 model, and where each came from.
 *
 * Read from the metadata and held against the tensors' shapes.  What a key does not say is
 * taken from the tensors where they settle it (source "derived"), otherwise from the
 * published models ("default").  What a key says wrongly is corrected where the mistake
 * is one that converters are known for and the tensors prove it; any other contradiction
 * is refused.  Names follow the papers: D model width, H heads, d_c latent (kv_lora_rank),
 * d_n / d_r / d_v no-position, rope and value parts of a head.
 */
#ifndef MODEL_HPARAMS_H
#define MODEL_HPARAMS_H

#include "model/gguf.h"

enum hparam_source { HPARAM_FILE, HPARAM_DEFAULT, HPARAM_DERIVED, HPARAM_OVERRIDDEN };

enum router_gating { GATING_SOFTMAX = 1, GATING_SIGMOID = 2, GATING_SOFTMAX_SELECTED = 3 };

/* How attention's K and V projections are stored (docs/design.md, layouts). */
enum attn_layout {
    LAYOUT_LEGACY,   /* attn_kv_b only                       */
    LAYOUT_IK,       /* attn_kv_b and attn_k_b, attn_v_b     */
    LAYOUT_MAINLINE, /* attn_k_b and attn_v_b only           */
};

struct hparams {
    int n_layers;      /* blocks that run: MTP blocks are left out               */
    int n_layers_file; /* block_count                                            */
    int n_vocab;
    int64_t context_length; /* training context, positions                       */
    int64_t d_model;        /* D                                                 */
    int n_heads;            /* H                                                 */
    int64_t q_lora_rank;    /* 0: a single attn_q                                */
    int64_t kv_lora_rank;   /* d_c                                               */
    int64_t d_nope, d_rope, d_v;
    double rms_eps;

    int n_dense;   /* leading blocks with a dense FFN                     */
    int64_t d_ffn; /* width of the dense FFN                              */
    int n_experts, n_experts_used;
    int64_t d_expert;     /* width of one expert                                 */
    int n_shared_experts; /* merged into one FFN of n_shared_experts * d_expert  */
    enum router_gating gating;
    int weights_norm;            /* divide the chosen weights by their sum              */
    double weights_scale;        /* 1: none                                             */
    int n_groups, n_groups_used; /* 1/1: no group routing                        */
    int group_score_max;         /* score of a group: its maximum (V2), not the two largest (V3) */

    double rope_theta;
    int rope_yarn;        /* 1: the yarn_* below apply                        */
    double rope_factor;   /* s of yarn or linear scaling; 1: none             */
    int64_t yarn_context; /* original context, positions                      */
    double yarn_beta_fast, yarn_beta_slow;
    double yarn_log_mul;    /* 0.1 * mscale_all_dim                             */
    double attn_temp_scale; /* Mistral query temperature; 0: off                */
    int64_t attn_temp_length;

    enum attn_layout layout;

    struct hparam_note *notes; /* [n_notes], owned: every value with its source, for inspect */
    int n_notes;
};

struct hparam_note {
    char key[64]; /* GGUF key without the architecture prefix */
    char value[64];
    enum hparam_source source;
    char why[96]; /* for default and derived: from what */
};

/* Fills *hp from an open file.  End with hparams_free.
 * Errors: ERR_UNSUPPORTED, another architecture ("not yet", with its name); ERR_FORMAT, a
 * number that is missing, impossible or at odds with a tensor: names the key or the tensor,
 * what was expected and what was found. */
enum err_code hparams_read(struct hparams *hp, const struct gguf *g, struct err *e);
void hparams_free(struct hparams *hp);

/* The published model with this shape, "DeepSeek-V2-Lite", or NULL. */
const char *hparams_family(const struct hparams *hp);

const char *hparam_source_name(enum hparam_source s); /* "file", "default", ... */
const char *attn_layout_name(enum attn_layout l);     /* "legacy", "ik", "mainline" */

#endif
