/* SPDX-License-Identifier: MIT */
/* model/model_tensors.c - see model_tensors.h.
 *
 * Reading order: what tensors.def wants of a block; one tensor held against it; the
 * rules that concern several tensors of a block; what no role has taken.
 */
#include "model/model_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "model/tensor_shape.h"

/* ---- What is wanted ----------------------------------------------------- */

enum need { NONE, MAY_BE, MUST_BE };

struct want {
    const char *pattern;
    int n_dims;
    int64_t dim[3];
    enum need need;
};

static struct want want_of(const struct hparams *hp, int layer, enum tensor_role role)
{
    struct want w = { 0 };

    switch (role) {
#define X(ROLE, name, dims, d0, d1, d2, needed) \
    case ROLE_##ROLE:                           \
        w.pattern = name;                       \
        w.n_dims = dims;                        \
        w.dim[0] = d0;                          \
        w.dim[1] = d1;                          \
        w.dim[2] = d2;                          \
        w.need = (enum need)(needed);           \
        break;
#include "model/tensors.def"
#undef X
    case ROLE_COUNT:
        break;
    }
    return w;
}

/* ---- One tensor --------------------------------------------------------- */

/* The router's bias has had three names. */
static const char *const bias_names[] = { "blk.%d.exp_probs_b.weight", "blk.%d.exp_probs_b" };

static const struct gguf_tensor *find_tensor(const struct gguf *g, const char *pattern, int layer)
{
    char name[96];

    (void)snprintf(name, sizeof name, pattern, layer);
    return gguf_tensor_find(g, name);
}

/* ik's k_b and v_b lie flat: [d0, d1 * d2], the same bytes. */
static int shape_fits(const struct gguf_tensor *t, const struct want *w, enum tensor_role role)
{
    if (t->dim[0] != w->dim[0] || t->dim[3] != 1)
        return 0;
    if (t->dim[1] == w->dim[1] && t->dim[2] == w->dim[2])
        return 1;
    return (role == ROLE_ATTN_K_B || role == ROLE_ATTN_V_B) && t->dim[2] == 1 &&
           t->dim[1] == w->dim[1] * w->dim[2];
}

static enum err_code check_shape(const struct model *m, const struct gguf_tensor *t,
                                 const struct want *w, enum tensor_role role, struct err *e)
{
    char expected[TENSOR_SHAPE_CHARS], found[TENSOR_SHAPE_CHARS];

    if (shape_fits(t, w, role))
        return ERR_OK;
    tensor_print_shape(expected, w->dim, w->n_dims);
    tensor_print_shape(found, t->dim, t->n_dims);
    return err_set(e, ERR_FORMAT,
                   "%s: %s: expected %s by the metadata, found %s; the file is not usable",
                   gguf_part_path(m->gguf, t->part), t->name, expected, found);
}

static enum err_code check_type(const struct model *m, const struct gguf_tensor *t,
                                const struct want *w, struct err *e)
{
    const char *path = gguf_part_path(m->gguf, t->part);
    const struct quant_info *info = &quant_info[t->type];
    const char *refusal = quant_refusal(t->type);

    if (refusal)
        return err_set(e, ERR_UNSUPPORTED, "%s: %s: type %s is not supported: %s", path, t->name,
                       info->name, refusal);
    if (w->n_dims == 1 && info->program != QUANT_FLOAT)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: %s: type %s is not supported for a vector; F32, F16 and BF16 are", path,
                       t->name, info->name);
    if (t->dim[1] % info->interleave != 0)
        return err_set(e, ERR_FORMAT,
                       "%s: %s: type %s interleaves %u rows, but there are %lld; the file is not "
                       "usable",
                       path, t->name, info->name, info->interleave, (long long)t->dim[1]);
    return ERR_OK;
}

static enum err_code take(struct model *m, int row, enum tensor_role role, struct err *e)
{
    struct want w = want_of(&m->hp, row, role);
    const struct gguf_tensor *t = NULL;

    if (w.need == NONE)
        return ERR_OK;
    t = find_tensor(m->gguf, w.pattern, row);
    for (size_t i = 0; !t && role == ROLE_ROUTER_BIAS && i < 2; i++)
        t = find_tensor(m->gguf, bias_names[i], row);
    if (!t && w.need == MUST_BE) {
        char name[96];
        (void)snprintf(name, sizeof name, w.pattern, row);
        return err_set(e, ERR_FORMAT, "%s: %s: is missing; download or convert the file again",
                       gguf_part_path(m->gguf, 0), name);
    }
    if (!t)
        return ERR_OK;
    TRY(check_shape(m, t, &w, role, e));
    TRY(check_type(m, t, &w, e));
    m->tensors[(size_t)row * ROLE_COUNT + role] = t;
    return ERR_OK;
}

/* ---- Several tensors of a block ----------------------------------------- */

/* Gate and up of the experts: a pair, or merged in one tensor; the pair if both are there. */
static enum err_code check_gate_up(struct model *m, int layer, struct err *e)
{
    const struct gguf_tensor **block = &m->tensors[(size_t)layer * ROLE_COUNT];

    if (block[ROLE_GATE_EXPS] && block[ROLE_UP_EXPS])
        block[ROLE_GATE_UP_EXPS] = NULL;
    else if (block[ROLE_GATE_UP_EXPS])
        block[ROLE_GATE_EXPS] = block[ROLE_UP_EXPS] = NULL;
    else
        return err_set(e, ERR_FORMAT,
                       "%s: blk.%d.%s.weight: is missing, and so is the merged ffn_gate_up_exps; "
                       "download or convert the file again",
                       gguf_part_path(m->gguf, 0), layer,
                       block[ROLE_GATE_EXPS] ? "ffn_up_exps" : "ffn_gate_exps");
    return ERR_OK;
}

/* Every router has a bias, or none has: one without would silently choose other experts. */
static enum err_code check_bias(const struct model *m, int layer, struct err *e)
{
    int first = model_tensor(m, m->hp.n_dense, ROLE_ROUTER_BIAS) != NULL;

    if ((model_tensor(m, layer, ROLE_ROUTER_BIAS) != NULL) == first)
        return ERR_OK;
    return err_set(e, ERR_FORMAT,
                   "%s: blk.%d.exp_probs_b.bias: is missing, though blk.%d has one; download or "
                   "convert the file again",
                   gguf_part_path(m->gguf, 0), first ? layer : m->hp.n_dense,
                   first ? m->hp.n_dense : layer);
}

static enum err_code take_block(struct model *m, int layer, struct err *e)
{
    for (int role = ROLE_ATTN_NORM; role < ROLE_COUNT; role++)
        TRY(take(m, layer, (enum tensor_role)role, e));
    if (layer < m->hp.n_dense)
        return ERR_OK;
    TRY(check_gate_up(m, layer, e));
    return check_bias(m, layer, e);
}

/* ---- What no role has taken --------------------------------------------- */

static int compare_pointers(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const struct gguf_tensor *const *)a;
    uintptr_t y = (uintptr_t) * (const struct gguf_tensor *const *)b;
    return (x > y) - (x < y);
}

struct taken {
    const struct gguf_tensor **list; /* sorted */
    size_t n;
};

static int is_taken(const struct taken *taken, const struct gguf_tensor *t)
{
    return t && bsearch(&t, taken->list, taken->n, sizeof(void *), compare_pointers);
}

/* "blk.3.ffn_up_exps.scale" beside a taken "blk.3.ffn_up_exps.weight": its weights do not
 * mean what they seem to. */
static const struct gguf_tensor *companion_of(const struct gguf *g, const struct taken *taken,
                                              const char *name)
{
    char base[128];

    for (size_t i = 0; name[i]; i++) {
        const struct gguf_tensor *t;
        if (name[i] != '.' || i + sizeof ".weight" > sizeof base)
            continue;
        memcpy(base, name, i);
        memcpy(base + i, ".weight", sizeof ".weight");
        t = gguf_tensor_find(g, base);
        if (is_taken(taken, t))
            return t;
    }
    return NULL;
}

static enum err_code report_rest(const struct model *m, const struct taken *taken, struct err *e)
{
    const char *first = NULL, *path = gguf_part_path(m->gguf, 0);
    int n_ignored = 0, n_mtp = 0, n_beyond = 0;

    for (int i = 0; i < gguf_tensor_count(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i), *owner;
        int layer;

        if (is_taken(taken, t))
            continue;
        if (sscanf(t->name, "blk.%6d.", &layer) == 1 && layer >= m->hp.n_layers) {
            ++*(layer < m->hp.n_layers_file ? &n_mtp : &n_beyond);
            continue;
        }
        owner = companion_of(m->gguf, taken, t->name);
        if (owner)
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: %s: belongs to %s in a way that is not supported; convert the "
                           "model to another type",
                           path, t->name, owner->name);
        if (!first)
            first = t->name;
        n_ignored++;
    }
    if (n_mtp)
        log_info("%s: %d tensors of blocks for multi-token prediction are skipped", path, n_mtp);
    if (n_beyond)
        log_warn("%s: %d tensors of further blocks are not used: block_count is %d", path, n_beyond,
                 m->hp.n_layers_file);
    if (n_ignored)
        log_warn("%s: %d tensors are not used, the first is %s", path, n_ignored, first);
    return ERR_OK;
}

static enum err_code check_rest(const struct model *m, size_t n_slots, struct err *e)
{
    struct taken taken = { calloc(n_slots, sizeof(void *)), 0 };
    enum err_code rc;

    if (!taken.list)
        return err_set(e, ERR_NOMEM, "no memory for the list of tensors");
    for (size_t i = 0; i < n_slots; i++)
        if (m->tensors[i])
            taken.list[taken.n++] = m->tensors[i];
    qsort(taken.list, taken.n, sizeof(void *), compare_pointers);
    rc = report_rest(m, &taken, e);
    free(taken.list);
    return rc;
}

/* ---- The interface ------------------------------------------------------ */

enum err_code model_find_tensors(struct model *m, struct err *e)
{
    size_t n_slots = (size_t)(m->hp.n_layers + 1) * ROLE_COUNT;

    m->tensors = calloc(n_slots, sizeof(void *));
    if (!m->tensors)
        return err_set(e, ERR_NOMEM, "no memory for the list of tensors");
    for (int role = 0; role < ROLE_ATTN_NORM; role++)
        TRY(take(m, m->hp.n_layers, (enum tensor_role)role, e));
    for (int layer = 0; layer < m->hp.n_layers; layer++)
        TRY(take_block(m, layer, e));
    return check_rest(m, n_slots, e);
}
