/* SPDX-License-Identifier: MIT */
#include "cli/roofline.h"

#include <math.h>

static void add_tensor(struct model_work *w, const struct model *m, int layer,
                       enum tensor_role role)
{
    const struct gguf_tensor *t = model_tensor(m, layer, role);

    if (!t)
        return;
    double values = (double)t->dim[0] * (double)t->dim[1] * (double)t->dim[2];
    switch (role) {
    case ROLE_TOKEN_EMBD: /* one row of it, unless it is the output matrix too */
        if (model_tensor(m, -1, ROLE_OUTPUT))
            return;
        break;
    case ROLE_ATTN_KV_B: /* the engine keeps k_b and v_b, however the file stores them */
        if (model_tensor(m, layer, ROLE_ATTN_K_B))
            return;
        break;
    case ROLE_GATE_EXPS:
    case ROLE_UP_EXPS:
    case ROLE_GATE_UP_EXPS:
    case ROLE_DOWN_EXPS:
        w->expert_bytes += (double)t->bytes / w->n_experts;
        w->expert_macs += values / w->n_experts;
        return;
    default:
        break;
    }
    w->shared_bytes += (double)t->bytes;
    w->shared_macs += values;
}

void model_work_read(struct model_work *w, const struct model *m)
{
    *w =
        (struct model_work){ .n_experts = m->hp.n_experts, .n_experts_used = m->hp.n_experts_used };
    for (int layer = -1; layer < m->hp.n_layers; layer++)
        for (int role = 0; role < ROLE_COUNT; role++)
            add_tensor(w, m, layer, (enum tensor_role)role);
}

double roofline_decode_s(const struct machine *m, double weight_bytes, double cache_bytes)
{
    return (weight_bytes + cache_bytes) / m->read_bytes_per_s;
}

/* Part of the experts that at least one of n tokens uses. */
static double experts_met(const struct model_work *w, int64_t n)
{
    if (w->n_experts == 0)
        return 0;
    return 1 - pow(1 - (double)w->n_experts_used / w->n_experts, (double)n);
}

double roofline_prefill_s(const struct machine *m, const struct model_work *w, int64_t n,
                          int64_t step)
{
    double macs = (double)n * (w->shared_macs + w->n_experts_used * w->expert_macs);
    double seconds = 2 * macs / m->int8_ops_per_s;

    for (int64_t at = 0; at < n; at += step) {
        int64_t now = n - at < step ? n - at : step;
        double bytes = w->shared_bytes + experts_met(w, now) * w->n_experts * w->expert_bytes;
        seconds += bytes / m->read_bytes_per_s;
    }
    return seconds;
}
