/* SPDX-License-Identifier: MIT */
/* rank/follow.c - how rank 0 makes the other ranks do what it does.
 *
 * A message is its length and the encoded step (rank/step.h); what fits into the first block
 * travels in one broadcast, the rest in a second.  A length of -1 is the end.
 */
#include <string.h>

#include "rank/engine_parts.h"

enum { BLOCK_BYTES = 1024 };

struct block {
    int64_t length;
    char bytes[BLOCK_BYTES - sizeof(int64_t)];
};

enum err_code follow_send(struct engine *e, const struct step *s, struct err *err)
{
    struct str *m = &e->message;
    struct block first = { 0 };

    str_clear(m);
    TRY(step_encode(s, m, err));
    first.length = (int64_t)m->len;
    memcpy(first.bytes, m->data, m->len < sizeof first.bytes ? m->len : sizeof first.bytes);
    comm_broadcast(e->comm, &first, sizeof first, 0);
    if (m->len > sizeof first.bytes)
        comm_broadcast(e->comm, m->data + sizeof first.bytes, m->len - sizeof first.bytes, 0);
    return comm_check(e->comm, err);
}

void engine_quit(struct engine *e)
{
    struct block end = { .length = -1 };

    if (comm_size(e->comm) > 1)
        comm_broadcast(e->comm, &end, sizeof end, 0);
}

/* The next message to e->message.  *end is set where there is none. */
static enum err_code receive(struct engine *e, int *end, struct err *err)
{
    struct str *m = &e->message;
    struct block first;

    comm_broadcast(e->comm, &first, sizeof first, 0);
    TRY(comm_check(e->comm, err));
    *end = first.length < 0;
    if (*end)
        return ERR_OK;
    size_t n = (size_t)first.length, here = n < sizeof first.bytes ? n : sizeof first.bytes;
    str_clear(m);
    str_append(m, first.bytes, here);
    for (char zeros[BLOCK_BYTES] = { 0 }; !m->failed && m->len < n;) {
        size_t left = n - m->len;
        str_append(m, zeros, left < sizeof zeros ? left : sizeof zeros);
    }
    if (m->failed)
        return err_set(err, ERR_NOMEM, "no memory for a step of %zu bytes", n);
    if (n > here)
        comm_broadcast(e->comm, m->data + here, n - here, 0);
    return comm_check(e->comm, err);
}

enum err_code engine_follow(struct engine *e, struct err *err)
{
    enum err_code rc;
    int end = 0;

    while ((rc = receive(e, &end, err)) == ERR_OK && !end) {
        struct step s;
        struct err refused = { 0 };
        rc = step_decode(&s, e->message.data, e->message.len, &e->limits, err);
        if (rc != ERR_OK)
            break;
        rc = engine_compute(e, &s, NULL, &refused);
        step_free(&s);
        if (rc == ERR_PEER) {
            *err = refused;
            return rc;
        }
    }
    if (rc != ERR_OK)
        comm_abort(e->comm, err->msg);
    return rc;
}
