/* SPDX-License-Identifier: MIT */
/* tests/support/fake_book.h - a book of requests without a model, for tests of the protocol.
 *
 * It stands in for daemon/requests.h and daemon/status.h: token k of any request is k, its text
 * "w<k> ", and it ends after max_tokens (20 if not said).  Tokens come by fake_book_produce, or by
 * the clock.  With a file it knows after a restart what it had accepted.
 */
#ifndef TESTS_SUPPORT_FAKE_BOOK_H
#define TESTS_SUPPORT_FAKE_BOOK_H

#include "daemon/requests.h"

/* file: NULL: nothing is kept.  rate_ms: milliseconds a token; 0: by fake_book_produce. */
struct requests *fake_book_open(const char *file, int rate_ms);
void fake_book_close(struct requests *b);

void fake_book_produce(struct requests *b, const char *id, int n);

/* Submit waits until this is called with 0. */
void fake_book_hold(struct requests *b, int hold);

/* Submit answers this from now on (ANSWER_OK: no longer). */
void fake_book_refuse(struct requests *b, enum answer answer);

int fake_book_waiters(struct requests *b);

/* How often a request of this id was newly accepted. */
int fake_book_accepted(struct requests *b, const char *id);

/* How many Submits were refused before they came here. */
int fake_book_refused(struct requests *b);

/* The stop strings and the prompt of the last Submit. */
const char *fake_book_last_stop(struct requests *b);
int64_t fake_book_last_prompt(struct requests *b);
int fake_book_last_end_ids(struct requests *b);

#endif
