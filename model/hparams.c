/* SPDX-License-Identifier: MIT */
/* model/hparams.c - see hparams.h.
 *
 * Reading order: architecture; blocks; vocabulary; then hparams_read, which runs the
 * steps of hparams_reader.h one after the other.
 */
#include "model/hparams.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "model/hparams_reader.h"
#include "model/tensor_shape.h"

/* ---- Shared by the steps ------------------------------------------------ */

const struct gguf_tensor *hparams_tensor(const struct hparams_reader *r, int layer,
                                         const char *name)
{
    char full[96];

    (void)snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return gguf_tensor_find(r->gguf, full);
}

enum err_code hparams_refuse(const struct hparams_reader *r, enum err_code code,
                             enum setting_key key, const char *text, ...)
{
    char what[320];
    va_list args;

    va_start(args, text);
    (void)vsnprintf(what, sizeof what, text, args);
    va_end(args);
    (void)err_set(r->err, code, "%s: %s.%s: %s", r->path, gguf_architecture(r->gguf),
                  settings_key(key), what);
    return code;
}

enum err_code hparams_misshapen(const struct hparams_reader *r, const struct gguf_tensor *t,
                                int64_t d0, int64_t d1, int64_t d2, const char *because)
{
    const int64_t want[] = { d0, d1, d2 };
    char expected[TENSOR_SHAPE_CHARS], found[TENSOR_SHAPE_CHARS];

    tensor_print_shape(expected, want, d2 ? 3 : d1 ? 2 : 1);
    tensor_print_shape(found, t->dim, t->n_dims);
    (void)err_set(r->err, ERR_FORMAT,
                  "%s: %s: expected %s by %s, found %s; convert it again or correct the key with "
                  "--override-kv",
                  r->path, t->name, expected, because, found);
    return ERR_FORMAT;
}

/* ---- Architecture ------------------------------------------------------- */

static const struct {
    const char *architecture, *models;
} later[] = {
#define X(architecture, models) { architecture, models },
#include "model/architectures.def"
#undef X
};

static enum err_code check_architecture(const struct hparams_reader *r)
{
    const char *name = gguf_architecture(r->gguf);

    if (strcmp(name, "deepseek2") == 0)
        return ERR_OK;
    if (name[0] == '\0')
        return err_set(r->err, ERR_FORMAT,
                       "%s: general.architecture: is missing; this is not a "
                       "model file",
                       r->path);
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++)
        if (strcmp(name, later[i].architecture) == 0)
            return err_set(r->err, ERR_UNSUPPORTED,
                           "%s: architecture %s (%s) is not yet supported; deepseek2 is", r->path,
                           name, later[i].models);
    if (gguf_find_arch(r->gguf, settings_key(SETTING_KV_LORA_RANK)))
        return err_set(r->err, ERR_UNSUPPORTED,
                       "%s: architecture %.64s has latent attention but is not yet supported; "
                       "deepseek2 is",
                       r->path, name);
    return err_set(r->err, ERR_UNSUPPORTED,
                   "%s: architecture %.64s is not a model with latent attention (MLA); this "
                   "program runs deepseek2 files: DeepSeek V2, V3, R1, Kimi-K2, GLM-4.7-Flash",
                   r->path, name);
}

/* ---- Dimensions --------------------------------------------------------- */

/* With every dimension below 2^40 no product of a shape and a count overflows later on. */
static enum err_code check_dimensions(const struct hparams_reader *r)
{
    const int64_t limit = (int64_t)1 << 40;

    for (int i = 0; i < gguf_tensor_count(r->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(r->gguf, i);
        for (int d = 0; d < t->n_dims; d++)
            if (t->dim[d] > limit)
                return err_set(r->err, ERR_FORMAT,
                               "%s: %s: dimension %d is %lld, above 2^40; the file is not usable",
                               r->path, t->name, d, (long long)t->dim[d]);
    }
    return ERR_OK;
}

/* ---- Blocks ------------------------------------------------------------- */

/* MTP blocks stand at the end and have nextn tensors; the key is only a hint, since
 * converters write it also where they dropped the blocks. */
static int count_mtp_blocks(struct hparams_reader *r, int n_blocks)
{
    int claimed = (int)settings_int(&r->set, SETTING_NEXTN_PREDICT_LAYERS);
    int found = 0;

    while (found < n_blocks && hparams_tensor(r, n_blocks - 1 - found, "nextn.eh_proj.weight"))
        found++;
    if (settings_has(&r->set, SETTING_NEXTN_PREDICT_LAYERS) && claimed == found)
        return found;
    /* counted in block_count, but not in the file at all */
    if (found == 0 && claimed > 0 && claimed < n_blocks &&
        !hparams_tensor(r, n_blocks - claimed, "attn_norm.weight"))
        return claimed;
    settings_set_int(&r->set, SETTING_NEXTN_PREDICT_LAYERS, found, HPARAM_DERIVED,
                     found ? "blk.%d has nextn tensors" : "blk.%d has no nextn tensors",
                     n_blocks - 1);
    if (found != claimed)
        log_warn("%s: nextn_predict_layers is %d, but %d blocks at the end have nextn tensors",
                 r->path, claimed, found);
    return found;
}

static enum err_code find_blocks(struct hparams_reader *r)
{
    struct hparams *hp = r->hp;

    hp->n_layers_file = (int)settings_int(&r->set, SETTING_BLOCK_COUNT);
    hp->n_layers = hp->n_layers_file - count_mtp_blocks(r, hp->n_layers_file);
    if (hp->n_layers < 1)
        return hparams_refuse(r, ERR_FORMAT, SETTING_BLOCK_COUNT,
                              "all %d blocks are for multi-token prediction; this file is an "
                              "add-on to a model, not a model",
                              hp->n_layers_file);
    hp->context_length = settings_int(&r->set, SETTING_CONTEXT_LENGTH);
    hp->d_model = settings_int(&r->set, SETTING_EMBEDDING_LENGTH);
    return ERR_OK;
}

/* ---- Vocabulary --------------------------------------------------------- */

static enum err_code find_vocabulary(struct hparams_reader *r)
{
    const struct gguf_tensor *embd = gguf_tensor_find(r->gguf, "token_embd.weight");

    if (!embd)
        return err_set(r->err, ERR_FORMAT,
                       "%s: token_embd.weight: is missing; the file has a vocabulary at most, no "
                       "weights",
                       r->path);
    if (!settings_has(&r->set, SETTING_VOCAB_SIZE))
        settings_set_int(&r->set, SETTING_VOCAB_SIZE, embd->dim[1], HPARAM_DERIVED,
                         "missing; rows of token_embd.weight");
    r->hp->n_vocab = (int)settings_int(&r->set, SETTING_VOCAB_SIZE);
    if (embd->dim[0] != r->hp->d_model || embd->dim[1] != r->hp->n_vocab)
        return hparams_misshapen(r, embd, r->hp->d_model, r->hp->n_vocab, 0,
                                 "embedding_length and vocab_size");
    return ERR_OK;
}

/* ---- The whole ---------------------------------------------------------- */

enum err_code hparams_read(struct hparams *hp, const struct gguf *g, struct err *e)
{
    struct hparams_reader r = { .gguf = g, .path = gguf_part_path(g, 0), .hp = hp, .err = e };

    memset(hp, 0, sizeof *hp);
    TRY(check_architecture(&r));
    TRY(settings_read(&r.set, g, e));
    TRY(check_dimensions(&r));
    TRY(find_blocks(&r));
    TRY(find_vocabulary(&r));
    TRY(hparams_find_attention(&r));
    TRY(hparams_find_router(&r));
    TRY(hparams_find_rope(&r));
    return settings_notes(&r.set, &hp->notes, &hp->n_notes, e);
}

void hparams_free(struct hparams *hp)
{
    free(hp->notes);
    hp->notes = NULL;
    hp->n_notes = 0;
}

const char *hparams_family(const struct hparams *hp)
{
    static const struct {
        const char *name;
        int n_layers, d_model, n_heads, n_experts, n_vocab;
    } rows[] = {
#define X(name, layers, d_model, heads, experts, vocab) \
    { name, layers, d_model, heads, experts, vocab },
#include "model/families.def"
#undef X
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].n_layers == hp->n_layers && rows[i].n_experts == hp->n_experts &&
            rows[i].n_vocab == hp->n_vocab &&
            (rows[i].d_model == 0 || rows[i].d_model == hp->d_model) &&
            (rows[i].n_heads == 0 || rows[i].n_heads == hp->n_heads))
            return rows[i].name;
    return NULL;
}

const char *hparam_source_name(enum hparam_source s)
{
    static const char *const names[] = { "file", "default", "derived", "overridden" };
    return names[s];
}

const char *attn_layout_name(enum attn_layout l)
{
    static const char *const names[] = { "legacy", "ik", "mainline" };
    return names[l];
}
