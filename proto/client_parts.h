/* SPDX-License-Identifier: MIT */
/* proto/client_parts.h - what the files of liblatent share. */
#ifndef PROTO_CLIENT_PARTS_H
#define PROTO_CLIENT_PARTS_H

#include <time.h>

#include "proto/client_wire.h"
#include "proto/envelope.h"
#include "proto/latent.h"

enum { CLIENT_ANSWER_MAX = 1 << 20 }; /* bytes: the protocol's promise */

struct latent {
    struct client_wire *wire;
    char *endpoint, *token, *agent;
    unsigned connect_ms, answer_ms, resend_ms;
    int (*waiting)(void *arg, int connected);
    void *arg;
    Latentd__Envelope *answer; /* of the last call: what it returned points there */
    struct latent_info *infos; /* of the last latent_list */
    struct latent_rank *ranks; /* of the last latent_status */
};

/* Fills *e and returns the code. */
enum latent_code client_fail(struct latent_error *e, enum latent_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A question of one method, without its body. */
void client_question(const struct latent *c, Latentd__Envelope *q, Latentd__Method method);

/* Asks, and waits for the answer with the body `want`; it is c->answer then. */
enum latent_code client_ask(struct latent *c, const Latentd__Envelope *q,
                            Latentd__Envelope__BodyCase want, struct latent_error *e);

/* The waiting function, if there is one, says that nobody waits any longer. */
int client_is_over(const struct latent *c);

static inline int64_t client_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A field of text that may be absent. */
static inline const char *client_text(const char *s)
{
    return s ? s : "";
}

#endif
