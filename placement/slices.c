/* SPDX-License-Identifier: MIT */
/* placement/slices.c - see slices.h. */
#include "placement/slices.h"

#include <stdio.h>

#include "kernels/packing.h"

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static int64_t lcm(int64_t a, int64_t b)
{
    return a / gcd(a, b) * b;
}

/* Columns of an atom of this tensor. */
static int64_t atom_of(const struct gguf_tensor *t)
{
    return t ? lcm(PACK_ATOM, quant_info[t->type].values) : PACK_ATOM;
}

struct slicing slicing_of_heads(const struct model *m, int layer)
{
    int64_t atom = atom_of(model_tensor(m, layer, ROLE_ATTN_OUTPUT));

    return (struct slicing){ m->hp.n_heads, atom / gcd(atom, m->hp.d_v) };
}

struct slicing slicing_of_ffn(const struct model *m, int layer)
{
    const struct hparams *hp = &m->hp;

    if (layer < hp->n_dense)
        return (struct slicing){ hp->d_ffn, atom_of(model_tensor(m, layer, ROLE_FFN_DOWN)) };
    return (struct slicing){ hp->n_shared_experts * hp->d_expert,
                             atom_of(model_tensor(m, layer, ROLE_DOWN_SHEXP)) };
}

struct slicing slicing_of_vocab(const struct model *m)
{
    return (struct slicing){ m->hp.n_vocab, PACK_ROWS };
}

struct plan_range slicing_share(const struct slicing *s, int i, int n)
{
    int64_t units = slicing_units(s);
    int64_t begin = i * units / n * s->unit, end = (i + 1) * units / n * s->unit;

    return (struct plan_range){ begin < s->total ? begin : s->total,
                                end < s->total ? end : s->total };
}

struct extent slicing_extent(const struct model *m, const struct plan_tensor *t,
                             enum plan_axis axis, struct plan_range r)
{
    const struct hparams *hp = &m->hp;
    struct extent x = extent_whole(m, t);
    int64_t n = r.end - r.begin;

    switch (t->role) {
    case ROLE_ATTN_Q:
    case ROLE_ATTN_Q_B:
        x.rows = n * (hp->d_nope + hp->d_rope);
        return x;
    case ROLE_ATTN_KV_B:
    case ROLE_ATTN_K_B:
    case ROLE_ATTN_V_B:
        x.slabs = n;
        return x;
    case ROLE_ATTN_OUTPUT:
        x.cols = n * hp->d_v;
        return x;
    case ROLE_FFN_DOWN:
    case ROLE_DOWN_SHEXP:
        x.cols = n;
        return x;
    default:
        if (axis == AXIS_EXPERTS)
            x.slabs = n;
        else
            x.rows = n;
        return x;
    }
}

void slicing_even_counts(const struct slicing *s, int most, char *out, size_t size)
{
    int64_t units = slicing_units(s);
    size_t at = 0;

    *out = '\0';
    for (int n = 1; n <= most && n <= units && at + 8 < size; n++)
        if (units % n == 0)
            at += (size_t)snprintf(out + at, size - at, "%s%d", at ? ", " : "", n);
}
