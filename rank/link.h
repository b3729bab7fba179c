/* SPDX-License-Identifier: MIT */
/* rank/link.h - the one socket between the coordinator and rank 0.
 *
 * Frames: u32 length of the payload, u8 kind, payload; integers little-endian.  The socket is a
 * Unix socket on this host, otherwise TCP; the first frame of rank 0 proves that it was started
 * by this coordinator (the token of LATENTD_LINK_TOKEN).
 *
 *     rank 0 -> coordinator                       coordinator -> rank 0
 *     HELLO     version, token, pid               BEGIN   a request takes a sequence
 *     PLAN      what is where, as texts           STEP    one step
 *     RANKS     what each is and has done         QUIT    finish and leave
 *     READY     what the group is
 *     RESULT    what a step produced
 *     FAULT     one line; the group is ending
 *
 * PLAN comes before weights are loaded, RANKS meanwhile and then about once a second in front of a
 * result.  Results come in the order of the steps; the coordinator may send the next step before it
 * has the last result only if that step does not depend on it.  Nothing but tokens crosses the
 * socket: sampling runs on rank 0.
 */
#ifndef RANK_LINK_H
#define RANK_LINK_H

#include "base/str.h"
#include "rank/comm.h"
#include "rank/sampler.h"
#include "rank/step.h"

enum { LINK_VERSION = 3, LINK_MAX_FRAME = 64 << 20, LINK_MAX_RANKS = 1024 };

enum link_kind {
    LINK_HELLO = 1,
    LINK_RANKS,
    LINK_READY,
    LINK_RESULT,
    LINK_FAULT,
    LINK_PLAN,
    LINK_BEGIN = 64,
    LINK_STEP,
    LINK_QUIT,
};

struct link_hello {
    uint32_t version;
    int64_t pid;
    char token[65]; /* hexadecimal */
};

enum link_plan_text {
    LINK_PLAN_REPORT,  /* for people                             */
    LINK_PLAN_JSON,    /* at most LINK_JSON_MAX bytes, if it can */
    LINK_PLAN_SUMMARY, /* a few lines                            */
    LINK_PLAN_METRICS, /* Prometheus text                        */
    LINK_PLAN_TEXTS
};
enum { LINK_JSON_MAX = 1000000 };

struct link_plan {
    struct str text[LINK_PLAN_TEXTS];
};

struct link_rank {
    char host[64], device[16];
    int32_t n_threads;
    int64_t weights_bytes, cache_bytes; /* that it keeps, as planned */
    int64_t figures[COMM_FIGURES];
};

struct link_ranks {
    int32_t n; /* at least 1 */
    struct link_rank *v;
};

struct link_ready {
    struct step_limits limits;
    int32_t n_ranks;
    char model_hash[65]; /* of the headers and sizes of the files, the same on every rank */
    char kernel_set[64]; /* build, ISA and options that decide the bits */
    char cache_type[8];
    int32_t mla, exact_math; /* what batch_token.form must follow */
};

/* The request on `seq` from now on: how to sample, and all tokens known before its first step
 * (prompt, and after a restart what was produced). */
struct link_begin {
    int32_t seq;
    struct sampling sampling; /* bias: owned by the frame it was read from */
    int32_t *history;
    int64_t n_history;
};

/* For every token of the step with want_logits, in batch order: the token sampled to follow it.
 * bad_layer as in struct batch_token: then `token` is -1.  Beyond what that knows, the last layer
 * + 2: bias and penalties left none to choose. */
struct link_sample {
    int32_t seq;
    int64_t pos; /* of the new token */
    int32_t token, bad_layer;
};

struct link_result {
    int64_t step;
    double step_us, sum_us;
    int32_t n_samples, n_bad; /* bad: tokens of the batch whose sums failed, wanted or not */
    struct link_sample *samples;
    struct link_bad {
        int32_t seq;
        int64_t pos;
        int32_t bad_layer;
    } * bad;
};

/* One frame as it came: kind and payload[n]. */
struct link_frame {
    uint8_t kind;
    uint8_t *payload;
    size_t n;
};

/* Blocking; EINTR is retried.  link_recv: ERR_IO at the end of the stream, or a
 * frame above LINK_MAX_FRAME: ERR_FORMAT.  The payload is the caller's (free). */
enum err_code link_send(int fd, enum link_kind kind, const void *payload, size_t n, struct err *e);
enum err_code link_recv(int fd, struct link_frame *f, struct err *e);

/* Whether the first frame of bytes[n] is whole: 1; 0: not yet; -1: it has more than max bytes. */
int link_is_whole(const uint8_t *bytes, size_t n, size_t max);

/* Each kind to bytes (appended) and back; reading checks every length and count. */
enum err_code link_put_hello(struct str *out, const struct link_hello *h, struct err *e);
enum err_code link_get_hello(struct link_hello *h, const struct link_frame *f, struct err *e);
enum err_code link_put_plan(struct str *out, const struct link_plan *p, struct err *e);
enum err_code link_get_plan(struct link_plan *p, const struct link_frame *f, struct err *e);
void link_plan_free(struct link_plan *p);
enum err_code link_put_ranks(struct str *out, const struct link_ranks *r, struct err *e);
enum err_code link_get_ranks(struct link_ranks *r, const struct link_frame *f, struct err *e);
void link_ranks_free(struct link_ranks *r);
enum err_code link_put_ready(struct str *out, const struct link_ready *r, struct err *e);
enum err_code link_get_ready(struct link_ready *r, const struct link_frame *f, struct err *e);
enum err_code link_put_begin(struct str *out, const struct link_begin *b, struct err *e);
enum err_code link_get_begin(struct link_begin *b, const struct link_frame *f,
                             const struct step_limits *l, struct err *e);
void link_begin_free(struct link_begin *b);
enum err_code link_put_result(struct str *out, const struct link_result *r, struct err *e);
enum err_code link_get_result(struct link_result *r, const struct link_frame *f,
                              const struct step_limits *l, struct err *e);
void link_result_free(struct link_result *r);

#endif
