/* SPDX-License-Identifier: MIT */
/* daemon/scheduler_parts.h - what scheduler.c and scheduler_plan.c share. */
#ifndef DAEMON_SCHEDULER_PARTS_H
#define DAEMON_SCHEDULER_PARTS_H

#include "daemon/pages.h"
#include "daemon/scheduler.h"

/* Everybody who sends requests under one name. */
struct client {
    struct client *next;
    char name[REQUEST_CLIENT_MAX + 1];
    double debt; /* tokens that it had beyond its share, prompts included; see share_out */
    int live, running;
};

/* One request. */
struct entry {
    int64_t number, order; /* order: of arrival */
    struct client *client;
    int priority;
    int32_t *tokens; /* [n_tokens] of cap_tokens */
    int64_t n_tokens, cap_tokens, n_prompt, n_max;
    int64_t n_computed, n_planned; /* positions in the cache, and those of the running step */
    int n_ahead;                   /* and of the step after it, if that was sent too */
    int32_t *pages;                /* [n_pages] of cap_pages */
    int n_pages, cap_pages;
    int n_entered;       /* pages that stand in the tree, the first ones */
    int n_mapped;        /* pages that the ranks know of, the first ones */
    int32_t copied_from; /* held until its copy is made; -1: none */
    int seq;             /* -1: waits */
    int64_t bad_pos;     /* -1: none */
    int bad_layer;
    int counted; /* its prompt is in the counts */
    int begun;   /* the caller believes that it runs */
    int leaving; /* taken out while its step runs: goes with the result */
};

struct scheduler {
    struct scheduler_options opt;
    struct pages *pages;
    struct client *clients;
    struct entry **v; /* [n] of cap: all, in no order */
    int n, cap;
    struct entry **by_seq; /* [n_sequences], NULL: free */
    int64_t next_order;
    struct step step;       /* the last one that was built */
    int64_t running, ahead; /* ids of the steps whose results are to come, in this order; 0: none */
    int cap_resets, cap_maps, cap_zeros, cap_copies;
    struct scheduler_begin *begins; /* [n_sequences] */
    struct scheduler_end *ends;     /* [cap_ends] */
    struct scheduler_token *tokens; /* [n_sequences] */
    int64_t *paused;                /* [2 * n_sequences] */
    int n_begins, n_ends, n_tokens, cap_ends;
    struct scheduler_counts counts;
};

/* What page `index` of a request holds, of the first `known` positions. */
void scheduler_content(const struct scheduler *s, const struct entry *x, int index, int64_t known,
                       struct page_content *c);

/* How position pos is computed. */
enum mla_form scheduler_form(const struct scheduler *s, const struct entry *x, int64_t pos);

/* The request waits again, its pages are given back; what was computed stays cached. */
void scheduler_preempt(struct scheduler *s, struct entry *x);

/* The request is gone. */
void scheduler_forget(struct scheduler *s, struct entry *x);

enum err_code scheduler_push_end(struct scheduler *s, const struct entry *x, enum reason reason,
                                 struct err *e);

#endif
