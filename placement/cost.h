/* SPDX-License-Identifier: MIT */
/* placement/cost.h - how fast a finished plan will be: a sum of named terms.
 *
 * A step is a chain of layers, a layer the chain attention, sum over ranks, FFN, sum over ranks.
 * Inside a link of the chain the devices work side by side and the slowest counts (an engine
 * that is `serial` uses one after the other).  A device needs
 *
 *     decode     the longer of reading its weights and multiplying them
 *     prefill    both, one after the other
 *     experts    those that the step meets: at batch B, E (1 - (1 - k/E)^B) of a layer on
 *                average; which ones is chance, so the fullest device has more than its share
 *
 * GPU and host experts of a layer overlap; the longer path counts, with its crossings.
 * Nothing here reads a clock or a file.
 */
#ifndef PLACEMENT_COST_H
#define PLACEMENT_COST_H

#include "placement/efficiency.h"
#include "placement/plan.h"

/* Fills p->predict: decode at p->opt.batch requests and p->opt.depth positions each, prefill of
 * one step of p->opt.ubatch tokens at that depth, loading.  engine NULL is latentd.
 * Errors: ERR_NOMEM. */
enum err_code cost_predict(struct plan *p, const struct efficiency *engine, struct err *e);

/* The longest term of a phase, or NULL if it has none. */
const struct plan_term *cost_dominating(const struct plan_predict *p, enum plan_phase phase);

#endif
