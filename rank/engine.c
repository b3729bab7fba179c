/* SPDX-License-Identifier: MIT */
#include "rank/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sysmem.h"
#include "rank/forward.h"

struct sequence_state {
    int64_t length, n_prompt;
};

struct engine {
    const struct model *model;
    struct engine_options opt;
    struct engine_memory memory;
    struct team team;
    const struct cpu_kernels *kernels;
    struct weights *weights;
    struct cache *cache;
    struct forward *forward;
    struct sequence_state *seqs; /* [n_sequences]                  */
    struct batch_token *tokens;  /* [max_batch]                    */
    float *logits;               /* [n_logits][n_vocab], grown on demand */
    int n_logits;
};

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

static struct cache_shape shape_of_cache(const struct hparams *hp, enum cache_type type)
{
    return (struct cache_shape){
        .n_layers = hp->n_layers, .d_latent = hp->kv_lora_rank, .d_rope = hp->d_rope, .type = type
    };
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
                                                 const struct cpu_kernels *k)
{
    return (struct forward_options){ .kernels = k,
                                     .exact_math = o->exact_math,
                                     .max_tokens = o->max_batch,
                                     .amb_mib = o->amb_mib,
                                     .router_groups = o->router_groups };
}

static struct weights_options weights_options_of(const struct engine_options *o)
{
    return (struct weights_options){ .exact_math = o->exact_math,
                                     .check_values = o->check_tensors };
}

/* Chooses n_context where the user left it open, or says what is short. */
static enum err_code fit_context(struct engine_memory *mem, const struct model *m,
                                 const struct engine_options *o, struct err *e)
{
    struct cache_shape shape = shape_of_cache(&m->hp, o->cache_type);
    int64_t page = (int64_t)cache_page_bytes(&shape);
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
    int64_t pages = (mem->n_context + CACHE_PAGE - 1) / CACHE_PAGE;
    mem->cache = (size_t)(pages * page);
    return ERR_OK;
}

enum err_code engine_plan(struct engine_memory *mem, const struct model *m,
                          const struct engine_options *o, struct err *e)
{
    struct team team;
    const struct cpu_kernels *k;

    *mem = (struct engine_memory){ 0 };
    team_init(&team, o->n_threads);
    TRY(pick_kernels(&k, o->cpu_isa, e));
    struct forward_options f = forward_options_of(o, k);
    struct weights_options w = weights_options_of(o);
    TRY(weights_bytes(&mem->weights, m, &w, e));
    TRY(forward_bytes(&mem->activations, &m->hp, &team, &f, e));
    return fit_context(mem, m, o, e);
}

/* ---- Life --------------------------------------------------------------- */

static enum err_code engine_load(struct engine *eng, struct err *e)
{
    const struct model *m = eng->model;
    const struct engine_options *o = &eng->opt;
    struct cache_shape shape = shape_of_cache(&m->hp, o->cache_type);
    struct forward_options f = forward_options_of(o, eng->kernels);

    eng->seqs = calloc((size_t)o->n_sequences, sizeof *eng->seqs);
    eng->tokens = calloc((size_t)o->max_batch, sizeof *eng->tokens);
    if (!eng->seqs || !eng->tokens)
        return err_set(e, ERR_NOMEM, "no memory for the list of sequences");
    TRY(cache_create(&eng->cache, &shape, eng->memory.n_context, o->n_sequences, e));
    struct weights_options w = weights_options_of(o);
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
        (rc = engine_plan(&eng->memory, m, o, e)) != ERR_OK || (rc = engine_load(eng, e)) != ERR_OK)
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
    free((*e)->seqs);
    free((*e)->tokens);
    free((*e)->logits);
    free(*e);
    *e = NULL;
}

const struct engine_memory *engine_memory_used(const struct engine *e)
{
    return &e->memory;
}

int64_t engine_context(const struct engine *e)
{
    return e->memory.n_context;
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
    return weights_active_bytes(e->weights, e->model->hp.n_experts_used);
}

/* ---- Sequences ---------------------------------------------------------- */

void engine_begin(struct engine *e, int seq, int64_t n_prompt)
{
    cache_release(e->cache, seq);
    e->seqs[seq] = (struct sequence_state){ .n_prompt = n_prompt };
}

void engine_extend(struct engine *e, int seq, int64_t n_prompt)
{
    e->seqs[seq].n_prompt = n_prompt;
}

int64_t engine_length(const struct engine *e, int seq)
{
    return e->seqs[seq].length;
}

static enum err_code reserve(struct engine *e, int seq, int64_t more, struct err *err)
{
    int64_t want = e->seqs[seq].length + more;

    if (cache_reserve(e->cache, seq, want) == ERR_OK)
        return ERR_OK;
    return err_set(err, ERR_FULL,
                   "the latent cache holds %lld positions, %lld are wanted; use a larger -c",
                   (long long)e->memory.n_context, (long long)want);
}

static enum err_code place_token(struct engine *e, struct batch_token *t, struct err *err)
{
    struct sequence_state *s = &e->seqs[t->seq];

    if (t->id < 0 || t->id >= e->model->hp.n_vocab)
        return err_set(err, ERR_USAGE, "token %d is not in the vocabulary of %d", t->id,
                       e->model->hp.n_vocab);
    TRY(reserve(e, t->seq, 1, err));
    t->pos = s->length++;
    t->produced = t->pos >= s->n_prompt;
    t->form = attention_form(&e->model->hp, e->opt.mla, t->pos, s->n_prompt);
    return ERR_OK;
}

enum err_code engine_step(struct engine *e, struct batch *b, float *logits, struct err *err)
{
    for (int i = 0; i < b->n; i++) {
        enum err_code rc = place_token(e, &b->tokens[i], err);
        if (rc != ERR_OK) {
            while (i-- > 0) /* nothing was fed */
                e->seqs[b->tokens[i].seq].length--;
            return rc;
        }
    }
    forward_step(e->forward, b, logits);
    return ERR_OK;
}

/* Room for n rows of logits. */
static enum err_code grow_logits(struct engine *e, int n, struct err *err)
{
    size_t bytes = (size_t)n * (size_t)e->model->hp.n_vocab * sizeof *e->logits;

    if (n <= e->n_logits || bytes == 0)
        return ERR_OK;
    float *grown = realloc(e->logits, bytes);
    if (!grown)
        return err_set(err, ERR_NOMEM, "no memory for the logits of %d tokens; use a smaller -ub",
                       n);
    e->logits = grown;
    e->n_logits = n;
    return ERR_OK;
}

static enum err_code check_numeric(const struct engine *e, const struct batch *b, struct err *err)
{
    for (int i = 0; i < b->n; i++) {
        int layer = b->tokens[i].bad_layer - 1;
        char where[32] = "the output";
        if (layer < 0)
            continue;
        if (layer < e->model->hp.n_layers)
            (void)snprintf(where, sizeof where, "layer %d", layer);
        return err_set(err, ERR_NUMERIC,
                       "numeric_error: a sum in %s is not a number or out of range at position "
                       "%lld; run with --check-tensors to look for bad weights",
                       where, (long long)b->tokens[i].pos);
    }
    return ERR_OK;
}

enum err_code engine_feed(struct engine *e, int seq, const int32_t *tokens, int64_t n,
                          enum engine_want want, engine_logits_fn *on_logits, void *arg,
                          struct err *err)
{
    TRY(reserve(e, seq, n, err));
    for (int64_t done = 0; done < n;) {
        struct batch b = { .tokens = e->tokens };
        int rows = 0;
        for (; b.n < e->opt.max_batch && done + b.n < n; b.n++) {
            int last = done + b.n == n - 1;
            int wants = want == ENGINE_ALL || (want == ENGINE_LAST && last);
            b.tokens[b.n] =
                (struct batch_token){ .id = tokens[done + b.n], .seq = seq, .want_logits = wants };
            rows += wants;
        }
        TRY(grow_logits(e, rows, err));
        TRY(engine_step(e, &b, e->logits, err));
        TRY(check_numeric(e, &b, err));
        for (int i = 0, row = 0; i < b.n; i++)
            if (b.tokens[i].want_logits)
                on_logits(arg, b.tokens[i].pos, e->logits + (int64_t)row++ * e->model->hp.n_vocab);
        done += b.n;
    }
    return ERR_OK;
}
