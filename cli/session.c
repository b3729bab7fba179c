/* SPDX-License-Identifier: MIT */
#include "cli/session.h"

#include <inttypes.h>

enum err_code session_open(struct session *s, const struct options *o, int with_tokenizer,
                           struct err *e)
{
    *s = (struct session){ 0 };
    if (!o->model)
        return err_set(e, ERR_USAGE, "%s: no model; give -m FILE", commands[o->command].name);
    TRY(model_open(&s->model, o->model, 0, o->override_kv.v, (int)o->override_kv.n, e));
    if (with_tokenizer)
        TRY(tokenizer_open(&s->tokenizer, s->model->gguf, e));
    return ERR_OK;
}

enum err_code session_check_length(const struct session *s, const struct options *o,
                                   const char *what, int64_t n, struct err *e)
{
    int64_t model = s->model->hp.context_length;

    if (n > model)
        return err_set(e, ERR_FULL,
                       "%s: %" PRId64 " tokens, and the model's context holds %" PRId64
                       "; give fewer",
                       what, n, model);
    if (o->ctx_size > 0 && n > o->ctx_size)
        return err_set(e, ERR_FULL,
                       "%s: %" PRId64 " tokens, and -c leaves room for %" PRId64
                       "; give fewer, or a larger -c",
                       what, n, o->ctx_size);
    return ERR_OK;
}

enum err_code session_check_ids(const struct session *s, const int32_t *ids, size_t n,
                                struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->model->hp.n_vocab)
            return err_set(e, ERR_USAGE, "token %zu: id %d, and the model has ids 0 to %d", i,
                           ids[i], s->model->hp.n_vocab - 1);
    return ERR_OK;
}

enum err_code session_load(struct session *s, const struct options *o, int64_t n_context,
                           struct err *e)
{
    static const enum cache_type cache_types[] = { CACHE_F16, CACHE_BF16, CACHE_F32, CACHE_Q8_0 };
    struct engine_options engine;
    char isa[16];

    engine_options_default(&engine);
    engine.n_threads = (int)o->threads;
    options_choice(o, OPTION_cpu_isa, isa, sizeof isa);
    engine.cpu_isa = o->cpu_isa ? isa : NULL;
    engine.exact_math = o->exact_math;
    engine.mla = (int)o->mla;
    engine.amb_mib = (int)o->amb;
    engine.cache_type = cache_types[o->cache_type];
    if (o->exact_math && !o->given[OPTION_cache_type])
        engine.cache_type = CACHE_F32;
    engine.n_context = o->ctx_size > 0 ? o->ctx_size : n_context;
    engine.max_batch = (int)o->ubatch;
    engine.router_groups = o->router_groups == 0;
    engine.check_tensors = o->check_tensors;
    return engine_create(&s->engine, s->model, &engine, e);
}

void session_close(struct session *s)
{
    engine_free(&s->engine);
    tokenizer_close(&s->tokenizer);
    model_close(&s->model);
}
