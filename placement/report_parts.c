/* SPDX-License-Identifier: MIT */
#include "placement/report_parts.h"

#include <inttypes.h>
#include <stdio.h>

const char *const report_group_names[N_REPORT_GROUPS] = {
    [GROUP_ATTENTION] = "attention",        [GROUP_FFN] = "dense FFN",
    [GROUP_SHARED] = "shared experts",      [GROUP_EXPERTS] = "routed experts",
    [GROUP_SMALL] = "norms and routers",    [GROUP_ENDS] = "embedding and output",
    [GROUP_UNUSED] = "not used by latentd",
};

enum report_group report_group_of(const struct plan_tensor *t)
{
    switch (t->role) {
    case ROLE_TOKEN_EMBD:
    case ROLE_OUTPUT:
    case ROLE_OUTPUT_NORM:
        return GROUP_ENDS;
    case ROLE_ATTN_NORM:
    case ROLE_ATTN_Q_A_NORM:
    case ROLE_ATTN_KV_A_NORM:
    case ROLE_FFN_NORM:
    case ROLE_ROUTER:
    case ROLE_ROUTER_BIAS:
        return GROUP_SMALL;
    case ROLE_FFN_GATE:
    case ROLE_FFN_UP:
    case ROLE_FFN_DOWN:
        return GROUP_FFN;
    case ROLE_GATE_SHEXP:
    case ROLE_UP_SHEXP:
    case ROLE_DOWN_SHEXP:
        return GROUP_SHARED;
    case ROLE_GATE_EXPS:
    case ROLE_UP_EXPS:
    case ROLE_GATE_UP_EXPS:
    case ROLE_DOWN_EXPS:
        return GROUP_EXPERTS;
    case ROLE_COUNT:
        return GROUP_UNUSED;
    default:
        return GROUP_ATTENTION;
    }
}

const char *const report_piece_names[N_DEVICE_PIECES] = { "weights", "cache", "activations",
                                                          "staging", "sums",  "reserve" };

int64_t report_piece(const struct plan_device *d, int piece)
{
    const int64_t pieces[N_DEVICE_PIECES] = { d->weights_bytes, d->cache_bytes, d->activation_bytes,
                                              d->staging_bytes, d->comm_bytes,  d->reserve_bytes };
    return pieces[piece];
}

const char *report_phase_name(enum plan_phase phase)
{
    static const char *const names[] = { "decode", "prefill", "load" };
    return names[phase];
}

double report_phase_us(const struct plan_predict *p, enum plan_phase phase)
{
    double us = 0;

    for (int i = 0; i < p->n_terms; i++)
        us += p->terms[i].phase == phase ? p->terms[i].us : 0;
    return us;
}

const char *report_time(char *buf, size_t size, double us)
{
    if (us < 999.5)
        snprintf(buf, size, "%.0f us", us);
    else if (us < 999.5e3)
        snprintf(buf, size, "%.2f ms", us / 1e3);
    else
        snprintf(buf, size, "%.1f s", us / 1e6);
    return buf;
}

void report_slice(struct str *out, const struct plan *p, const struct plan_part *part)
{
    str_puts(out, plan_axis_name(part->axis));
    for (int i = 0; part->axis != AXIS_ALL && i < part->n_ranges; i++) {
        const struct plan_range *r = &p->ranges[part->first_range + i];
        str_printf(out, i ? ",%" PRId64 : " %" PRId64, r->begin);
        if (r->end - r->begin > 1)
            str_printf(out, "-%" PRId64, r->end - 1);
    }
}

const char *report_rule_error(const struct report *r, int rule)
{
    for (int i = 0; i < r->findings->n; i++) {
        const struct finding *f = &r->findings->v[i];
        if (f->level == FINDING_ERROR && f->rule == rule)
            return f->text;
    }
    return r->rules->v[rule].error;
}
