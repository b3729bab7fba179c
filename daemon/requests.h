/* SPDX-License-Identifier: MIT */
/* daemon/requests.h - the book of requests: what clients asked for and what came of it.
 *
 * A request is known by the id that its client chose.  It is accepted once the journal has it,
 * then it waits, runs, and ends; what it produced is read as a stream of events: token 1 .. n,
 * then one end.  Only what the journal holds is ever shown, so event k is the same for ever,
 * whatever dies in between.
 *
 *     submit -> RECORDING -> WAITING <-> RUNNING -> ENDED -> forgotten after the retention time
 *
 * All functions may be called by any thread; one lock guards the book.  No call waits: where an
 * answer is not there yet, it is ANSWER_WAIT and the caller's waiter is called later.
 */
#ifndef DAEMON_REQUESTS_H
#define DAEMON_REQUESTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "rank/sampler.h"

enum {
    REQUEST_ID_MAX = 128,     /* bytes: visible ASCII */
    REQUEST_CLIENT_MAX = 128, /* bytes: visible ASCII or empty */
    REQUEST_STOPS_MAX = 16,
    REQUEST_STOP_MAX = 256, /* bytes of one stop string */
    REQUEST_BIAS_MAX = 4096,
    REQUEST_END_IDS_MAX = 4,
    REQUEST_PRIORITY_MAX = 100,     /* -100 .. 100 */
    REQUEST_EVENT_BYTES = 48 << 10, /* of text in one reply, and so a frame stays below 64 KiB */
    REQUEST_EVENT_TOKENS = 2048,
};
#define REQUEST_DEADLINE_MAX_MS (30LL * 24 * 3600 * 1000)

enum answer {
#define X(NAME, name, text) ANSWER_##NAME,
#include "daemon/answers.def"
#undef X
};
const char *answer_name(enum answer a); /* "queue_full" */

enum reason {
#define X(NAME, name, text) REASON_##NAME,
#include "daemon/reasons.def"
#undef X
};
const char *reason_name(enum reason r); /* "stop"; "" for REASON_NONE */

enum request_state { REQUEST_RECORDING, REQUEST_WAITING, REQUEST_RUNNING, REQUEST_ENDED };

/* A string of bytes that may hold anything, as it came from a client. */
struct request_bytes {
    const char *data;
    size_t len;
};

/* What a client asks for.  Borrowed by requests_submit. */
struct request_spec {
    const char *id;     /* chosen by the client, unique among the requests that are kept */
    const char *client; /* requests of one name share one turn; "" is a name too         */
    const int32_t *prompt;
    int64_t n_prompt;                  /* at least 1 */
    int64_t max_tokens;                /* at least 1; -1: until the context is full */
    struct sampling sampling;          /* see has_seed */
    int has_seed;                      /* 0: the book draws a seed when it accepts */
    const struct request_bytes *stops; /* [n_stops], each valid UTF-8 without NUL */
    int n_stops;
    int priority;           /* higher goes first */
    int64_t deadline_ms;    /* from the acceptance on; 0: none */
    int ignore_eos;         /* go on after a token that ends the text */
    const int32_t *end_ids; /* [n_end_ids], tokens that end this text too: a chat format's marker */
    int n_end_ids;
};

/* One request as others may see it. */
struct request_view {
    char id[REQUEST_ID_MAX + 1], client[REQUEST_CLIENT_MAX + 1];
    enum request_state state;
    enum reason reason;
    char message[256]; /* of an end that needs one */
    int priority;
    uint64_t seed;
    int64_t n_prompt;
    int64_t n_cached;    /* positions of the prompt that were not computed again */
    int64_t n_produced;  /* tokens that can be read */
    int64_t queue_place; /* 1: next; 0: does not wait */
    int64_t accepted_ms, first_token_ms, ended_ms; /* Unix time; 0: not yet */
};

/* Events after a cursor. */
struct request_events {
    int64_t cursor;  /* for the next call: events read so far */
    int32_t *tokens; /* [n_tokens], as produced, an end-of-text token included */
    int n_tokens;
    struct str text; /* what these events add to the text: whole UTF-8 characters */
    int ended;       /* the end event is among them: view says how */
    struct request_view view;
};
void request_events_free(struct request_events *r);

/* Somebody who waits.  The memory is the caller's and must stay until the waiter was called or
 * forgotten.  wake is called once, by some thread that holds the book's lock: it must neither
 * wait nor call the book, only note that the question is to be asked again. */
struct requests_waiter {
    void (*wake)(struct requests_waiter *w);
    struct requests_waiter *next, **at; /* the book's, as the next one; start as zeros */
    int64_t cursor;                     /* that events are wanted behind */
};

struct requests;

/* Accepts a request.  ANSWER_OK: the journal has it (or had it already: submitting the same again
 * is no error).  ANSWER_WAIT: it is being recorded; ask again with the same spec when woken.
 * ANSWER_INVALID, CONFLICT, TOO_LONG, QUEUE_FULL, JOURNAL_FULL, DRAINING, NO_MEMORY: refused, e
 * says why and names the field and its range.  view: set for ANSWER_OK; may be NULL. */
enum answer requests_submit(struct requests *b, const struct request_spec *spec,
                            struct requests_waiter *w, struct request_view *view, struct err *e);

/* Counts a request that was refused before it came to the book. */
void requests_note_refused(struct requests *b);

/* Reads the events after `cursor` (0: from the first token).  ANSWER_OK: at least one event, or
 * once more the end where the cursor is not before it; the caller frees it.  ANSWER_WAIT: none yet,
 * also when the cursor is beyond what is recorded.  w NULL: does not wait, answers OK with no
 * event.  ANSWER_INVALID: a negative cursor. ANSWER_UNKNOWN. */
enum answer requests_next(struct requests *b, const char *id, int64_t cursor,
                          struct requests_waiter *w, struct request_events *out, struct err *e);

/* Asks for the end of a request.  ANSWER_OK: it has ended, and the journal knows it.  ANSWER_WAIT:
 * it will; ask again when woken.  w NULL: does not wait, answers JOURNAL_FULL where the end is not
 * recorded yet.  ANSWER_UNKNOWN. */
enum answer requests_cancel(struct requests *b, const char *id, struct requests_waiter *w,
                            struct err *e);

/* The requests that are kept, newest first, at most `max`, those of one client with `client`
 * not NULL, only live ones with `live`.  Returns their number; *out is the caller's (free).
 * -1: no memory. */
int requests_list(struct requests *b, const char *client, int live, int max,
                  struct request_view **out);

/* Takes a waiter back: after this it is not called.  Harmless for one that was called, or that
 * never waited. */
void requests_forget(struct requests *b, struct requests_waiter *w);

/* With `on`, submit answers DRAINING from now on.  Returns the number of live requests. */
int requests_drain(struct requests *b, int on);

#endif
