/* SPDX-License-Identifier: MIT */
/* rank/pager.h - which pages of the latent cache are taken, and how often.
 *
 * Belongs to whoever drives the ranks.  A page is free or has one reference for every
 * sequence (or kept prefix) that maps it; the ranks themselves only obey (rank/step.h).
 */
#ifndef RANK_PAGER_H
#define RANK_PAGER_H

#include <stdint.h>

#include "base/err.h"

struct pager;

/* All n_pages are free.  Errors: ERR_NOMEM. */
enum err_code pager_create(struct pager **out, int64_t n_pages, struct err *e);
void pager_free(struct pager **p);

/* A free page, now with one reference; -1 where none is free. */
int32_t pager_take(struct pager *p);

/* One reference more, or less; the last one frees the page. */
void pager_share(struct pager *p, int32_t page);
void pager_release(struct pager *p, int32_t page);

int64_t pager_count_free(const struct pager *p);
int32_t pager_references(const struct pager *p, int32_t page);

#endif
