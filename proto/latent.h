/* SPDX-License-Identifier: MIT */
/* latent.h - liblatent, the C client of latentd.
 *
 *     struct latent *c;
 *     struct latent_error e;
 *     if (latent_connect(&c, NULL, &e)) ...            // ipc:///run/latentd/latentd.sock
 *     struct latent_request r;
 *     latent_request_init(&r);
 *     r.id = "mine-1"; r.text = "Once upon"; r.text_len = 9;
 *     struct latent_stream s;
 *     if (latent_submit(c, &r, NULL, &e)) ...
 *     latent_stream_init(&s, r.id, 0);
 *     if (latent_follow(c, &s, print_chunk, NULL, &e)) ...
 *     latent_close(&c);
 *
 * Errors are values: every function that can fail returns an enum latent_code, LATENT_OK being 0,
 * and fills *e, which must not be NULL.  Nothing here exits, prints, raises a signal or starts a
 * thread, whatever the other side sends.
 *
 * Answers point into the connection: what a call returns by pointer is valid until the next call
 * on the same connection.
 *
 * Threads: a connection is for one thread at a time; any number of connections may be used by any
 * number of threads.  After fork() the child must not use a connection of its parent.
 *
 * Restarts: a call that waits goes on when the daemon comes back, and loses or repeats nothing,
 * since Submit is known by its id and events by their number.  See docs/protocol.md.
 */
#ifndef LATENT_H
#define LATENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LATENT_VERSION          "0.1.0"
#define LATENT_DEFAULT_ENDPOINT "ipc:///run/latentd/latentd.sock"
#define LATENT_ID_SIZE          129 /* bytes of an id with its end */

enum latent_code {
    LATENT_OK = 0,
    /* What the daemon answered: ErrorCode of latentd.proto. */
    LATENT_BAD_MESSAGE = 1,
    LATENT_BAD_VERSION = 2,
    LATENT_UNKNOWN_METHOD = 3,
    LATENT_UNAUTHORIZED = 4,
    LATENT_INVALID_PARAMETER = 5,
    LATENT_TOO_LARGE = 6,
    LATENT_PROMPT_TOO_LONG = 7,
    LATENT_UNKNOWN_REQUEST = 8,
    LATENT_ID_CONFLICT = 9,
    LATENT_QUEUE_FULL = 10,
    LATENT_JOURNAL_FULL = 11,
    LATENT_STARTING = 12,
    LATENT_DRAINING = 13,
    LATENT_UNSUPPORTED = 14,
    LATENT_INTERNAL = 15,
    /* What this side found. */
    LATENT_USAGE = 100,       /* an argument cannot be sent */
    LATENT_UNREACHABLE = 101, /* nobody listens at the endpoint */
    LATENT_TIMEOUT = 102,     /* no answer within answer_ms */
    LATENT_PROTOCOL = 103,    /* an answer that is none */
    LATENT_NO_MEMORY = 104,
    LATENT_STOPPED = 105, /* the waiting function said so */
};

struct latent_error {
    enum latent_code code;
    unsigned retry_ms; /* asking again makes sense after so long; 0: it does not */
    char field[64];    /* the field that is wrong, or "" */
    char message[512]; /* one sentence, no newline */
};

/* ---- A connection ---------------------------------------------------------- */

struct latent;

struct latent_options {
    const char *endpoint; /* NULL: LATENT_DEFAULT_ENDPOINT */
    const char *token;    /* tcp:// needs it */
    const char *agent;    /* name and version of the program, for the daemon's log; NULL: none */
    unsigned connect_ms;  /* wait so long for a daemon to be there; 0: 2000 */
    unsigned answer_ms;   /* wait so long for an answer, restarts included; 0: for ever */
    unsigned resend_ms;   /* ask again after so long without an answer; 0: 30000 */

    /* Called about every 100 ms while a call waits, and by latent_follow after every chunk;
     * connected: a daemon is there now.  A value other than 0 ends the call with LATENT_STOPPED.
     * NULL: waits in silence. */
    int (*waiting)(void *arg, int connected);
    void *arg;
};

/* options: NULL, or zeros where nothing is wanted; its texts are copied.
 * LATENT_UNREACHABLE, LATENT_USAGE (no such endpoint), LATENT_NO_MEMORY. */
enum latent_code latent_connect(struct latent **out, const struct latent_options *options,
                                struct latent_error *e);
void latent_close(struct latent **c);

/* "queue_full": the name of a code; never NULL. */
const char *latent_code_name(enum latent_code code);

/* ---- Requests ---------------------------------------------------------------- */

enum latent_role { LATENT_SYSTEM = 1, LATENT_USER = 2, LATENT_ASSISTANT = 3 };

struct latent_message {
    enum latent_role role;
    const char *text; /* [len] bytes */
    size_t len;
};

struct latent_bias {
    int32_t id;
    float bias;
};

/* Begin with latent_request_init, which leaves everything to the daemon's defaults; then set an id,
 * one form of the prompt, and what is wanted.  All borrowed by latent_submit. */
struct latent_request {
    const char *id;     /* 1 to 128 bytes of visible ASCII; see latent_new_id */
    const char *client; /* requests of one client share its turn; NULL: none */

    const char *text; /* [text_len] bytes, as they are */
    size_t text_len;
    int parse_special;     /* names of control tokens in text become these tokens */
    const int32_t *tokens; /* [n_tokens] instead */
    size_t n_tokens;
    const struct latent_message *messages; /* [n_messages] instead */
    size_t n_messages;
    int thinking;            /* of messages: 1, 0, -1: as the model's template does */
    const char *chat_format; /* NULL: the model's own */

    int64_t max_tokens; /* -1: until the context is full */
    double temperature; /* NaN: the daemon's default, as for all of these */
    double top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    int64_t top_k;         /* -1: the default; 0: all */
    int64_t repeat_last_n; /* -2: the default; -1: all */
    int has_seed;
    uint64_t seed;
    const struct latent_bias *bias; /* [n_bias] */
    size_t n_bias;
    const char *const *stops; /* [n_stops] */
    size_t n_stops;
    int ignore_eos;
    int priority;         /* -100 to 100 */
    uint32_t deadline_ms; /* 0: none */
};

void latent_request_init(struct latent_request *r);

/* A new id, 32 random letters; LATENT_INTERNAL if the system has no random numbers. */
enum latent_code latent_new_id(char id[LATENT_ID_SIZE], struct latent_error *e);

struct latent_accepted {
    uint32_t prompt_tokens;
    uint64_t seed;
};

/* Returns once the daemon has recorded the request: from then on it is carried out, whatever dies.
 * The same request again is no error.  out: may be NULL. */
enum latent_code latent_submit(struct latent *c, const struct latent_request *r,
                               struct latent_accepted *out, struct latent_error *e);

enum latent_code latent_cancel(struct latent *c, const char *id, struct latent_error *e);

/* ---- Streams ------------------------------------------------------------------- */

/* A place in the stream of a request.  Who keeps id and cursor can go on from there, in another
 * process too. */
struct latent_stream {
    char id[LATENT_ID_SIZE];
    uint64_t cursor;  /* the last event read; 0: none */
    unsigned wait_ms; /* of one question, at most 20000 */
};

void latent_stream_init(struct latent_stream *s, const char *id, uint64_t cursor);

enum latent_state { LATENT_WAITING = 1, LATENT_RUNNING = 2, LATENT_ENDED = 3 };

enum latent_reason {
    LATENT_REASON_NONE,
    LATENT_REASON_STOP, /* the model ended the text, or a stop string came up */
    LATENT_REASON_LENGTH,
    LATENT_REASON_CANCELLED,
    LATENT_REASON_DEADLINE,
    LATENT_REASON_NUMERIC_ERROR,
    LATENT_REASON_FAILED,
};
const char *latent_reason_name(enum latent_reason r); /* "length" */
const char *latent_state_name(enum latent_state s);   /* "running" */

struct latent_chunk {
    const int32_t *tokens; /* [n_tokens] */
    size_t n_tokens;
    const char *text; /* [text_len], what the tokens add to the text: whole UTF-8 characters */
    size_t text_len;
    enum latent_state state;
    uint32_t queue_place; /* 1: the next to run; 0: does not wait */
    int ended;            /* then what follows is known */
    enum latent_reason reason;
    const char *message; /* of the end; "" */
    uint32_t prompt_tokens, cached_tokens, produced_tokens;
    uint64_t accepted_ms, first_token_ms, ended_ms; /* since 1970; 0: never */
};

/* Reads what comes after the cursor, waiting for it up to wait_ms, and moves the cursor.  Nothing
 * new: LATENT_OK with an empty chunk.  At the end or beyond it: the end once more. */
enum latent_code latent_next(struct latent *c, struct latent_stream *s, struct latent_chunk *out,
                             struct latent_error *e);

/* Reads on to the end; fn is called for every chunk that has something, and ends the reading with
 * LATENT_STOPPED by a value other than 0. */
enum latent_code latent_follow(struct latent *c, struct latent_stream *s,
                               int (*fn)(void *arg, const struct latent_chunk *chunk), void *arg,
                               struct latent_error *e);

/* ---- The daemon ------------------------------------------------------------------ */

struct latent_info {
    const char *id, *client; /* client: "" if none */
    enum latent_state state;
    enum latent_reason reason;
    int priority;
    uint32_t prompt_tokens, cached_tokens, produced_tokens, queue_place;
    uint64_t accepted_ms, ended_ms;
};

/* Those that live, then those that ended, the newest of each first; at most `limit`, 1 to 1000.
 * client: NULL for all.  live: only those that have not ended. */
enum latent_code latent_list(struct latent *c, const char *client, int live, unsigned limit,
                             const struct latent_info **out, size_t *n, struct latent_error *e);

enum latent_phase {
    LATENT_PHASE_NONE,
    LATENT_PHASE_STARTING,
    LATENT_PHASE_LOADING,
    LATENT_PHASE_SERVING,
    LATENT_PHASE_RESTARTING,
    LATENT_PHASE_STOPPING,
};
const char *latent_phase_name(enum latent_phase p); /* "loading" */

/* One rank, since the group was started last. */
struct latent_rank {
    const char *host, *device;
    uint32_t rank, threads;
    uint64_t weights_bytes, cache_bytes;
    uint64_t load_done_bytes, load_total_bytes, load_rate; /* rate: bytes a second */
    uint64_t steps, compute_us, sum_us;                    /* of steps with tokens */
    uint64_t recent_compute_us, recent_sum_us;             /* a step, of late */
};

/* Texts are "" and numbers 0 where the daemon does not know them yet. */
struct latent_status {
    enum latent_phase phase;
    const char *version, *model, *model_path, *model_hash, *kernel_set, *cache_type, *reuse;
    const char *why;  /* it is not green */
    const char *plan; /* a few lines */
    int green, draining, journal_ok;
    uint32_t pid, parallel, ranks, running, waiting, restarts;
    uint64_t uptime_s, context, load_done_bytes, load_total_bytes;
    uint64_t pages_total, pages_used, pages_cached;
    uint64_t prompt_tokens, cached_tokens, produced_tokens;
    const struct latent_rank *rank_list; /* [n_rank_list], 0 until they load */
    size_t n_rank_list;
};
enum latent_code latent_status(struct latent *c, struct latent_status *out, struct latent_error *e);

struct latent_health {
    int green;
    enum latent_phase phase;
    const char *why;
    int64_t last_ms; /* since the last step or probe; -1: none yet */
};
enum latent_code latent_health(struct latent *c, struct latent_health *out, struct latent_error *e);

/* Prometheus text, and the plan as text or JSON: text[len], with a NUL behind. */
enum latent_code latent_metrics(struct latent *c, const char **text, size_t *len,
                                struct latent_error *e);
enum latent_code latent_plan(struct latent *c, int json, const char **text, size_t *len,
                             struct latent_error *e);

/* Nothing new is taken from now on, or again with undo.  live: requests that have not ended. */
enum latent_code latent_drain(struct latent *c, int undo, uint32_t *live, struct latent_error *e);

/* add_bos: 1, 0, -1: as the model wants it. */
enum latent_code latent_tokenize(struct latent *c, const char *text, size_t len, int add_bos,
                                 int parse_special, const int32_t **ids, size_t *n,
                                 struct latent_error *e);
enum latent_code latent_detokenize(struct latent *c, const int32_t *ids, size_t n,
                                   const char **text, size_t *len, struct latent_error *e);

#ifdef __cplusplus
}
#endif

#endif
