/* SPDX-License-Identifier: MIT */
/* rank/pager.c - see pager.h. */
#include "rank/pager.h"

#include <stdlib.h>

struct pager {
    int64_t n_free;
    int32_t *free_pages; /* [n_pages], the first n_free are free: a stack */
    int32_t *references; /* [n_pages] */
};

enum err_code pager_create(struct pager **out, int64_t n_pages, struct err *e)
{
    struct pager *p = calloc(1, sizeof *p);
    size_t n = (size_t)n_pages + 1;

    if (p) {
        p->free_pages = calloc(n, sizeof *p->free_pages);
        p->references = calloc(n, sizeof *p->references);
    }
    if (!p || !p->free_pages || !p->references) {
        pager_free(&p);
        return err_set(e, ERR_NOMEM, "no memory for a list of %lld pages", (long long)n_pages);
    }
    p->n_free = n_pages;
    for (int64_t i = 0; i < n_pages; i++) /* page 0 is taken first */
        p->free_pages[i] = (int32_t)(n_pages - 1 - i);
    *out = p;
    return ERR_OK;
}

void pager_free(struct pager **p)
{
    if (!*p)
        return;
    free((*p)->free_pages);
    free((*p)->references);
    free(*p);
    *p = NULL;
}

int32_t pager_take(struct pager *p)
{
    if (p->n_free == 0)
        return -1;
    int32_t page = p->free_pages[--p->n_free];
    p->references[page] = 1;
    return page;
}

void pager_share(struct pager *p, int32_t page)
{
    p->references[page]++;
}

void pager_release(struct pager *p, int32_t page)
{
    if (--p->references[page] == 0)
        p->free_pages[p->n_free++] = page;
}

int64_t pager_count_free(const struct pager *p)
{
    return p->n_free;
}

int32_t pager_references(const struct pager *p, int32_t page)
{
    return p->references[page];
}
