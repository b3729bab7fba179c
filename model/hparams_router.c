/* SPDX-License-Identifier: MIT */
/* model/hparams_router.c - experts and how the router chooses among them.
 *
 * Whether a model has experts, how wide they are and whether the router has a bias is
 * read off the tensors.  Where a file is silent on gating or groups, the published
 * models decide: a bias goes with sigmoid gating, 160 experts are DeepSeek-V2's and
 * 256 with sigmoid are DeepSeek-V3's.
 */
#include "model/hparams_reader.h"

#include "base/log.h"

enum { V2_EXPERTS = 160, V3_EXPERTS = 256, N_GROUPS = 8, V2_GROUPS_USED = 3, V3_GROUPS_USED = 4 };

/* ---- Where the experts are ---------------------------------------------- */

static int is_moe(const struct hparams_reader *r, int layer)
{
    return hparams_tensor(r, layer, "ffn_gate_inp.weight") ||
           hparams_tensor(r, layer, "ffn_down_exps.weight");
}

static enum err_code find_dense_blocks(struct hparams_reader *r)
{
    struct hparams *hp = r->hp;
    int claimed = (int)settings_int(&r->set, SETTING_LEADING_DENSE);
    int first = 0;

    while (first < hp->n_layers && !is_moe(r, first))
        first++;
    hp->n_dense = first;
    if (settings_has(&r->set, SETTING_LEADING_DENSE) && claimed != first &&
        !(first == hp->n_layers && claimed > first))
        return hparams_refuse(r, ERR_FORMAT, SETTING_LEADING_DENSE,
                              "expected %d dense blocks, found %d in front of the first with "
                              "experts; correct it with --override-kv",
                              claimed, first);
    if (!settings_has(&r->set, SETTING_LEADING_DENSE))
        settings_set_int(&r->set, SETTING_LEADING_DENSE, first, HPARAM_DERIVED,
                         "blocks in front of the first with experts");
    hp->d_ffn = settings_int(&r->set, SETTING_FEED_FORWARD_LENGTH);
    if (first > 0 && hp->d_ffn == 0)
        return hparams_refuse(r, ERR_FORMAT, SETTING_FEED_FORWARD_LENGTH,
                              "is 0 in a model with dense blocks; correct it with --override-kv");
    return ERR_OK;
}

/* Takes a width or count from a tensor if the file has no key for it. */
static void complete(struct hparams_reader *r, enum setting_key key, const struct gguf_tensor *t,
                     int64_t value)
{
    if (t && !settings_has(&r->set, key))
        settings_set_int(&r->set, key, value, HPARAM_DERIVED, "missing; from the shape of %s",
                         t->name);
}

static enum err_code need(const struct hparams_reader *r, enum setting_key key)
{
    if (settings_int(&r->set, key) > 0)
        return ERR_OK;
    return hparams_refuse(r, ERR_FORMAT, key,
                          "is %s, but blk.%d has experts; give it with --override-kv",
                          settings_has(&r->set, key) ? "0" : "missing", r->hp->n_dense);
}

static enum err_code find_experts(struct hparams_reader *r)
{
    struct hparams *hp = r->hp;
    int layer = hp->n_dense;
    const struct gguf_tensor *down = hparams_tensor(r, layer, "ffn_down_exps.weight");
    const struct gguf_tensor *shared = hparams_tensor(r, layer, "ffn_down_shexp.weight");

    if (hparams_tensor(r, layer, "ffn_down.0.weight"))
        return err_set(r->err, ERR_UNSUPPORTED,
                       "%s: blk.%d.ffn_down.0.weight: one tensor for each expert, a form given up "
                       "in 2024; convert the model again",
                       r->path, layer);
    if (down) {
        complete(r, SETTING_EXPERT_COUNT, down, down->dim[2]);
        complete(r, SETTING_EXPERT_FEED_FORWARD, down, down->dim[0]);
    }
    TRY(need(r, SETTING_EXPERT_COUNT));
    TRY(need(r, SETTING_EXPERT_USED_COUNT));
    TRY(need(r, SETTING_EXPERT_FEED_FORWARD));
    hp->n_experts = (int)settings_int(&r->set, SETTING_EXPERT_COUNT);
    hp->n_experts_used = (int)settings_int(&r->set, SETTING_EXPERT_USED_COUNT);
    hp->d_expert = settings_int(&r->set, SETTING_EXPERT_FEED_FORWARD);
    if (hp->n_experts_used > hp->n_experts)
        return hparams_refuse(r, ERR_FORMAT, SETTING_EXPERT_USED_COUNT,
                              "is %d of %d experts; correct it with --override-kv",
                              hp->n_experts_used, hp->n_experts);
    if (!settings_has(&r->set, SETTING_EXPERT_SHARED_COUNT)) {
        if (shared && shared->dim[0] % hp->d_expert != 0)
            return hparams_misshapen(r, shared, hp->d_expert, hp->d_model, 0,
                                     "expert_feed_forward_length");
        settings_set_int(&r->set, SETTING_EXPERT_SHARED_COUNT,
                         shared ? shared->dim[0] / hp->d_expert : 0, HPARAM_DERIVED,
                         "missing; from ffn_down_shexp, or none there");
    }
    hp->n_shared_experts = (int)settings_int(&r->set, SETTING_EXPERT_SHARED_COUNT);
    return ERR_OK;
}

/* ---- How it chooses ----------------------------------------------------- */

static enum err_code find_gating(struct hparams_reader *r)
{
    int64_t code = settings_int(&r->set, SETTING_EXPERT_GATING_FUNC);

    r->has_bias = hparams_tensor(r, r->hp->n_dense, "exp_probs_b.bias") ||
                  hparams_tensor(r, r->hp->n_dense, "exp_probs_b.weight") ||
                  hparams_tensor(r, r->hp->n_dense, "exp_probs_b");
    if (code == 0) {
        code = r->has_bias ? GATING_SIGMOID : GATING_SOFTMAX;
        settings_set_int(&r->set, SETTING_EXPERT_GATING_FUNC, code, HPARAM_DEFAULT,
                         "missing; the router has %s bias", r->has_bias ? "a" : "no");
        log_info("%s: expert_gating_func is missing; taking %s, since the router has %s bias",
                 r->path, r->has_bias ? "sigmoid" : "softmax", r->has_bias ? "a" : "no");
    }
    if (code < GATING_SOFTMAX || code > GATING_SOFTMAX_SELECTED)
        return hparams_refuse(r, ERR_UNSUPPORTED, SETTING_EXPERT_GATING_FUNC,
                              "is %lld; only 1 (softmax), 2 (sigmoid) and 3 (softmax over the "
                              "chosen) are supported",
                              (long long)code);
    r->hp->gating = (enum router_gating)code;
    return ERR_OK;
}

/* Groups as published, for files that do not say. */
static void default_groups(struct hparams_reader *r)
{
    int groups = 1, used = 1;
    const char *why = "missing; this model routes without groups";

    if (r->hp->n_experts == V2_EXPERTS) {
        groups = N_GROUPS;
        used = V2_GROUPS_USED;
        why = "missing; 160 experts are DeepSeek-V2's";
    } else if (r->hp->n_experts == V3_EXPERTS && r->hp->gating == GATING_SIGMOID) {
        groups = N_GROUPS;
        used = V3_GROUPS_USED;
        why = "missing; 256 experts with sigmoid are DeepSeek-V3's";
    }
    if (settings_int(&r->set, SETTING_EXPERT_GROUP_COUNT) == 0)
        settings_set_int(&r->set, SETTING_EXPERT_GROUP_COUNT, groups, HPARAM_DEFAULT, "%s", why);
    if (settings_int(&r->set, SETTING_EXPERT_GROUP_USED_COUNT) == 0 &&
        settings_int(&r->set, SETTING_EXPERT_GROUP_COUNT) == groups)
        settings_set_int(&r->set, SETTING_EXPERT_GROUP_USED_COUNT, used, HPARAM_DEFAULT, "%s", why);
}

static enum err_code find_groups(struct hparams_reader *r)
{
    struct hparams *hp = r->hp;
    int size;

    default_groups(r);
    hp->n_groups = (int)settings_int(&r->set, SETTING_EXPERT_GROUP_COUNT);
    hp->n_groups_used = (int)settings_int(&r->set, SETTING_EXPERT_GROUP_USED_COUNT);
    hp->group_score_max = !r->has_bias;
    if (hp->n_groups == 1) {
        hp->n_groups_used = 1;
        return ERR_OK;
    }
    size = hp->n_experts / hp->n_groups;
    if (hp->n_experts % hp->n_groups != 0 || hp->n_groups_used < 1 ||
        hp->n_groups_used > hp->n_groups || size * hp->n_groups_used < hp->n_experts_used ||
        (!hp->group_score_max && size < 2))
        return hparams_refuse(r, ERR_FORMAT, SETTING_EXPERT_GROUP_COUNT,
                              "%d groups, %d of them used, cannot yield %d of %d experts; correct "
                              "it with --override-kv",
                              hp->n_groups, hp->n_groups_used, hp->n_experts_used, hp->n_experts);
    settings_set_word(&r->set, SETTING_EXPERT_GROUP_SCORE,
                      hp->group_score_max ? "maximum" : "two largest", HPARAM_DERIVED,
                      "the router has %s bias", r->has_bias ? "a" : "no");
    return ERR_OK;
}

/* Writers leave the normalisation key out where it is false, and the scale where it is 1. */
static void find_weights(struct hparams_reader *r)
{
    if (!settings_has(&r->set, SETTING_EXPERT_WEIGHTS_NORM))
        settings_set_int(&r->set, SETTING_EXPERT_WEIGHTS_NORM, 0, HPARAM_DEFAULT,
                         "missing; writers leave it out where it is false");
    r->hp->weights_norm = settings_int(&r->set, SETTING_EXPERT_WEIGHTS_NORM) != 0;
    if (!settings_has(&r->set, SETTING_EXPERT_WEIGHTS_SCALE))
        settings_set_real(&r->set, SETTING_EXPERT_WEIGHTS_SCALE, 1.0, HPARAM_DEFAULT,
                          "missing; no scaling");
    r->hp->weights_scale = settings_real(&r->set, SETTING_EXPERT_WEIGHTS_SCALE);
    if (r->hp->weights_scale == 0) /* another spelling of "none" */
        r->hp->weights_scale = 1.0;
}

/* No block has experts: right for a dense model and for the first blocks of a larger one,
 * which some cut off for tests, if the file says how many are dense. */
static enum err_code check_dense(const struct hparams_reader *r)
{
    if (settings_int(&r->set, SETTING_EXPERT_COUNT) == 0 ||
        r->set.at[SETTING_LEADING_DENSE].source != HPARAM_DERIVED)
        return ERR_OK;
    return hparams_refuse(r, ERR_FORMAT, SETTING_EXPERT_COUNT,
                          "expected %lld experts, found no block with any; download or convert the "
                          "file again",
                          (long long)settings_int(&r->set, SETTING_EXPERT_COUNT));
}

enum err_code hparams_find_router(struct hparams_reader *r)
{
    struct hparams *hp = r->hp;

    hp->n_groups = hp->n_groups_used = 1;
    hp->weights_scale = 1.0;
    hp->gating = GATING_SOFTMAX;
    TRY(find_dense_blocks(r));
    if (hp->n_dense == hp->n_layers)
        return check_dense(r);
    TRY(find_experts(r));
    TRY(find_gating(r));
    TRY(find_groups(r));
    find_weights(r);
    return ERR_OK;
}
