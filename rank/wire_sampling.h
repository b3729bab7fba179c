/* SPDX-License-Identifier: MIT */
/* rank/wire_sampling.h - the numbers of struct sampling as bytes, for the link and the journal.
 *
 * All but seed and biases, which the two keep in different forms.
 */
#ifndef RANK_WIRE_SAMPLING_H
#define RANK_WIRE_SAMPLING_H

#include "rank/sampler.h"
#include "rank/wire.h"

static inline void wire_put_sampling(struct str *out, const struct sampling *s)
{
    wire_put_f32(out, s->temperature);
    wire_put_i32(out, s->top_k);
    wire_put_f32(out, s->top_p);
    wire_put_f32(out, s->min_p);
    wire_put_f32(out, s->repeat_penalty);
    wire_put_f32(out, s->presence_penalty);
    wire_put_f32(out, s->frequency_penalty);
    wire_put_i32(out, s->penalty_last_n);
}

static inline void wire_get_sampling(struct wire *w, struct sampling *s)
{
    s->temperature = wire_get_f32(w);
    s->top_k = wire_get_i32(w);
    s->top_p = wire_get_f32(w);
    s->min_p = wire_get_f32(w);
    s->repeat_penalty = wire_get_f32(w);
    s->presence_penalty = wire_get_f32(w);
    s->frequency_penalty = wire_get_f32(w);
    s->penalty_last_n = wire_get_i32(w);
}

#endif
