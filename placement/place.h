/* SPDX-License-Identifier: MIT */
/* placement/place.h - steps of planning, on one struct; private to placement/.
 *
 * Order: devices, places of the rules, whole and sliced tensors, cache and buffers, experts,
 * prediction.  Every step charges the devices for what it puts there.
 */
#ifndef PLACEMENT_PLACE_H
#define PLACEMENT_PLACE_H

#include "base/str.h"
#include "placement/account.h"

/* The devices that a rule's target means here. */
struct place {
    int n; /* 0: the rule cannot be obeyed */
    struct place_device {
        int device, count; /* TARGET_NO_COUNT: a share of the rest */
    } * v;                 /* [n], owned */
    int named_one;         /* the target names a single device */
};

/* Layers in which a rule's tensors draw others after them: how many, and the first. */
struct pulled {
    int n, layer, tensor, decider;
    const char *what;
};
enum { PULLED_GROUPS = 3 }; /* heads, columns, vocabulary */

/* A step's context. */
struct planner {
    struct plan *p;
    const struct plan_input *in;
    struct findings *findings;
    struct place *places;        /* [n_rules]                                              */
    double skew;                 /* see experts.c                                          */
    int *all_main;               /* [n_ranks] main devices in rank order                   */
    int *index_of;               /* [n_layers + 1][ROLE_COUNT] tensor index or -1          */
    struct account_rank *shares; /* [n_ranks] for their buffers                            */
    int *host_attends;           /* [n_ranks] attention of some layer is in host memory          */
    int *far;                    /* [n_rules] whole tensors that a rule takes away from its GPU   */
    int *everywhere;             /* [n_rules] whole tensors of a rule that names one device       */
    struct pulled *pulled;       /* [n_rules][PULLED_GROUPS]                                      */
};

/* plan_devices.c.  At the end the ranks of a host share what it has left. */
enum err_code place_devices(struct plan *p, const struct inventory *inv, struct err *e);
void place_share_memory(struct plan *p);

/* resolve.c: places of all rules; what cannot be obeyed becomes an error of that rule. */
enum err_code place_resolve(struct planner *k, struct err *e);

/* place_tensors.c: everything but routed experts, with the latent cache. */
enum err_code place_tensors(struct planner *k, struct err *e);
void place_buffers(struct planner *k);

/* experts.c */
enum err_code place_experts(struct planner *k, struct err *e);

/* Adds a part and charges its device.  ranges: [n] of them, copied. */
enum err_code place_add_part(struct planner *k, int tensor, int device, enum plan_axis axis,
                             const struct plan_range *ranges, int n, struct extent x,
                             struct err *e);

static inline int place_index(const struct planner *k, int layer, int role)
{
    int row = layer < 0 ? k->p->model->hp.n_layers : layer;
    return k->index_of[row * ROLE_COUNT + role];
}

/* The place that the rule of tensor t asks for, or NULL. */
static inline const struct place *place_of(const struct planner *k, int t)
{
    int r = k->in->match->rule_of[t];
    return r >= 0 && k->places[r].n > 0 ? &k->places[r] : NULL;
}

#endif
