/* SPDX-License-Identifier: MIT */
/* placement/plan.c - see plan.h.
 *
 * Reading order: roles of the file's tensors; one plan; the context that fits.
 */
#include "placement/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/cost.h"
#include "placement/place.h"
#include "placement/slices.h"

/* ---- Roles ----------------------------------------------------------------------- */

struct tensor_at {
    const struct gguf_tensor *t;
    int index;
};

static int by_address(const void *a, const void *b)
{
    const struct tensor_at *x = a, *y = b;
    return x->t < y->t ? -1 : x->t > y->t;
}

static void note_role(struct planner *k, const struct tensor_at *sorted, int layer, int role)
{
    struct plan *p = k->p;
    const struct gguf_tensor *t = model_tensor(p->model, layer, (enum tensor_role)role);
    int row = layer < 0 ? p->model->hp.n_layers : layer;
    struct tensor_at key = { .t = t };
    const struct tensor_at *found =
        t ? bsearch(&key, sorted, (size_t)p->n_tensors, sizeof key, by_address) : NULL;

    k->index_of[row * ROLE_COUNT + role] = found ? found->index : -1;
    if (found) {
        p->tensors[found->index].role = role;
        p->tensors[found->index].layer = layer;
    }
}

static enum err_code find_roles(struct planner *k, struct err *e)
{
    struct plan *p = k->p;
    const struct gguf *g = p->model->gguf;

    p->n_tensors = gguf_tensor_count(g);
    size_t n = (size_t)p->n_tensors, rows = (size_t)p->model->hp.n_layers + 1;
    struct tensor_at *sorted = calloc(n + 1, sizeof *sorted);
    p->tensors = calloc(n + 1, sizeof *p->tensors);
    k->index_of = calloc(rows * ROLE_COUNT, sizeof *k->index_of);
    if (!sorted || !p->tensors || !k->index_of) {
        free(sorted);
        return err_set(e, ERR_NOMEM, "no memory to plan for %zu tensors", n);
    }
    for (int i = 0; i < p->n_tensors; i++) {
        sorted[i] = (struct tensor_at){ gguf_tensor_at(g, i), i };
        p->tensors[i] = (struct plan_tensor){ .t = sorted[i].t,
                                              .role = ROLE_COUNT,
                                              .layer = -1,
                                              .rule = -1,
                                              .reason = "not needed by the engine" };
    }
    qsort(sorted, n, sizeof *sorted, by_address);
    for (int l = -1; l < p->model->hp.n_layers; l++)
        for (int role = 0; role < ROLE_COUNT; role++)
            note_role(k, sorted, l, role);
    free(sorted);
    return ERR_OK;
}

/* ---- One plan ---------------------------------------------------------------------- */

static int by_tensor(const void *a, const void *b)
{
    const struct plan_part *x = a, *y = b;

    if (x->tensor != y->tensor)
        return x->tensor - y->tensor;
    if (x->first_range != y->first_range)
        return x->first_range - y->first_range;
    return x->device - y->device;
}

/* More ranks than units, or one rank with much more than its share. */
static void warn_uneven(struct planner *k, const struct slicing *s, const char *what)
{
    int64_t units = slicing_units(s), most = 0;
    int n = k->p->n_ranks;
    char even[128];

    for (int i = 0; i < n; i++) {
        struct plan_range r = slicing_share(s, i, n);
        most = r.end - r.begin > most ? r.end - r.begin : most;
    }
    if (units == 0 || n == 1 ||
        ((int64_t)n <= units && (double)most * n <= 1.25 * (double)s->total))
        return;
    slicing_even_counts(s, 1024, even, sizeof even);
    findings_add(k->findings, FINDING_WARNING, -1,
                 "%d ranks share %s unevenly, in %lld unit%s: the fullest has %lld of %lld; these "
                 "numbers of ranks divide them evenly: %s",
                 n, what, (long long)units, units == 1 ? "" : "s", (long long)most,
                 (long long)s->total, even);
}

static void warn_all_uneven(struct planner *k)
{
    const struct hparams *hp = &k->p->model->hp;
    struct slicing heads = slicing_of_heads(k->p->model, 0);

    warn_uneven(k, &heads, "attention heads");
    if (hp->n_dense > 0) {
        struct slicing ffn = slicing_of_ffn(k->p->model, 0);
        warn_uneven(k, &ffn, "the dense FFN");
    }
    if (hp->n_layers > hp->n_dense && hp->n_shared_experts > 0) {
        struct slicing shared = slicing_of_ffn(k->p->model, hp->n_dense);
        warn_uneven(k, &shared, "the shared expert");
    }
}

/* Ranks without a GPU beside some that have one: every layer waits for their slices. */
static void warn_without_gpu(struct planner *k)
{
    const struct plan *p = k->p;
    int without = 0, spare = 0;
    char hint[96];

    for (int r = 0; r < p->n_ranks; r++)
        without += p->ranks[r].main == p->ranks[r].memory;
    for (int h = 0; h < k->in->inventory->n; h++) {
        const struct host *x = &k->in->inventory->hosts[h];
        spare += x->n_gpus > 0 && x->ranks > x->n_gpus ? x->ranks - x->n_gpus : 0;
    }
    if (p->n_gpus == 0 || without == 0)
        return;
    if (spare > 0)
        snprintf(hint, sizeof hint, "--ranks %d has one for each GPU", p->n_ranks - spare);
    else
        snprintf(hint, sizeof hint, "the rule (attn|shexp|ffn_(gate|up|down)\\.)=CUDA* moves them");
    findings_add(k->findings, FINDING_WARNING, -1,
                 "%d of %d ranks have no GPU and compute their slices of attention and FFN in host "
                 "memory, for which the GPUs wait in every layer; %s",
                 without, p->n_ranks, hint);
}

static enum err_code planner_allocate(struct planner *k, struct err *e)
{
    size_t ranks = (size_t)k->p->n_ranks;

    k->all_main = calloc(ranks, sizeof *k->all_main);
    k->shares = calloc(ranks, sizeof *k->shares);
    k->host_attends = calloc(ranks, sizeof *k->host_attends);
    k->far = calloc((size_t)k->in->rules->n + 1, sizeof *k->far);
    k->everywhere = calloc((size_t)k->in->rules->n + 1, sizeof *k->everywhere);
    k->pulled = calloc((size_t)k->in->rules->n * PULLED_GROUPS + 1, sizeof *k->pulled);
    if (!k->all_main || !k->shares || !k->host_attends || !k->far || !k->everywhere || !k->pulled)
        return err_set(e, ERR_NOMEM, "no memory to plan for %d ranks", k->p->n_ranks);
    for (int r = 0; r < k->p->n_ranks; r++)
        k->all_main[r] = k->p->ranks[r].main;
    return ERR_OK;
}

static void planner_free(struct planner *k)
{
    for (int r = 0; k->places && r < k->in->rules->n; r++)
        free(k->places[r].v);
    free(k->places);
    free(k->all_main);
    free(k->shares);
    free(k->host_attends);
    free(k->far);
    free(k->everywhere);
    free(k->pulled);
    free(k->index_of);
}

static enum err_code run_steps(struct planner *k, struct err *e)
{
    struct plan *p = k->p;

    TRY(place_devices(p, k->in->inventory, e));
    TRY(planner_allocate(k, e));
    TRY(find_roles(k, e));
    TRY(place_resolve(k, e));
    TRY(place_tensors(k, e));
    place_buffers(k);
    TRY(place_experts(k, e));
    qsort(p->parts, (size_t)p->n_parts, sizeof *p->parts, by_tensor);
    warn_all_uneven(k);
    warn_without_gpu(k);
    place_share_memory(p);
    p->fits = 1;
    for (int d = 0; d < p->n_devices; d++)
        p->fits &= plan_slack(&p->devices[d]) >= 0;
    return p->opt.no_prediction ? ERR_OK : cost_predict(p, p->opt.engine, e);
}

static enum err_code plan_once(struct plan *p, const struct plan_input *in, int64_t n_context,
                               double skew, struct findings *findings, struct err *e)
{
    struct planner k = { .p = p, .in = in, .findings = findings, .skew = skew };

    *p = (struct plan){ .model = in->model, .inventory = in->inventory, .opt = in->opt };
    p->opt.n_context = n_context;
    enum err_code rc = run_steps(&k, e);
    planner_free(&k);
    if (rc != ERR_OK)
        plan_free(p);
    return rc;
}

/* Whether GPUs, or hosts, differ in bandwidth, so that shares are a choice. */
static int has_choice(const struct inventory *inv)
{
    const struct gpu_kind *first = NULL;
    const struct host *h0 = &inv->hosts[0];

    for (int h = 0; h < inv->n; h++) {
        const struct host *x = &inv->hosts[h];
        if (x->ram_bw / x->ranks != h0->ram_bw / h0->ranks)
            return 1;
        for (int g = 0; g < x->n_gpus; g++) {
            first = first ? first : x->gpus[g];
            if (x->gpus[g]->memory_bw != first->memory_bw)
                return 1;
        }
    }
    return 0;
}

/* The power of bandwidth by which free experts are shared out: the one with the fastest decode
 * step among those that fit. */
static enum err_code find_skew(const struct plan_input *in, int64_t n_context, double *skew,
                               struct err *e)
{
    static const double powers[] = { 1, 1.25, 1.5, 2, 3 };
    double best = -1;

    for (size_t i = 0; i < sizeof powers / sizeof *powers; i++) {
        struct findings ignored = { 0 };
        struct plan p;
        enum err_code rc = plan_once(&p, in, n_context, powers[i], &ignored, e);
        findings_free(&ignored);
        if (rc != ERR_OK)
            return rc;
        if (p.fits && p.predict.decode_tps > best * (1 + 1e-9)) {
            best = p.predict.decode_tps;
            *skew = powers[i];
        }
        plan_free(&p);
    }
    return ERR_OK;
}

enum err_code plan_make_at(struct plan *p, const struct plan_input *in, int64_t n_context,
                           struct findings *findings, struct err *e)
{
    double skew = 1;

    if (!in->opt.no_prediction && has_choice(in->inventory))
        TRY(find_skew(in, n_context, &skew, e));
    return plan_once(p, in, n_context, skew, findings, e);
}

void plan_free(struct plan *p)
{
    free(p->devices);
    free(p->ranks);
    free(p->tensors);
    free(p->parts);
    free(p->ranges);
    *p = (struct plan){ 0 };
}

/* ---- The context that fits ------------------------------------------------------------ */

enum { PAGE = 64 };

/* Bytes that devices lack, all together; 0 if the plan fits. */
static enum err_code lack_at(const struct plan_input *in, int64_t n_context, int64_t *lack,
                             struct err *e)
{
    struct findings ignored = { 0 };
    struct plan_input quick = *in;
    struct plan p;

    quick.opt.no_prediction = 1;
    enum err_code rc = plan_make_at(&p, &quick, n_context, &ignored, e);

    findings_free(&ignored);
    if (rc == ERR_OK) {
        *lack = 0;
        for (int d = 0; d < p.n_devices; d++)
            *lack -= plan_slack(&p.devices[d]) < 0 ? plan_slack(&p.devices[d]) : 0;
        plan_free(&p);
    }
    return rc;
}

/* The most whole pages that fit, at most `wanted` positions.  If not even one does, the most that
 * lack no more than one: a context is not lowered for memory that it does not take. */
static enum err_code find_context(const struct plan_input *in, int64_t wanted, int64_t *out,
                                  struct err *e)
{
    int64_t low = 1, high = (wanted + PAGE - 1) / PAGE;
    int64_t least = 0, lack = 0;

    TRY(lack_at(in, wanted, &lack, e));
    if (lack > 0)
        TRY(lack_at(in, PAGE, &least, e));
    if (lack <= least) {
        *out = wanted;
        return ERR_OK;
    }
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        TRY(lack_at(in, middle * PAGE, &lack, e));
        if (lack <= least)
            low = middle;
        else
            high = middle - 1;
    }
    *out = low * PAGE;
    return ERR_OK;
}

enum err_code plan_make(struct plan *p, const struct plan_input *in, struct findings *findings,
                        struct err *e)
{
    int64_t n = in->opt.n_context;
    int64_t wanted = in->model->hp.context_length * in->opt.n_sequences;

    if (n <= 0)
        TRY(find_context(in, wanted, &n, e));
    TRY(plan_make_at(p, in, n, findings, e));
    if (in->opt.n_context <= 0 && n < wanted)
        findings_add(findings, FINDING_NOTE, -1,
                     "the context is lowered to %lld positions, %s; the model's is %lld for each "
                     "request; -c fixes it",
                     (long long)n,
                     p->fits ? "which fit beside the weights" : "and even so the plan does not fit",
                     (long long)in->model->hp.context_length);
    return ERR_OK;
}

const char *plan_axis_name(enum plan_axis a)
{
    static const char *const names[] = { "all", "heads", "columns", "experts", "vocab" };
    return names[a];
}

const char *plan_cache_name(enum plan_cache_type t)
{
    static const char *const names[] = { "f16", "bf16", "f32", "q8_0" };
    return names[t];
}
