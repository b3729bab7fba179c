/* SPDX-License-Identifier: MIT */
/* daemon/status_board.h - how the threads of the daemon write on the board of status.h. */
#ifndef DAEMON_STATUS_BOARD_H
#define DAEMON_STATUS_BOARD_H

#include "base/err.h"
#include "daemon/requests.h"
#include "daemon/scheduler.h"
#include "daemon/status.h"

struct journal;

/* What is known from the start; copied. */
struct status_facts {
    const char *model_path, *model_name, *model_hash, *reuse;
    int n_vocab;
    struct journal *journal; /* borrowed, like the book */
    struct requests *book;
};

enum err_code status_create(struct status **out, const struct status_facts *f, struct err *e);
void status_free(struct status **s);

void status_set_phase(struct status *s, enum daemon_phase p);

/* The ranks ended: why, one line. */
void status_note_restart(struct status *s, const char *why);
/* Takes the texts; before, and once ranks have come, theirs. */
void status_set_plan(struct status *s, struct link_plan *p);

/* Errors: ERR_NOMEM. */
enum err_code status_note_ranks(struct status *s, const struct link_ranks *r, struct err *e);
void status_note_ready(struct status *s, const struct link_ready *r);
void status_note_counts(struct status *s, const struct scheduler_counts *c);

/* A step came back, or, with nothing computed, a probe: round trip and pure step time, time in
 * sums. */
void status_note_step(struct status *s, int computed, double round_us, double step_us,
                      double sum_us);

/* A request's first token, from its acceptance; a further one, from the one before. */
void status_note_first_token(struct status *s, double seconds);
void status_note_next_token(struct status *s, double seconds);

/* Microseconds that the median of the last steps with tokens took. */
double status_median_step_us(struct status *s);

#endif
