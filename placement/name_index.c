/* SPDX-License-Identifier: MIT */
/* placement/name_index.c - see name_index.h. */
#include "placement/name_index.h"

#include <stdlib.h>
#include <string.h>

static int pair_slot(const char *s)
{
    unsigned a = (unsigned char)s[0], b = (unsigned char)s[1];

    return (int)((a * 61 + b) % NAME_INDEX_PAIRS);
}

enum err_code name_index_init(struct name_index *x, const struct named_tensor *tensors,
                              int n_tensors, struct err *e)
{
    int words = (n_tensors + 63) / 64;

    *x = (struct name_index){ .n_words = words, .n_names = n_tensors };
    x->bits = calloc((size_t)NAME_INDEX_PAIRS * (size_t)(words ? words : 1), sizeof *x->bits);
    if (!x->bits)
        return err_set(e, ERR_NOMEM, "no memory for an index of %d tensor names", n_tensors);
    for (int t = 0; t < n_tensors; t++)
        for (const char *s = tensors[t].name; s[0] && s[1]; s++)
            x->bits[(int64_t)pair_slot(s) * words + t / 64] |= 1ull << (t % 64);
    return ERR_OK;
}

void name_index_free(struct name_index *x)
{
    free(x->bits);
    *x = (struct name_index){ 0 };
}

int name_index_candidates(const struct name_index *x, const struct pattern_literals *l,
                          uint64_t *out)
{
    int n = 0;

    for (int w = 0; w < x->n_words; w++)
        out[w] = ~0ull;
    if (x->n_names % 64 != 0)
        out[x->n_words - 1] = (1ull << (x->n_names % 64)) - 1;
    for (int i = 0; i < l->n; i++)
        for (const char *s = l->text[i]; s[0] && s[1]; s++) {
            const uint64_t *pair = x->bits + (int64_t)pair_slot(s) * x->n_words;
            for (int w = 0; w < x->n_words; w++)
                out[w] &= pair[w];
        }
    for (int w = 0; w < x->n_words; w++)
        n += __builtin_popcountll(out[w]);
    return n;
}
