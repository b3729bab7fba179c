/* SPDX-License-Identifier: MIT */
/* rank/engine.c - see engine.h: what an engine takes, its life, and one step.
 *
 * Its own sequences, which `latent` feeds, are in feed.c.
 */
#include "rank/engine.h"

#include <stdlib.h>

#include "base/sysmem.h"
#include "rank/engine_parts.h"

void engine_options_default(struct engine_options *o)
{
    *o = (struct engine_options){ .mla = 3,
                                  .amb_mib = 256,
                                  .cache_type = CACHE_F16,
                                  .n_sequences = 1,
                                  .max_batch = 512,
                                  .router_groups = 1 };
}

/* ---- Plan --------------------------------------------------------------- */

/* Kept free for the process itself: code, thread stacks, tokenizer, page tables. */
static const int64_t reserve_bytes = 256LL << 20;

static struct cache_shape shape_of_cache(const struct hparams *hp, const struct share *share,
                                         enum cache_type type)
{
    return (struct cache_shape){ .n_layers = share->n_cache_layers,
                                 .d_latent = hp->kv_lora_rank,
                                 .d_rope = hp->d_rope,
                                 .type = type };
}

static enum err_code pick_kernels(const struct cpu_kernels **k, const char *isa, struct err *e)
{
    *k = isa ? cpu_kernels_by_name(isa) : cpu_kernels_pick(~0u);
    if (!*k)
        return err_set(e, ERR_USAGE, "--cpu-isa %s: this machine cannot run it; best here is %s",
                       isa, cpu_kernels_pick(~0u)->isa);
    return ERR_OK;
}

static struct forward_options forward_options_of(const struct engine_options *o,
                                                 const struct share *share,
                                                 const struct cpu_kernels *k)
{
    return (struct forward_options){ .kernels = k,
                                     .share = share,
                                     .exact_math = o->exact_math,
                                     .max_tokens = o->max_batch,
                                     .amb_mib = o->amb_mib,
                                     .router_groups = o->router_groups };
}

static struct weights_options weights_options_of(const struct engine_options *o,
                                                 const struct share *share)
{
    return (struct weights_options){ .exact_math = o->exact_math,
                                     .check_values = o->check_tensors,
                                     .share = share };
}

/* Chooses n_context where the user left it open, or says what is short. */
static enum err_code fit_context(struct engine_memory *mem, const struct model *m,
                                 const struct engine_options *o, int64_t page, struct err *e)
{
    int64_t left =
        sysmem_available() - reserve_bytes - (int64_t)mem->weights - (int64_t)mem->activations;
    int64_t fitting = left > 0 ? left / page * CACHE_PAGE : 0;
    int64_t wanted = o->n_context > 0 ? o->n_context : m->hp.context_length * o->n_sequences;

    if (left < page)
        return err_set(
            e, ERR_NOFIT,
            "the model does not fit: weights take %.2f GB and activations %.2f GB, %.2f GB "
            "too much for this machine; use a smaller quantisation",
            1e-9 * (double)mem->weights, 1e-9 * (double)mem->activations,
            1e-9 * (double)(page - left));
    if (wanted > fitting && o->n_context > 0)
        return err_set(e, ERR_NOFIT,
                       "a context of %lld positions does not fit beside %.2f GB of weights: use -c "
                       "%lld or less, or -ctk q8_0",
                       (long long)wanted, 1e-9 * (double)mem->weights, (long long)fitting);
    mem->n_context = wanted < fitting ? wanted : fitting;
    return ERR_OK;
}

/* The bytes of a share.  Without a plan the context is what fits. */
static enum err_code size_share(struct engine_memory *mem, const struct model *m,
                                const struct engine_options *o, const struct share *share,
                                const struct plan *plan, struct err *e)
{
    struct team team;
    const struct cpu_kernels *k;
    struct cache_shape shape = shape_of_cache(&m->hp, share, o->cache_type);
    size_t page = cache_page_bytes(&shape);

    *mem = (struct engine_memory){ 0 };
    team_init(&team, o->n_threads);
    TRY(pick_kernels(&k, o->cpu_isa, e));
    struct forward_options f = forward_options_of(o, share, k);
    struct weights_options w = weights_options_of(o, share);
    TRY(weights_bytes(&mem->weights, m, &w, e));
    TRY(forward_bytes(&mem->activations, &m->hp, &team, &f, e));
    if (plan)
        mem->n_context = plan->opt.n_context;
    else
        TRY(fit_context(mem, m, o, (int64_t)page, e));
    mem->cache = (size_t)cache_pages(mem->n_context) * page;
    return ERR_OK;
}

enum err_code engine_plan(struct engine_memory *mem, const struct model *m,
                          const struct engine_options *o, struct err *e)
{
    struct share share = { 0 };
    enum err_code rc = share_everything(&share, m, e);

    if (rc == ERR_OK)
        rc = size_share(mem, m, o, &share, NULL, e);
    share_free(&share);
    return rc;
}

enum err_code engine_plan_rank(struct engine_memory *mem, const struct plan *plan, int rank,
                               const struct engine_options *o, struct err *e)
{
    struct share share = { 0 };
    enum err_code rc = share_of_plan(&share, plan, rank, e);

    if (rc == ERR_OK)
        rc = size_share(mem, plan->model, o, &share, plan, e);
    share_free(&share);
    return rc;
}

/* ---- Life --------------------------------------------------------------- */

static void set_limits(struct engine *eng)
{
    const struct hparams *hp = &eng->model->hp;
    int64_t pages = cache_pages(eng->memory.n_context);

    eng->limits = (struct step_limits){ .n_vocab = hp->n_vocab,
                                        .n_sequences = eng->opt.n_sequences,
                                        .n_pages = (int)pages,
                                        .max_batch = eng->opt.max_batch,
                                        .n_context = eng->memory.n_context };
    if (hp->context_length < eng->limits.n_context)
        eng->limits.n_context = hp->context_length;
}

static enum err_code engine_load(struct engine *eng, struct err *e)
{
    const struct model *m = eng->model;
    const struct engine_options *o = &eng->opt;
    struct cache_shape shape = shape_of_cache(&m->hp, &eng->share, o->cache_type);
    struct forward_options f = forward_options_of(o, &eng->share, eng->kernels);

    TRY(cache_create(&eng->cache, &shape, eng->limits.n_pages, o->n_sequences,
                     cache_pages(eng->limits.n_context), e));
    struct weights_options w = weights_options_of(o, &eng->share);
    TRY(weights_load(&eng->weights, m, &eng->team, &w, e));
    return forward_create(&eng->forward, &m->hp, eng->weights, eng->cache, &eng->team, &f, e);
}

enum err_code engine_create(struct engine **out, const struct model *m,
                            const struct engine_options *o, struct err *e)
{
    struct engine *eng = calloc(1, sizeof *eng);
    enum err_code rc;

    if (!eng)
        return err_set(e, ERR_NOMEM, "no memory for an engine");
    eng->model = m;
    eng->opt = *o;
    team_init(&eng->team, o->n_threads);
    if ((rc = pick_kernels(&eng->kernels, o->cpu_isa, e)) != ERR_OK ||
        (rc = share_everything(&eng->share, m, e)) != ERR_OK ||
        (rc = size_share(&eng->memory, m, o, &eng->share, NULL, e)) != ERR_OK)
        goto out;
    set_limits(eng);
    if ((rc = engine_load(eng, e)) != ERR_OK ||
        (rc = feed_create(&eng->feed, &eng->limits, e)) != ERR_OK)
        goto out;
    *out = eng;
    eng = NULL;
out:
    engine_free(&eng);
    return rc;
}

void engine_free(struct engine **e)
{
    if (!*e)
        return;
    forward_free(&(*e)->forward);
    weights_free(&(*e)->weights);
    cache_free(&(*e)->cache);
    feed_free(&(*e)->feed);
    share_free(&(*e)->share);
    free(*e);
    *e = NULL;
}

const struct engine_memory *engine_memory_used(const struct engine *e)
{
    return &e->memory;
}

int64_t engine_context(const struct engine *e)
{
    return e->limits.n_context;
}

const struct step_limits *engine_limits(const struct engine *e)
{
    return &e->limits;
}

const char *engine_isa(const struct engine *e)
{
    return e->kernels->isa;
}

int engine_threads(const struct engine *e)
{
    return e->team.n_threads;
}

size_t engine_active_bytes(const struct engine *e)
{
    const struct hparams *hp = &e->model->hp;
    double used = hp->n_experts > 0 ? (double)hp->n_experts_used / hp->n_experts : 0;

    return weights_active_bytes(e->weights, used);
}

/* ---- One step ----------------------------------------------------------- */

static void apply_pages(struct engine *e, const struct step *s)
{
    for (int i = 0; i < s->n_resets; i++)
        cache_clear(e->cache, s->resets[i].seq);
    for (int i = 0; i < s->n_maps; i++)
        cache_set_page(e->cache, s->maps[i].seq, s->maps[i].index, s->maps[i].page);
    for (int i = 0; i < s->n_zeros; i++)
        cache_zero_page(e->cache, s->zeros[i].page);
    for (int i = 0; i < s->n_copies; i++)
        cache_copy_page(e->cache, s->copies[i].from, s->copies[i].to);
}

/* Every position that a token attends to lies in a page. */
static enum err_code check_mapped(const struct engine *e, const struct step *s, struct err *err)
{
    const struct batch_token *t = s->batch.tokens;

    for (int i = 0; i < s->batch.n; i++) {
        int last = i + 1 == s->batch.n || t[i + 1].seq != t[i].seq;
        if (last && !cache_maps(e->cache, t[i].seq, t[i].pos + 1))
            return err_set(err, ERR_FORMAT,
                           "step %lld: sequence %d has no page for one of positions 0 to %lld",
                           (long long)s->id, t[i].seq, (long long)t[i].pos);
    }
    return ERR_OK;
}

enum err_code engine_run_step(struct engine *e, struct step *s, float *logits, struct err *err)
{
    apply_pages(e, s);
    TRY(check_mapped(e, s, err));
    if (s->batch.n > 0)
        forward_step(e->forward, &s->batch, logits);
    return ERR_OK;
}
