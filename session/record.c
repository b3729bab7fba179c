/* SPDX-License-Identifier: MIT */
/* session/record.c - see record.h. */
#include "session/record.h"

#include <inttypes.h>

#include "session/session.h"

enum err_code record_open(struct draft *d, const struct model *m, const char *path, struct err *e)
{
    if (m->hp.n_experts == 0 || m->hp.n_dense >= m->hp.n_layers)
        return err_set(e, ERR_USAGE,
                       "--record-experts: the model has no routed experts; leave it out");
    return draft_open(d, path, e);
}

enum err_code session_keep_record(struct session *s, struct err *e)
{
    const struct hparams *hp = &s->model->hp;
    const uint64_t *counts = s->record.file ? engine_expert_counts(s->engine) : NULL;

    if (!counts)
        return ERR_OK;
    for (int l = hp->n_dense; l < hp->n_layers; l++)
        for (int x = 0; x < hp->n_experts; x++)
            fprintf(s->record.file, "%d %d %" PRIu64 "\n", l, x,
                    counts[(int64_t)l * hp->n_experts + x]);
    return draft_keep(&s->record, e);
}
