/* SPDX-License-Identifier: MIT */
/* daemon/pages.h - which page of the latent cache holds what.
 *
 * Pages of 64 positions.  A page in use has references, one for each request that maps it.  A page
 * whose contents are known stands in a tree: its parent is the page of the 64 positions before it,
 * so a path from the root spells a prompt.  A new request walks down this tree as far as its own
 * tokens agree (a hash finds the child, the tokens themselves decide) and maps what it found; of
 * the last page, which agrees only in part, it takes a copy.
 *
 * Without references a page stays in the tree until its memory is needed; the one released longest
 * ago goes first, children before their parents.
 *
 * How a position was computed (its form) belongs to its contents under strict reuse, and is ignored
 * otherwise.  Pure bookkeeping: no memory of the cache is touched here.
 */
#ifndef DAEMON_PAGES_H
#define DAEMON_PAGES_H

#include <stdint.h>

#include "base/err.h"

enum { PAGE_POSITIONS = 64 };

/* What up to 64 positions hold. */
struct page_content {
    int32_t tokens[PAGE_POSITIONS];
    uint8_t forms[PAGE_POSITIONS];
    int n;
};

struct pages;

/* n_pages free pages, which hold zeros.  Errors: ERR_NOMEM. */
enum err_code pages_create(struct pages **out, int32_t n_pages, int strict, struct err *e);
void pages_free(struct pages **p);

/* Pages that pages_take could give now. */
int32_t pages_available(const struct pages *p);

/* Pages with references; and without, but of known contents. */
int32_t pages_used(const struct pages *p);
int32_t pages_cached(const struct pages *p);

/* A page with one reference, or -1 if all are in use.  *must_zero: its old contents must be zeroed
 * before it is used. */
int32_t pages_take(struct pages *p, int *must_zero);

void pages_hold(struct pages *p, int32_t page);
void pages_drop(struct pages *p, int32_t page);

/* The child of `parent` (-1: the root) that agrees with the most positions of `want`, or -1 if none
 * agrees with the first.  *n: in how many.  No reference is taken. */
int32_t pages_find(struct pages *p, int32_t parent, const struct page_content *want, int *n);

/* The contents of a page in use are c from now on.  Gives the page to map in its place: itself, or
 * the one that holds the same already; the reference moves with it.  parent: -1, or a page that
 * this function gave.  A page that is not full adds nothing to one that holds the same and more. */
int32_t pages_enter(struct pages *p, int32_t page, int32_t parent, const struct page_content *c);

/* What the page holds is wrong: nobody finds it any more, and it must be zeroed. */
void pages_spoil(struct pages *p, int32_t page);

#endif
