/* SPDX-License-Identifier: MIT */
/* model/hparams_attention.c - how a file stores attention, and the widths of a head.
 *
 * Keys say the head widths in three conventions, some files say them wrongly or leave
 * them out, but the tensors of the first block are enough:
 *
 *     d_c = attn_kv_a_norm.ne0             d_r = attn_kv_a_mqa.ne1 - d_c
 *     d_h = attn_q.ne1 / H  (or q_b)       d_v = attn_output.ne0 / H
 *     d_n = attn_k_b.ne0, or attn_kv_b.ne1 / H - d_v
 *
 * and d_h = d_n + d_r must then hold, which is the proof that they belong together.
 * With that proof a missing key is filled in, and the values that well-known
 * converters wrote wrongly are corrected; any other contradiction is refused.
 */
#include "model/hparams_reader.h"

#include <stdio.h>

#include "base/log.h"

/* The tensors of block 0 that fix the widths; kv_b, k_b, v_b as the layout has them. */
struct first_block {
    const struct gguf_tensor *q, *kv_a, *kv_a_norm, *kv_b, *k_b, *v_b, *output;
};

/* ---- Layout ------------------------------------------------------------- */

static enum err_code find_layout(struct hparams_reader *r, struct first_block *b)
{
    b->kv_b = hparams_tensor(r, 0, "attn_kv_b.weight");
    b->k_b = hparams_tensor(r, 0, "attn_k_b.weight");
    b->v_b = hparams_tensor(r, 0, "attn_v_b.weight");
    if (b->k_b && b->v_b)
        r->hp->layout = b->kv_b ? LAYOUT_IK : LAYOUT_MAINLINE;
    else if (b->kv_b)
        r->hp->layout = LAYOUT_LEGACY; /* one of k_b and v_b alone adds nothing to kv_b */
    else
        return err_set(r->err, ERR_FORMAT,
                       "%s: blk.0 has neither attn_kv_b nor both attn_k_b and attn_v_b: "
                       "this is not a complete MLA model; download or convert it again",
                       r->path);
    return ERR_OK;
}

/* One matrix, or two around a norm: q_lora. */
static enum err_code find_query(struct hparams_reader *r, struct first_block *b)
{
    const struct gguf_tensor *q = hparams_tensor(r, 0, "attn_q.weight");
    const struct gguf_tensor *q_a = hparams_tensor(r, 0, "attn_q_a.weight");

    if (q_a) {
        if (!settings_has(&r->set, SETTING_Q_LORA_RANK))
            settings_set_int(&r->set, SETTING_Q_LORA_RANK, q_a->dim[1], HPARAM_DERIVED,
                             "rows of %s", q_a->name);
        r->hp->q_lora_rank = settings_int(&r->set, SETTING_Q_LORA_RANK);
        if (q_a->dim[1] != r->hp->q_lora_rank)
            return hparams_misshapen(r, q_a, r->hp->d_model, r->hp->q_lora_rank, 0,
                                     "attention.q_lora_rank");
        b->q = hparams_tensor(r, 0, "attn_q_b.weight");
    } else if (q) {
        if (settings_int(&r->set, SETTING_Q_LORA_RANK) != 0)
            settings_set_int(&r->set, SETTING_Q_LORA_RANK, 0, HPARAM_DERIVED,
                             "%s is there and attn_q_a is not", q->name);
        b->q = q;
    }
    return ERR_OK;
}

static enum err_code find_tensors(struct hparams_reader *r, struct first_block *b)
{
    const char *missing = NULL;

    TRY(find_layout(r, b));
    TRY(find_query(r, b));
    b->kv_a = hparams_tensor(r, 0, "attn_kv_a_mqa.weight");
    b->kv_a_norm = hparams_tensor(r, 0, "attn_kv_a_norm.weight");
    b->output = hparams_tensor(r, 0, "attn_output.weight");
    if (!b->q)
        missing = "attn_q (or attn_q_a and attn_q_b)";
    else if (!b->kv_a)
        missing = "attn_kv_a_mqa";
    else if (!b->kv_a_norm)
        missing = "attn_kv_a_norm";
    else if (!b->output)
        missing = "attn_output";
    if (!missing)
        return ERR_OK;
    (void)err_set(r->err, ERR_FORMAT,
                  "%s: blk.0: %s is missing; download or convert the file again", r->path, missing);
    return ERR_FORMAT;
}

/* ---- Widths ------------------------------------------------------------- */

/* The head width that the keys claim, or 0: in the mainline layout attention.key_length is
 * the width of a cached row and says nothing about a head. */
static int64_t claimed_head(const struct hparams_reader *r)
{
    int64_t width = settings_int(&r->set, SETTING_KEY_LENGTH_MLA);

    if (width == 0 && r->hp->layout != LAYOUT_MAINLINE)
        width = settings_int(&r->set, SETTING_KEY_LENGTH);
    return width;
}

/* The equation d_h = d_n + d_r does not hold: which tensor is to blame? */
static enum err_code blame(const struct hparams_reader *r, const struct first_block *b,
                           int64_t d_head)
{
    const struct hparams *hp = r->hp;
    int64_t claimed_rope = settings_int(&r->set, SETTING_ROPE_DIMENSION_COUNT);
    int64_t head = claimed_head(r);

    if (claimed_rope != hp->d_rope)
        return hparams_misshapen(r, b->kv_a, hp->d_model, hp->kv_lora_rank + d_head - hp->d_nope, 0,
                                 "attention.kv_lora_rank and the width of a head");
    if (head != 0 && head != d_head)
        return hparams_misshapen(r, b->q, b->q->dim[0], hp->n_heads * head, 0,
                                 "attention.head_count and key_length");
    if (b->k_b)
        return hparams_misshapen(r, b->k_b, d_head - hp->d_rope, b->k_b->dim[1],
                                 b->k_b->n_dims > 2 ? b->k_b->dim[2] : 0,
                                 "the width of a head and rope.dimension_count");
    return hparams_misshapen(r, b->kv_b, hp->kv_lora_rank,
                             hp->n_heads * (d_head - hp->d_rope + hp->d_v), 0,
                             "the width of a head and rope.dimension_count");
}

/* Fills d_c, d_r, d_v, d_n from the shapes. */
static enum err_code solve(struct hparams_reader *r, const struct first_block *b)
{
    struct hparams *hp = r->hp;
    int64_t h = hp->n_heads, d_head;

    hp->kv_lora_rank = settings_int(&r->set, SETTING_KV_LORA_RANK);
    if (b->kv_a_norm->dim[0] != hp->kv_lora_rank)
        return hparams_misshapen(r, b->kv_a_norm, hp->kv_lora_rank, 0, 0, "attention.kv_lora_rank");
    hp->d_rope = b->kv_a->dim[1] - hp->kv_lora_rank;
    if (hp->d_rope <= 0 || hp->d_rope % 2 != 0)
        return hparams_misshapen(r, b->kv_a, hp->d_model,
                                 hp->kv_lora_rank +
                                     settings_int(&r->set, SETTING_ROPE_DIMENSION_COUNT),
                                 0, "attention.kv_lora_rank and an even rope.dimension_count");
    if (b->q->dim[1] % h != 0 || b->q->dim[1] / h <= hp->d_rope)
        return hparams_misshapen(r, b->q, b->q->dim[0], h * claimed_head(r), 0,
                                 "attention.head_count");
    if (b->output->dim[0] % h != 0)
        return hparams_misshapen(r, b->output, h * (b->output->dim[0] / h), hp->d_model, 0,
                                 "attention.head_count");
    d_head = b->q->dim[1] / h;
    hp->d_v = b->output->dim[0] / h;
    hp->d_nope = b->k_b ? b->k_b->dim[0] : b->kv_b->dim[1] / h - hp->d_v;
    if (hp->d_nope + hp->d_rope != d_head)
        return blame(r, b, d_head);
    return ERR_OK;
}

/* Holds a key against the head width that the tensors show.  `other` is the width that a
 * converter of another layout writes in its place. */
static enum err_code hold_key_length(const struct hparams_reader *r, const struct first_block *b,
                                     enum setting_key key, int64_t other)
{
    int64_t claimed = settings_int(&r->set, key), width = r->hp->d_nope + r->hp->d_rope;

    if (!settings_has(&r->set, key) || claimed == width || claimed == other)
        return ERR_OK;
    return hparams_misshapen(r, b->q, b->q->dim[0], r->hp->n_heads * claimed, 0, settings_key(key));
}

static enum err_code hold_value_length(const struct hparams_reader *r, const struct first_block *b,
                                       enum setting_key key, int64_t other)
{
    int64_t claimed = settings_int(&r->set, key);

    if (!settings_has(&r->set, key) || claimed == r->hp->d_v || claimed == other)
        return ERR_OK;
    return hparams_misshapen(r, b->output, r->hp->n_heads * claimed, r->hp->d_model, 0,
                             settings_key(key));
}

/* rope.dimension_count: some converters left it out or wrote the width of the whole head. */
static enum err_code settle_rope_width(struct hparams_reader *r, const struct first_block *b)
{
    const struct hparams *hp = r->hp;
    int64_t claimed = settings_int(&r->set, SETTING_ROPE_DIMENSION_COUNT);
    int64_t d_head = hp->d_nope + hp->d_rope;

    if (claimed == hp->d_rope)
        return ERR_OK;
    if (settings_has(&r->set, SETTING_ROPE_DIMENSION_COUNT) && claimed != d_head)
        return hparams_misshapen(r, b->kv_a, hp->d_model, hp->kv_lora_rank + claimed, 0,
                                 "rope.dimension_count");
    if (claimed == 0)
        settings_set_int(&r->set, SETTING_ROPE_DIMENSION_COUNT, hp->d_rope, HPARAM_DERIVED,
                         "missing; rows of %s less the latent", b->kv_a->name);
    else
        settings_set_int(&r->set, SETTING_ROPE_DIMENSION_COUNT, hp->d_rope, HPARAM_DERIVED,
                         "the file has %lld, a whole head; from %s", (long long)claimed,
                         b->kv_a->name);
    log_warn("%s: rope.dimension_count is %s; the tensors show %lld", r->path,
             claimed ? "the width of a whole head" : "missing", (long long)hp->d_rope);
    return ERR_OK;
}

/* Shows the true widths where the file's keys do not. */
static void note_widths(struct hparams_reader *r, const struct first_block *b)
{
    const struct hparams *hp = r->hp;
    int64_t d_head = hp->d_nope + hp->d_rope;

    if (!settings_has(&r->set, SETTING_KEY_LENGTH_MLA) &&
        settings_int(&r->set, SETTING_KEY_LENGTH) != d_head)
        settings_set_int(&r->set, SETTING_KEY_LENGTH_MLA, d_head, HPARAM_DERIVED,
                         "missing; rows of %s over the heads", b->q->name);
    if (!settings_has(&r->set, SETTING_VALUE_LENGTH_MLA) &&
        settings_int(&r->set, SETTING_VALUE_LENGTH) != hp->d_v)
        settings_set_int(&r->set, SETTING_VALUE_LENGTH_MLA, hp->d_v, HPARAM_DERIVED,
                         "missing; columns of %s over the heads", b->output->name);
}

enum err_code hparams_find_attention(struct hparams_reader *r)
{
    struct hparams *hp = r->hp;
    struct first_block b = { 0 };
    int64_t d_c;

    hp->n_heads = (int)settings_int(&r->set, SETTING_HEAD_COUNT);
    hp->rms_eps = settings_real(&r->set, SETTING_RMS_EPSILON);
    TRY(find_tensors(r, &b));
    TRY(solve(r, &b));
    TRY(settle_rope_width(r, &b));
    d_c = hp->kv_lora_rank;
    TRY(hold_key_length(r, &b, SETTING_KEY_LENGTH_MLA, 0));
    TRY(hold_value_length(r, &b, SETTING_VALUE_LENGTH_MLA, 0));
    TRY(hold_key_length(r, &b, SETTING_KEY_LENGTH, d_c + hp->d_rope));
    TRY(hold_value_length(r, &b, SETTING_VALUE_LENGTH, d_c));
    note_widths(r, &b);
    return ERR_OK;
}
