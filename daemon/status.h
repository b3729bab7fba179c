/* SPDX-License-Identifier: MIT */
/* daemon/status.h - what the daemon says about itself.
 *
 * One board that the threads of the daemon write and that Status, Metrics and Health read.  Any
 * thread, any time; one lock.
 */
#ifndef DAEMON_STATUS_H
#define DAEMON_STATUS_H

#include <stdint.h>

#include "base/str.h"
#include "rank/link.h"

enum daemon_phase {
    PHASE_STARTING,   /* no rank has said anything yet */
    PHASE_LOADING,    /* weights are read */
    PHASE_SERVING,    /* steps run, or an idle probe did */
    PHASE_RESTARTING, /* ranks ended; waiting for the next start */
    PHASE_STOPPING,
};
const char *daemon_phase_name(enum daemon_phase p);

struct status_view {
    enum daemon_phase phase;
    int healthy;        /* a step or a probe through all ranks is not older than the interval,
                           and the journal can be written */
    char why[256];      /* if not healthy: one line */
    double last_step_s; /* seconds since the last step or probe; -1: none yet */
    int64_t load_done_bytes, load_total_bytes;
    char model_path[512], model_name[128], model_hash[65], kernel_set[64], cache_type[8];
    char reuse[8]; /* "any", "strict" */
    int n_ranks, restarts;
    int n_vocab, n_sequences, max_batch;
    int64_t n_context; /* positions one request may use; 0: not known yet */
    int64_t pages_total, pages_used, pages_cached; /* used: by live requests; cached: for reuse */
    int waiting, running, draining, journal_ok;
    int64_t uptime_s;
    int64_t prompt_tokens, cached_tokens, produced_tokens, preempted; /* since the start */
};

/* One rank.  Times are of this group's life, recent ones of about the last second with steps. */
struct status_rank {
    struct link_rank is;   /* as it says */
    double load_rate;      /* bytes a second, from the first look to the last change */
    double recent_step_us; /* of a step, computing; 0: no step yet */
    double recent_sum_us;  /* of a step, in sums */
};

struct status;

/* The ranks that said something since their last start: *out, the caller's (free).  Returns their
 * number; -1: no memory. */
int status_ranks(struct status *s, struct status_rank **out);

void status_read(struct status *s, struct status_view *out);

/* One text of the plan, appended; nothing while there is no plan yet. */
void status_plan(struct status *s, enum link_plan_text which, struct str *out);

/* Prometheus text of everything, appended. */
void status_metrics(struct status *s, struct str *out);

#endif
