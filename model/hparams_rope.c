/* SPDX-License-Identifier: MIT */
/* model/hparams_rope.c - rotary frequencies: theta, YaRN or linear scaling, temperature.
 *
 * A wrong constant here does not fail, it makes long texts slowly worse; so every
 * value that the file does not give is noted, and those taken from the table of
 * published models are also logged.
 */
#include "model/hparams_reader.h"

#include <string.h>

#include "base/log.h"

/* DeepSeek-V3's published constants; some conversions of it lost them. */
static const double v3_factor = 40.0;
enum { V3_LAYERS = 61, V3_WIDTH = 7168, V3_EXPERTS = 256, V3_CONTEXT = 4096 };
enum { KIMI_HEADS = 64, KIMI_EXPERTS = 384 };

static int is_v3(const struct hparams *hp)
{
    return hp->n_layers == V3_LAYERS && hp->d_model == V3_WIDTH && hp->n_experts == V3_EXPERTS;
}

/* ---- Which scaling ------------------------------------------------------ */

enum scaling { SCALING_NONE, SCALING_LINEAR, SCALING_YARN };

static void restore_v3(struct hparams_reader *r)
{
    log_warn("%s: a DeepSeek-V3 whose rope.scaling keys are lost; taking the published YaRN "
             "constants (factor 40 from 4096 positions)",
             r->path);
    if (!settings_has(&r->set, SETTING_ROPE_SCALING_TYPE))
        settings_set_word(&r->set, SETTING_ROPE_SCALING_TYPE, "yarn", HPARAM_DEFAULT,
                          "missing; published for DeepSeek-V3");
    settings_set_real(&r->set, SETTING_ROPE_SCALING_FACTOR, v3_factor, HPARAM_DEFAULT,
                      "missing; published for DeepSeek-V3");
    if (!settings_has(&r->set, SETTING_YARN_CONTEXT))
        settings_set_int(&r->set, SETTING_YARN_CONTEXT, V3_CONTEXT, HPARAM_DEFAULT,
                         "missing; published for DeepSeek-V3");
}

/* Decides where the file does not name a type. */
static void settle_type(struct hparams_reader *r)
{
    int has_factor = settings_has(&r->set, SETTING_ROPE_SCALING_FACTOR);

    if (!has_factor && settings_has(&r->set, SETTING_ROPE_SCALE_LINEAR)) {
        settings_set_real(&r->set, SETTING_ROPE_SCALING_FACTOR,
                          settings_real(&r->set, SETTING_ROPE_SCALE_LINEAR), HPARAM_DERIVED,
                          "rope.scale_linear, the key's old name");
        has_factor = 1;
    }
    if (has_factor && (settings_has(&r->set, SETTING_YARN_CONTEXT) ||
                       settings_has(&r->set, SETTING_YARN_LOG_MULTIPLIER))) {
        settings_set_word(&r->set, SETTING_ROPE_SCALING_TYPE, "yarn", HPARAM_DERIVED,
                          "missing; the file has other keys of yarn");
        log_warn("%s: rope.scaling.type is missing; taking yarn, whose other keys are there",
                 r->path);
    } else if (has_factor) {
        settings_set_word(&r->set, SETTING_ROPE_SCALING_TYPE, "linear", HPARAM_DEFAULT,
                          "missing; what a factor alone means");
    } else if (is_v3(r->hp)) {
        restore_v3(r);
    } else {
        settings_set_word(&r->set, SETTING_ROPE_SCALING_TYPE, "none", HPARAM_DEFAULT,
                          "missing; no scaling");
    }
}

static enum err_code find_scaling(struct hparams_reader *r, enum scaling *out)
{
    const char *type = r->set.at[SETTING_ROPE_SCALING_TYPE].word;

    if (!settings_has(&r->set, SETTING_ROPE_SCALING_TYPE))
        settle_type(r);
    if (strcmp(type, "yarn") == 0)
        *out = SCALING_YARN;
    else if (strcmp(type, "linear") == 0)
        *out = SCALING_LINEAR;
    else if (strcmp(type, "none") == 0)
        *out = SCALING_NONE;
    else
        return hparams_refuse(r, ERR_UNSUPPORTED, SETTING_ROPE_SCALING_TYPE,
                              "\"%s\" is not supported; only yarn, linear and none are", type);
    return ERR_OK;
}

/* ---- YaRN --------------------------------------------------------------- */

/* The published multiplier: 0.0707 for V2-Lite, which has neither q_lora nor a router
 * bias, and 0.1 for everything else. */
static void settle_log_multiplier(struct hparams_reader *r)
{
    int lite = r->hp->q_lora_rank == 0 && !r->has_bias;

    if (settings_has(&r->set, SETTING_YARN_LOG_MULTIPLIER))
        return;
    settings_set_real(&r->set, SETTING_YARN_LOG_MULTIPLIER, lite ? 0.0707 : 0.1, HPARAM_DEFAULT,
                      "missing; published for %s", lite ? "DeepSeek-V2-Lite" : "its relatives");
    log_warn("%s: rope.scaling.yarn_log_multiplier is missing; taking %s", r->path,
             lite ? "0.0707, as DeepSeek-V2-Lite" : "0.1, as DeepSeek-V2 and V3");
}

/* Kimi-K2 was trained with betas 1 and 1, the others with 32 and 1. */
static void settle_betas(struct hparams_reader *r)
{
    int kimi = r->hp->n_heads == KIMI_HEADS && r->hp->n_experts == KIMI_EXPERTS;
    const char *why = kimi ? "missing; published for Kimi-K2" : "missing; published for DeepSeek";

    if (!settings_has(&r->set, SETTING_YARN_BETA_FAST))
        settings_set_real(&r->set, SETTING_YARN_BETA_FAST, kimi ? 1 : 32, HPARAM_DEFAULT, "%s",
                          why);
    if (!settings_has(&r->set, SETTING_YARN_BETA_SLOW))
        settings_set_real(&r->set, SETTING_YARN_BETA_SLOW, 1, HPARAM_DEFAULT, "%s", why);
}

static void find_yarn(struct hparams_reader *r)
{
    struct hparams *hp = r->hp;

    if (!settings_has(&r->set, SETTING_YARN_CONTEXT))
        settings_set_int(&r->set, SETTING_YARN_CONTEXT, hp->context_length, HPARAM_DEFAULT,
                         "missing; context_length");
    settle_log_multiplier(r);
    settle_betas(r);
    hp->rope_yarn = 1;
    hp->yarn_context = settings_int(&r->set, SETTING_YARN_CONTEXT);
    hp->yarn_log_mul = settings_real(&r->set, SETTING_YARN_LOG_MULTIPLIER);
    hp->yarn_beta_fast = settings_real(&r->set, SETTING_YARN_BETA_FAST);
    hp->yarn_beta_slow = settings_real(&r->set, SETTING_YARN_BETA_SLOW);
}

/* ---- The rest ----------------------------------------------------------- */

/* Factors that other programs apply and that are 1 in every published model. */
static void warn_of_unused_factors(const struct hparams_reader *r)
{
    static const enum setting_key keys[] = { SETTING_ROPE_ATTN_FACTOR, SETTING_YARN_ATTN_FACTOR,
                                             SETTING_YARN_EXT_FACTOR };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (settings_has(&r->set, keys[i]) && settings_real(&r->set, keys[i]) != 1.0)
            log_warn("%s: %s is %g; it is not applied", r->path, settings_key(keys[i]),
                     settings_real(&r->set, keys[i]));
}

static enum err_code find_temperature(struct hparams_reader *r)
{
    struct hparams *hp = r->hp;

    hp->attn_temp_scale = settings_real(&r->set, SETTING_TEMPERATURE_SCALE);
    if (hp->attn_temp_scale == 0)
        return ERR_OK;
    if (settings_int(&r->set, SETTING_TEMPERATURE_LENGTH) == 0 && hp->yarn_context > 0)
        settings_set_int(&r->set, SETTING_TEMPERATURE_LENGTH, hp->yarn_context, HPARAM_DERIVED,
                         "missing; the original context, as in Mistral's files");
    hp->attn_temp_length = settings_int(&r->set, SETTING_TEMPERATURE_LENGTH);
    if (hp->attn_temp_length == 0)
        return hparams_refuse(r, ERR_FORMAT, SETTING_TEMPERATURE_LENGTH,
                              "is missing beside temperature_scale; give it with --override-kv");
    return ERR_OK;
}

enum err_code hparams_find_rope(struct hparams_reader *r)
{
    struct hparams *hp = r->hp;
    enum scaling scaling = SCALING_NONE;

    if (!settings_has(&r->set, SETTING_ROPE_FREQ_BASE))
        settings_set_real(&r->set, SETTING_ROPE_FREQ_BASE, 10000.0, HPARAM_DEFAULT,
                          "missing; the format's default");
    hp->rope_theta = settings_real(&r->set, SETTING_ROPE_FREQ_BASE);
    hp->rope_factor = 1.0;
    TRY(find_scaling(r, &scaling));
    if (scaling == SCALING_YARN && settings_real(&r->set, SETTING_ROPE_SCALING_FACTOR) == 0) {
        if (!is_v3(hp))
            return hparams_refuse(r, ERR_FORMAT, SETTING_ROPE_SCALING_FACTOR,
                                  "is missing or 0 beside rope.scaling.type yarn; give it with "
                                  "--override-kv");
        restore_v3(r);
    }
    if (scaling != SCALING_NONE && settings_real(&r->set, SETTING_ROPE_SCALING_FACTOR) > 0)
        hp->rope_factor = settings_real(&r->set, SETTING_ROPE_SCALING_FACTOR);
    if (scaling == SCALING_YARN && hp->rope_factor > 1.0)
        find_yarn(r);
    else if (scaling == SCALING_YARN)
        hp->rope_factor = 1.0; /* stretches nothing */
    warn_of_unused_factors(r);
    return find_temperature(r);
}
