/* SPDX-License-Identifier: MIT */
/* tests/support/edit.c - see edit.h. */
#include "tests/support/edit.h"

#include <stdio.h>
#include <stdlib.h>

static struct sheet_tensor *must_find(struct sheet *s, const char *name)
{
    struct sheet_tensor *t = sheet_tensor(s, name);

    if (!t) {
        (void)fprintf(stderr, "edit: no tensor %s to change\n", name);
        exit(1);
    }
    return t;
}

static void reshape(struct sheet_tensor *t, const struct edit *e)
{
    t->n_dims = e->c ? 3 : e->b ? 2 : 1;
    t->dim[0] = e->a;
    t->dim[1] = e->b;
    t->dim[2] = e->c;
}

static void apply(struct sheet *s, const struct edit *e)
{
    switch (e->kind) {
    case EDIT_END:
        break;
    case EDIT_DROP_KEY:
        sheet_drop_key(s, e->text);
        break;
    case EDIT_SET_INT:
        sheet_set_int(s, e->text, (uint32_t)e->a);
        break;
    case EDIT_SET_REAL:
        sheet_set_real(s, e->text, (float)e->real);
        break;
    case EDIT_SET_WORD:
        sheet_set_word(s, e->text, e->word);
        break;
    case EDIT_DROP_TENSOR:
        sheet_drop_tensor(s, e->text);
        break;
    case EDIT_ADD_TENSOR:
        sheet_add_tensor(s, e->text, QUANT_F16, e->a, e->b, e->c);
        break;
    case EDIT_RESHAPE:
        reshape(must_find(s, e->text), e);
        break;
    case EDIT_RETYPE:
        must_find(s, e->text)->type = (enum quant)e->a;
        break;
    case EDIT_RENAME:
        (void)snprintf(must_find(s, e->text)->name, sizeof s->tensors->name, "%s", e->word);
        break;
    }
}

void edit_apply(struct sheet *s, const struct edit *edits, int max)
{
    for (int i = 0; i < max && edits[i].kind != EDIT_END; i++)
        apply(s, &edits[i]);
}
