/* SPDX-License-Identifier: MIT */
/* cli/sampling_args.c - the sampling options as the sampler wants them. */
#include <math.h>
#include <stdlib.h>
#include <sys/random.h>

#include "cli/completion.h"

int logit_bias_parse(const char *text, int32_t *to_id, float *to_bias)
{
    char *sign, *end;
    long id = strtol(text, &sign, 10);

    if (sign == text || id < 0 || id > INT32_MAX || (*sign != '+' && *sign != '-'))
        return -1;
    float bias = strtof(sign, &end);
    if (end == sign || *end || isnan(bias))
        return -1;
    *to_id = (int32_t)id;
    *to_bias = bias;
    return 0;
}

static enum err_code read_biases(struct sampling *p, const struct text_list *texts, struct err *e)
{
    if (texts->n == 0)
        return ERR_OK;
    struct logit_bias *bias = calloc(texts->n, sizeof *bias);
    if (!bias)
        return err_set(e, ERR_NOMEM, "--logit-bias: no memory");
    p->bias = bias;
    p->n_bias = (int)texts->n;
    for (size_t i = 0; i < texts->n; i++)
        if (logit_bias_parse(texts->v[i], &bias[i].id, &bias[i].bias))
            return err_set(e, ERR_USAGE,
                           "--logit-bias %.40s: not a bias; give ID+X or ID-X, as in 1234-0.5",
                           texts->v[i]);
    return ERR_OK;
}

enum err_code sampling_args_read(struct sampling *p, const struct options *o, struct err *e)
{
    uint32_t random;

    sampling_default(p);
    p->temperature = (float)o->temperature;
    p->top_k = (int)o->top_k;
    p->top_p = (float)o->top_p;
    p->min_p = (float)o->min_p;
    p->repeat_penalty = (float)o->repeat_penalty;
    p->presence_penalty = (float)o->presence_penalty;
    p->frequency_penalty = (float)o->frequency_penalty;
    p->penalty_last_n = (int)o->repeat_last_n;
    p->seed = (uint64_t)o->seed;
    if (o->seed < 0) {
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
            return err_sys(e, "no random seed; give --seed");
        p->seed = random;
    }
    TRY(read_biases(p, &o->logit_bias, e));
    return sampling_check(p, e);
}

void sampling_args_free(struct sampling *p)
{
    free((void *)p->bias);
    p->bias = NULL;
    p->n_bias = 0;
}
