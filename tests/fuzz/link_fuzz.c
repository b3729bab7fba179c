/* SPDX-License-Identifier: MIT */
/* tests/fuzz/link_fuzz.c - any bytes as a frame of the link and as a step.
 *
 * The first byte is the kind.  What is taken must, written again, be the bytes that came: so
 * nothing is lost and nothing was made up.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rank/link.h"

static const struct step_limits limits = {
    .n_vocab = 300, .n_sequences = 8, .n_pages = 64, .max_batch = 32, .n_context = 1000
};

static void same(struct str *s, const struct link_frame *f)
{
    if (s->len != f->n || (f->n && memcmp(s->data, f->payload, f->n) != 0))
        abort();
}

static void try_step(const struct link_frame *f, struct str *s)
{
    struct step step;

    if (step_decode(&step, f->payload, f->n, &limits, NULL) != ERR_OK)
        return;
    (void)step_encode(&step, s, NULL);
    same(s, f);
    step_free(&step);
}

static void try_begin(const struct link_frame *f, struct str *s)
{
    struct link_begin b;

    if (link_get_begin(&b, f, &limits, NULL) != ERR_OK)
        return;
    (void)link_put_begin(s, &b, NULL);
    same(s, f);
    link_begin_free(&b);
}

static void try_result(const struct link_frame *f, struct str *s)
{
    struct link_result r;

    if (link_get_result(&r, f, &limits, NULL) != ERR_OK)
        return;
    (void)link_put_result(s, &r, NULL);
    same(s, f);
    link_result_free(&r);
}

static void try_small(const struct link_frame *f, struct str *s)
{
    struct link_hello h;
    struct link_plan plan;
    struct link_ranks ranks;
    struct link_ready r;
    int taken = 0;

    if (link_get_hello(&h, f, NULL) == ERR_OK)
        taken = link_put_hello(s, &h, NULL) == ERR_OK;
    if (link_get_plan(&plan, f, NULL) == ERR_OK) {
        taken = link_put_plan(s, &plan, NULL) == ERR_OK;
        link_plan_free(&plan);
    }
    if (link_get_ranks(&ranks, f, NULL) == ERR_OK) {
        taken = link_put_ranks(s, &ranks, NULL) == ERR_OK;
        link_ranks_free(&ranks);
    }
    if (link_get_ready(&r, f, NULL) == ERR_OK)
        taken = link_put_ready(s, &r, NULL) == ERR_OK;
    if (taken)
        same(s, f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str s = { 0 };

    if (size == 0)
        return 0;
    struct link_frame f = { .kind = data[0], .payload = malloc(size), .n = size - 1 };
    if (!f.payload)
        return 0;
    memcpy(f.payload, data + 1, f.n);
    if (f.kind == LINK_STEP)
        try_step(&f, &s);
    else if (f.kind == LINK_BEGIN)
        try_begin(&f, &s);
    else if (f.kind == LINK_RESULT)
        try_result(&f, &s);
    else
        try_small(&f, &s);
    str_free(&s);
    free(f.payload);
    return 0;
}
