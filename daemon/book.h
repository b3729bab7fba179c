/* SPDX-License-Identifier: MIT */
/* daemon/book.h - the book of requests as those see it who work for it.
 *
 * requests.h is for clients.  Here: how a request is kept, how the driver takes new ones and says
 * what came of them, and how the journal's word makes it visible.  Fields of a request are guarded
 * by the book's lock unless they never change.
 */
#ifndef DAEMON_BOOK_H
#define DAEMON_BOOK_H

#include <pthread.h>

#include "daemon/journal.h"
#include "daemon/requests.h"
#include "model/tokenizer.h"
#include "rank/text_filter.h"

struct request {
    struct request *next, *before; /* of the list it is in: live, or ended */
    size_t bytes;                  /* that it had when it came into that list */
    /* Never changes. */
    int64_t number;
    struct request_spec spec; /* its arrays lie in `memory` */
    struct str blob;          /* the spec as the journal has it */
    char *memory;
    /* On the monotonic clock, which nobody sets.  deadline_ms: 0: none. */
    int64_t accepted_at_ms, deadline_ms;
    /* What is visible: state, counts, times. */
    struct request_view view;
    int32_t *tokens; /* [n_tokens] of cap, those not yet visible too */
    int64_t n_tokens, cap;
    uint32_t *text_ends; /* [n_tokens]: length of the text that tokens 0 .. i show */
    struct str text;
    struct text_filter *filter;
    enum reason ending; /* decided, but not recorded yet */
    int64_t n_cached, first_token_ms;
    double last_token_s;      /* the driver's: when it came */
    int cancel_wanted, taken; /* taken: the driver knows it */
    int foreign;              /* of another model: what its tokens say cannot be read here */
    struct requests_waiter *waiters;
};

struct requests_options {
    const struct tokenizer *tokenizer; /* borrowed */
    struct journal *journal;           /* borrowed, not started: the book starts it */
    const char *model_hash;            /* requests of another model end as failed */
    int n_vocab;
    int64_t n_context; /* of the model; prompts beyond are refused */
    int max_waiting;
};

/* Counters for the status board. */
struct requests_counts {
    int waiting, running, draining;
    int64_t accepted, refused, by_reason[REASON_FAILED + 1];
};

/* Makes the book, takes up what the journal holds, starts the journal's thread.
 * Errors: ERR_NOMEM; ERR_IO. */
enum err_code requests_create(struct requests **out, const struct requests_options *o,
                              struct err *e);
void requests_free(struct requests **b);

/* fn is called from now on, with the book's lock held, when there is something for the driver, or
 * the journal's state changed.  NULL: nobody any more. */
void requests_on_news(struct requests *b, void (*fn)(void *arg), void *arg);

void requests_count(struct requests *b, struct requests_counts *out);

/* A prompt that is longer is refused from now on. */
void requests_set_context(struct requests *b, int64_t n_context);

/* ---- For the driver, one thread ------------------------------------------- */

/* Calls fn for every live, recorded request that the driver has not taken yet (or, with `all`,
 * for every one, as after a new start of the ranks).  fn runs under the lock and may keep the
 * pointer: a request stays until the driver ends it.  Non-zero from fn ends the walk. */
typedef int book_fn(void *arg, struct request *r);
int book_take(struct requests *b, int all, book_fn *fn, void *arg);

/* Calls fn for those that are to be cancelled, or whose deadline has passed, and have not ended.
 * now_ms: of the monotonic clock.  Returns the next deadline, 0: none. */
int64_t book_take_ends(struct requests *b, int64_t now_ms, book_fn *fn, void *arg);

/* The request runs (or waits again, running 0).  n_cached: as scheduler_begin. */
void book_set_running(struct requests *b, struct request *r, int running, int64_t n_cached);

/* All that run wait again: the ranks are gone. */
void book_all_wait(struct requests *b);

/* Adds a token to the request and to the entry.  Tells how the request ends with it:
 * REASON_NONE, it does not (or had ended before).  full: it may have no more.
 * Errors: ERR_NOMEM. */
enum err_code book_add_token(struct requests *b, struct request *r, int32_t token, int full,
                             struct journal_entry *x, enum reason *ends, struct err *e);

/* The end of a request, into the entry.  message: NULL or one line.  Errors: ERR_NOMEM. */
enum err_code book_add_end(struct requests *b, struct request *r, enum reason reason,
                           const char *message, struct journal_entry *x, struct err *e);

/* What the bits depend on, as one text: kept in the journal.  Warns where requests that have tokens
 * go on with another one than they began with. */
void book_note_maker(struct requests *b, const char *maker);

/* The live request of this number, or NULL. */
struct request *book_find_live(struct requests *b, int64_t number);

/* ---- Specs (requests_spec.c) ---------------------------------------------- */

/* Checks every field.  Errors: ERR_USAGE: names it, with its range. */
enum err_code request_spec_check(const struct request_spec *s, int n_vocab, struct err *e);

/* As bytes, appended; the same spec gives the same bytes, whatever its seed if it has none. */
void request_spec_put(struct str *out, const struct request_spec *s, uint64_t seed);

/* Takes a spec out of bytes[n]; its arrays are in *memory (free).  id is not part of it.
 * Errors: ERR_FORMAT; ERR_NOMEM. */
enum err_code request_spec_get(struct request_spec *s, char **memory, const void *bytes, size_t n,
                               struct err *e);

#endif
