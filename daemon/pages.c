/* SPDX-License-Identifier: MIT */
/* daemon/pages.c - see pages.h.
 *
 * Every page is in one of three places: in use (references), in the list of cached pages (none,
 * but in the tree), or in the list of free pages.  The lists are rings through a head; the cached
 * one is in the order of release.
 *
 * A parent is never released before its children: whoever maps a child maps the parent too, and
 * releases it later.  So the oldest cached page is a leaf.
 */
#include "daemon/pages.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1 };

struct page {
    int32_t refs;
    int32_t next, before;                           /* of the ring it is in */
    int32_t parent, child, sibling, sibling_before; /* NONE: none */
    uint8_t in_tree, dirty;
    struct page_content content;
};

struct pages {
    struct page *v; /* [n + 3]: the pages, then the heads and the root */
    int32_t n, free_head, cached_head, root;
    int32_t n_free, n_cached;
    int strict;
};

/* ---- Rings ---------------------------------------------------------------- */

static void ring_append(struct pages *p, int32_t head, int32_t page)
{
    struct page *h = &p->v[head], *x = &p->v[page];

    x->next = head;
    x->before = h->before;
    p->v[h->before].next = page;
    h->before = page;
}

static void ring_remove(struct pages *p, int32_t page)
{
    struct page *x = &p->v[page];

    p->v[x->before].next = x->next;
    p->v[x->next].before = x->before;
    x->next = x->before = page;
}

/* ---- The tree ------------------------------------------------------------- */

static void tree_add(struct pages *p, int32_t parent, int32_t page)
{
    struct page *x = &p->v[page], *up = &p->v[parent];

    x->in_tree = 1;
    x->parent = parent;
    x->sibling = up->child;
    x->sibling_before = NONE;
    if (up->child != NONE)
        p->v[up->child].sibling_before = page;
    up->child = page;
}

/* Takes a page without children out; if nobody uses it, it is free then. */
static void tree_cut_leaf(struct pages *p, int32_t page)
{
    struct page *x = &p->v[page];

    if (x->sibling_before != NONE)
        p->v[x->sibling_before].sibling = x->sibling;
    else
        p->v[x->parent].child = x->sibling;
    if (x->sibling != NONE)
        p->v[x->sibling].sibling_before = x->sibling_before;
    x->in_tree = 0;
    x->parent = x->sibling = x->sibling_before = NONE;
    if (x->refs == 0) {
        ring_remove(p, page);
        p->n_cached--;
        ring_append(p, p->free_head, page);
        p->n_free++;
    }
}

/* The page and all below it. */
static void tree_cut(struct pages *p, int32_t page)
{
    for (int32_t at = page; p->v[page].in_tree;) {
        while (p->v[at].child != NONE)
            at = p->v[at].child;
        int32_t up = p->v[at].parent;
        tree_cut_leaf(p, at);
        at = up;
    }
}

static int agreement(const struct pages *p, const struct page_content *a,
                     const struct page_content *b)
{
    int n = a->n < b->n ? a->n : b->n, i = 0;

    while (i < n && a->tokens[i] == b->tokens[i] && (!p->strict || a->forms[i] == b->forms[i]))
        i++;
    return i;
}

/* ---- The interface -------------------------------------------------------- */

enum err_code pages_create(struct pages **out, int32_t n_pages, int strict, struct err *e)
{
    struct pages *p = calloc(1, sizeof *p);

    if (p)
        p->v = calloc((size_t)n_pages + 3, sizeof *p->v);
    if (!p || !p->v) {
        pages_free(&p);
        return err_set(e, ERR_NOMEM, "no memory for the list of %d pages", n_pages);
    }
    *p = (struct pages){ .v = p->v,
                         .n = n_pages,
                         .free_head = n_pages,
                         .cached_head = n_pages + 1,
                         .root = n_pages + 2,
                         .strict = strict };
    for (int32_t i = 0; i < n_pages + 3; i++) {
        struct page *x = &p->v[i];
        x->next = x->before = i;
        x->parent = x->child = x->sibling = x->sibling_before = NONE;
    }
    for (int32_t i = 0; i < n_pages; i++)
        ring_append(p, p->free_head, i);
    p->n_free = n_pages;
    *out = p;
    return ERR_OK;
}

void pages_free(struct pages **p)
{
    if (!*p)
        return;
    free((*p)->v);
    free(*p);
    *p = NULL;
}

int32_t pages_available(const struct pages *p)
{
    return p->n_free + p->n_cached;
}

int32_t pages_used(const struct pages *p)
{
    return p->n - p->n_free - p->n_cached;
}

int32_t pages_cached(const struct pages *p)
{
    return p->n_cached;
}

int32_t pages_take(struct pages *p, int *must_zero)
{
    if (p->n_free == 0 && p->n_cached > 0)
        tree_cut(p, p->v[p->cached_head].next);
    if (p->n_free == 0)
        return NONE;
    int32_t page = p->v[p->free_head].next;
    ring_remove(p, page);
    p->n_free--;
    struct page *x = &p->v[page];
    *must_zero = x->dirty;
    x->dirty = 0;
    x->refs = 1;
    return page;
}

void pages_hold(struct pages *p, int32_t page)
{
    struct page *x = &p->v[page];

    if (x->refs++ == 0) { /* it was cached: who could name a free one? */
        ring_remove(p, page);
        p->n_cached--;
    }
}

void pages_drop(struct pages *p, int32_t page)
{
    struct page *x = &p->v[page];

    if (--x->refs > 0)
        return;
    if (x->in_tree) {
        ring_append(p, p->cached_head, page);
        p->n_cached++;
    } else {
        ring_append(p, p->free_head, page);
        p->n_free++;
    }
}

int32_t pages_find(struct pages *p, int32_t parent, const struct page_content *want, int *n)
{
    int32_t best = NONE;

    *n = 0;
    for (int32_t c = p->v[parent == NONE ? p->root : parent].child; c != NONE && *n < want->n;
         c = p->v[c].sibling) {
        int same = agreement(p, &p->v[c].content, want);
        if (same > *n) {
            *n = same;
            best = c;
        }
    }
    return best;
}

int32_t pages_enter(struct pages *p, int32_t page, int32_t parent, const struct page_content *c)
{
    struct page *x = &p->v[page];
    int n;

    if (x->in_tree || x->dirty || (parent != NONE && !p->v[parent].in_tree))
        return page;
    int32_t twin = pages_find(p, parent, c, &n);
    if (twin != NONE && n == c->n) {
        if (c->n < PAGE_POSITIONS) /* all of it is there already */
            return page;
        pages_hold(p, twin);
        pages_drop(p, page);
        return twin;
    }
    x->content = *c;
    tree_add(p, parent == NONE ? p->root : parent, page);
    return page;
}

void pages_spoil(struct pages *p, int32_t page)
{
    if (p->v[page].in_tree)
        tree_cut(p, page);
    p->v[page].dirty = 1;
}
