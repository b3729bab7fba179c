/* SPDX-License-Identifier: MIT */
/* rank/engine.c - see engine.h: what an engine takes, its life, and one step.
 *
 * Its own sequences, which `latent` feeds, are in feed.c.
 */
#include "rank/engine.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/str.h"
#include "base/sysmem.h"
#include "rank/engine_parts.h"
#include "rank/load_watch.h"
#include "rank/sampler.h"

void engine_options_default(struct engine_options *o)
{
    *o = (struct engine_options){ .mla = 3,
                                  .amb_mib = 256,
                                  .cache_type = CACHE_F16,
                                  .n_sequences = 1,
                                  .max_batch = 512,
                                  .max_logits = 512,
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

static int max_logits(const struct engine_options *o)
{
    return o->max_logits < o->max_batch ? o->max_logits : o->max_batch;
}

static struct forward_options forward_options_of(const struct engine_options *o,
                                                 const struct share *share,
                                                 const struct cpu_kernels *k)
{
    return (struct forward_options){ .kernels = k,
                                     .share = share,
                                     .exact_math = o->exact_math,
                                     .max_tokens = o->max_batch,
                                     .max_logits = max_logits(o),
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
    int64_t sums = o->max_batch * (int64_t)(m->hp.d_model + COMM_EXTRA) * (int64_t)sizeof(int64_t);
    int64_t left = sysmem_available() - reserve_bytes - (int64_t)mem->weights -
                   (int64_t)mem->activations - sums;
    int64_t fitting = left > 0 ? left / page * CACHE_PAGE : 0;
    int64_t wanted = o->n_context > 0 ? o->n_context : m->hp.context_length * o->n_sequences;
    char weights[32], activations[32], lack[32];

    if (left < page)
        return err_set(
            e, ERR_NOFIT,
            "the model does not fit: weights take %s and activations %s, %s too much for this "
            "machine; use a smaller quantisation",
            str_bytes(weights, sizeof weights, (double)mem->weights),
            str_bytes(activations, sizeof activations, (double)mem->activations),
            str_bytes(lack, sizeof lack, (double)(page - left)));
    if (wanted > fitting && o->n_context > 0)
        return err_set(e, ERR_NOFIT,
                       "a context of %lld positions does not fit beside %s of weights: use -c %lld "
                       "or less, or -ctk q8_0",
                       (long long)wanted, str_bytes(weights, sizeof weights, (double)mem->weights),
                       (long long)fitting);
    mem->n_context = wanted < fitting ? wanted : fitting;
    return ERR_OK;
}

/* Positions that one sequence may have. */
static int64_t longest(const struct model *m, int64_t n_context)
{
    return n_context < m->hp.context_length ? n_context : m->hp.context_length;
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
    if (share->rank == 0)
        mem->activations += sampler_bytes(m->hp.n_vocab);
    if (plan)
        mem->n_context = plan->opt.n_context;
    else
        TRY(fit_context(mem, m, o, (int64_t)page, e));
    mem->cache = (size_t)cache_pages(mem->n_context) * page +
                 cache_table_bytes(o->n_sequences, cache_pages(longest(m, mem->n_context)));
    return ERR_OK;
}

static struct engine_options options_of_plan(const struct plan *p, int rank,
                                             const struct engine_options *o)
{
    static const enum cache_type types[] = { [PLAN_CACHE_F16] = CACHE_F16,
                                             [PLAN_CACHE_BF16] = CACHE_BF16,
                                             [PLAN_CACHE_F32] = CACHE_F32,
                                             [PLAN_CACHE_Q8_0] = CACHE_Q8_0 };
    struct engine_options planned = *o;

    planned.n_threads = p->ranks[rank].n_threads;
    planned.n_context = p->opt.n_context;
    planned.n_sequences = p->opt.n_sequences;
    planned.max_batch = p->opt.ubatch;
    planned.max_logits = plan_logits(&p->opt);
    planned.amb_mib = p->opt.amb_mib;
    planned.cache_type = types[p->opt.cache_type];
    planned.exact_math = p->opt.exact_math;
    return planned;
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
    struct engine_options planned = options_of_plan(plan, rank, o);
    enum err_code rc = share_of_plan(&share, plan, rank, e);

    if (rc == ERR_OK)
        rc = size_share(mem, plan->model, &planned, &share, plan, e);
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
                                        .max_logits = max_logits(&eng->opt),
                                        .n_context = longest(eng->model, eng->memory.n_context) };
}

/* A comm of its own where nobody gave one. */
static enum err_code make_comm(struct engine *eng, struct err *e)
{
    struct comm_options o;

    if (eng->comm)
        return ERR_OK;
    comm_options_default(&o);
    o.reduce = eng->opt.reduce;
    o.n_threads = eng->team.n_threads;
    TRY(comm_create_self(&eng->own_comm, &o, e));
    eng->comm = eng->own_comm;
    return ERR_OK;
}

/* Every rank routes all tokens, so what rank 0 sees is the whole model. */
static enum err_code make_counts(struct engine *eng, struct err *e)
{
    const struct hparams *hp = &eng->model->hp;
    size_t n = (size_t)hp->n_layers * (size_t)hp->n_experts;

    if (!eng->opt.record_experts || comm_rank(eng->comm) != 0 || n == 0)
        return ERR_OK;
    eng->expert_counts = calloc(n, sizeof *eng->expert_counts);
    return eng->expert_counts ? ERR_OK
                              : err_set(e, ERR_NOMEM, "no memory for counts of %zu experts", n);
}

static enum err_code load(struct engine *eng, struct err *e)
{
    const struct model *m = eng->model;
    const struct engine_options *o = &eng->opt;
    struct cache_shape shape = shape_of_cache(&m->hp, &eng->share, o->cache_type);
    struct forward_options f = forward_options_of(o, &eng->share, eng->kernels);
    struct weights_options w = weights_options_of(o, &eng->share);

    w.comm = eng->comm;
    TRY(cache_create(&eng->cache, &shape, eng->limits.n_pages, o->n_sequences,
                     cache_pages(eng->limits.n_context), e));
    TRY(make_counts(eng, e));
    f.expert_counts = eng->expert_counts;
    TRY(weights_load(&eng->weights, m, &eng->team, &w, e));
    TRY(forward_create(&eng->forward, &m->hp, eng->weights, eng->cache, eng->comm, &eng->team, &f,
                       e));
    if (eng->share.rank != 0)
        return ERR_OK;
    TRY(sampler_create(&eng->sampler, m->hp.n_vocab, e));
    return feed_create(&eng->feed, &eng->limits, e);
}

/* Everything that comes before other ranks are waited for. */
static enum err_code prepare(struct engine *eng, const struct plan *plan, int rank, struct err *e)
{
    team_init(&eng->team, eng->opt.n_threads);
    TRY(pick_kernels(&eng->kernels, eng->opt.cpu_isa, e));
    if (plan)
        TRY(share_of_plan(&eng->share, plan, rank, e));
    else
        TRY(share_everything(&eng->share, eng->model, e));
    TRY(size_share(&eng->memory, eng->model, &eng->opt, &eng->share, plan, e));
    set_limits(eng);
    return ERR_OK;
}

/* Of the experts that a token uses, a rank has its part. */
static struct engine_totals own_totals(const struct engine *eng)
{
    const struct hparams *hp = &eng->model->hp;
    double used = hp->n_experts > 0 ? (double)hp->n_experts_used / hp->n_experts : 0;
    int64_t active = (int64_t)weights_active_bytes(eng->weights, used);

    return (struct engine_totals){ .n_ranks = 1,
                                   .n_threads = eng->team.n_threads,
                                   .weights = (int64_t)eng->memory.weights,
                                   .cache = (int64_t)eng->memory.cache,
                                   .active = active,
                                   .busiest_active = active,
                                   .file_bytes = eng->weights->file_bytes };
}

static enum err_code add_totals(struct engine *eng, struct err *e)
{
    struct engine_totals own = own_totals(eng), *sum = &eng->totals;
    int n = comm_size(eng->comm);
    struct engine_totals *all = calloc((size_t)n, sizeof *all);

    if (!all)
        return err_set(e, ERR_NOMEM, "no memory for what %d ranks hold", n);
    comm_all_gather(eng->comm, &own, sizeof own, all);
    for (int r = 0; r < n; r++) {
        sum->n_ranks += all[r].n_ranks;
        sum->n_threads += all[r].n_threads;
        sum->weights += all[r].weights;
        sum->cache += all[r].cache;
        sum->active += all[r].active;
        sum->file_bytes += all[r].file_bytes;
        if (all[r].active > sum->busiest_active)
            sum->busiest_active = all[r].active;
    }
    free(all);
    return ERR_OK;
}

/* Rank 0 shows how far all are, until the last has loaded. */
static enum err_code load_together(struct engine *eng, struct err *e)
{
    struct load_watch *w = comm_rank(eng->comm) == 0 ? load_watch_begin(eng->comm) : NULL;
    enum err_code rc = comm_share_error(eng->comm, load(eng, e), e);

    load_watch_end(w);
    return rc;
}

static enum err_code create(struct engine *eng, const struct plan *plan, struct err *e)
{
    int64_t width = eng->model->hp.d_model;
    enum err_code rc = prepare(eng, plan, eng->comm ? comm_rank(eng->comm) : 0, e);

    if (rc == ERR_OK)
        rc = make_comm(eng, e);
    if (!eng->comm)
        return rc;
    TRY(comm_share_error(eng->comm, rc, e));
    TRY(comm_reserve(eng->comm, eng->opt.max_batch, width, e));
    eng->memory.comm = comm_bytes(eng->comm, eng->opt.max_batch, width);
    TRY(load_together(eng, e));
    if (eng->opt.bind_threads)
        team_bind(&eng->team);
    return comm_share_error(eng->comm, add_totals(eng, e), e);
}

static enum err_code create_engine(struct engine **out, const struct model *m,
                                   const struct plan *plan, struct comm *comm,
                                   const struct engine_options *o, struct err *e)
{
    struct engine *eng = calloc(1, sizeof *eng);

    if (!eng) {
        (void)err_set(e, ERR_NOMEM, "no memory for an engine");
        return comm ? comm_share_error(comm, ERR_NOMEM, e) : ERR_NOMEM;
    }
    eng->model = m;
    eng->opt = *o;
    eng->comm = comm;
    enum err_code rc = create(eng, plan, e);
    if (rc == ERR_OK)
        *out = eng;
    else
        engine_free(&eng);
    return rc;
}

enum err_code engine_create(struct engine **out, const struct model *m,
                            const struct engine_options *o, struct err *e)
{
    return create_engine(out, m, NULL, NULL, o, e);
}

enum err_code engine_create_rank(struct engine **out, const struct plan *plan, struct comm *comm,
                                 const struct engine_options *o, struct err *e)
{
    struct engine_options planned = options_of_plan(plan, comm ? comm_rank(comm) : 0, o);

    return create_engine(out, plan->model, plan, comm, &planned, e);
}

void engine_free(struct engine **e)
{
    if (!*e)
        return;
    forward_free(&(*e)->forward);
    weights_free(&(*e)->weights);
    cache_free(&(*e)->cache);
    feed_free(&(*e)->feed);
    sampler_free(&(*e)->sampler);
    share_free(&(*e)->share);
    str_free(&(*e)->message);
    free((*e)->expert_counts);
    comm_free(&(*e)->own_comm);
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

struct comm *engine_comm(const struct engine *e)
{
    return e->comm;
}

float *engine_logits(const struct engine *e)
{
    return forward_logits(e->forward);
}

struct sampler *engine_sampler(const struct engine *e)
{
    return e->sampler;
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

const struct engine_totals *engine_totals(const struct engine *e)
{
    return &e->totals;
}

const uint64_t *engine_expert_counts(const struct engine *e)
{
    return e->expert_counts;
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

enum err_code engine_compute(struct engine *e, struct step *s, float *logits, struct err *err)
{
    comm_set_step(e->comm, s->id);
    apply_pages(e, s);
    enum err_code rc = check_mapped(e, s, err);
    if (rc == ERR_OK && s->batch.n > 0) {
        double begin = clock_seconds();
        forward_step(e->forward, &s->batch, logits);
        comm_add_step(e->comm, 1e6 * (clock_seconds() - begin));
    }
    comm_set_step(e->comm, -1);
    TRY(comm_check(e->comm, err));
    return rc;
}

enum err_code engine_run_step(struct engine *e, struct step *s, float *logits, struct err *err)
{
    if (comm_size(e->comm) > 1)
        TRY(follow_send(e, s, err));
    return engine_compute(e, s, logits, err);
}
