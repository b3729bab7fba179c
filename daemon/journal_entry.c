/* SPDX-License-Identifier: MIT */
/* daemon/journal_entry.c - what is pushed into the journal; see journal.h. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "daemon/journal.h"

struct journal_entry *journal_entry_new(int64_t ms)
{
    struct journal_entry *x = calloc(1, sizeof *x);

    if (x)
        x->ms = ms;
    return x;
}

void journal_entry_free(struct journal_entry *x)
{
    if (!x)
        return;
    for (int i = 0; i < x->n_ends; i++)
        free(x->ends[i].tokens);
    str_free(&x->spec);
    free(x->tokens);
    free(x->ends);
    free(x);
}

int journal_entry_add_token(struct journal_entry *x, int64_t number, int64_t position,
                            int32_t token)
{
    if (array_grow(&x->tokens, &x->cap_tokens, x->n_tokens, sizeof *x->tokens))
        return -1;
    x->tokens[x->n_tokens++] =
        (struct journal_token){ .number = number, .position = position, .token = token };
    return 0;
}

int journal_entry_add_end(struct journal_entry *x, const struct journal_end *end)
{
    if (array_grow(&x->ends, &x->cap_ends, x->n_ends, sizeof *x->ends))
        return -1;
    x->ends[x->n_ends++] = *end;
    return 0;
}
