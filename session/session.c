/* SPDX-License-Identifier: MIT */
/* session/session.c - see session.h.
 *
 * Reading order: opening and checks; loading, which every rank does alike; processes.
 */
#include "session/session.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/log.h"
#include "base/team.h"
#include "session/processes.h"
#include "session/record.h"

enum { SPEAK_S = 3 }; /* mpirun takes one to begin to end the others */

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

/* ---- Loading ---------------------------------------------------------------- */

/* Of the processes that mpirun started; NULL otherwise.  MPI is begun once in a process, so this
 * belongs to the process too. */
static struct comm *comm;
static int told; /* rank 0 has told the others what to do */

int session_ranks(const struct options *o)
{
    if (comm)
        return comm_size(comm);
    return planning_ranks(o);
}

static struct engine_options engine_options_of(const struct options *o, char isa[16])
{
    static const enum comm_reduce reduces[] = { COMM_EXACT, COMM_F32, COMM_BF16 };
    struct engine_options engine;

    engine_options_default(&engine);
    options_choice(o, OPTION_cpu_isa, isa, 16);
    engine.cpu_isa = o->cpu_isa ? isa : NULL;
    engine.mla = (int)o->mla;
    engine.router_groups = o->router_groups == 0;
    engine.check_tensors = o->check_tensors;
    engine.reduce = reduces[o->reduce];
    engine.bind_threads = o->command == COMMAND_latentd_rank; /* which does nothing else */
    engine.record_experts = o->record_experts || (o->command == COMMAND_bench && o->parallel > 1);
    return engine;
}

/* The plan, of all ranks.  *apart: mpirun has bound them to cores of their own. */
static enum err_code make_plan(struct session *s, const struct options *o, int64_t n_context,
                               int *apart, struct err *e)
{
    struct planning *x = &s->planning;

    *x = (struct planning){ .o = o, .n_context = n_context };
    if (comm)
        TRY(processes_inventory(x, comm, apart, e));
    else
        x->ranks = session_ranks(o);
    return planning_make(x, s->model, e);
}

/* All ranks learn how it went; the one that knows says it as a single process would. */
static enum err_code share_verdict(enum err_code rc, struct err *e)
{
    struct err own = *e;
    enum err_code any = comm_share_error(comm, rc, e);

    if (rc != ERR_OK && any == rc)
        *e = own;
    return any;
}

static enum err_code load(struct session *s, const struct options *o, int64_t n_context,
                          struct err *e)
{
    char isa[16];
    const struct engine_options engine = engine_options_of(o, isa);
    int apart = 0;
    enum err_code rc = make_plan(s, o, n_context, &apart, e);

    if (rc == ERR_OK && (!comm || comm_rank(comm) == 0)) {
        planning_log(&s->planning);
        rc = planning_judge(&s->planning, e);
        if (rc == ERR_OK && s->on_plan)
            rc = s->on_plan(s->on_plan_arg, &s->planning, e);
    }
    if (comm) {
        TRY(share_verdict(rc, e));
        TRY(processes_agree_on_plan(comm, &s->planning.plan, e));
        if (!apart)
            processes_bind(comm, &s->planning.plan);
        return engine_create_rank(&s->engine, &s->planning.plan, comm, &engine, e);
    }
    TRY(rc);
    if (s->planning.plan.n_ranks == 1)
        return engine_create_rank(&s->engine, &s->planning.plan, NULL, &engine, e);
    TRY(group_create(&s->group, &s->planning.plan, &engine, e));
    s->engine = group_engine(s->group);
    return ERR_OK;
}

/* What rank 0 tells the others to do. */
enum order_kind { ORDER_END, ORDER_LOAD, ORDER_MEASURE };

struct order {
    int64_t kind, n_context;
};

enum err_code session_load(struct session *s, const struct options *o, int64_t n_context,
                           struct err *e)
{
    struct order order = { .kind = ORDER_LOAD,
                           .n_context = o->ctx_size > 0 ? o->ctx_size : n_context };

    if (o->record_experts)
        TRY(record_open(&s->record, s->model, o->record_experts, e));
    if (comm) {
        told = 1;
        comm_broadcast(comm, &order, sizeof order, 0);
        TRY(comm_share_error(comm, ERR_OK, e)); /* the others open the file now */
        TRY(processes_agree(comm, s->model, o, e));
    }
    return load(s, o, order.n_context, e);
}

enum err_code session_measure_sums(struct comm_cost *out, struct err *e)
{
    struct order order = { .kind = ORDER_MEASURE };

    told = 1;
    comm_broadcast(comm, &order, sizeof order, 0);
    return comm_measure_cost(comm, out, e);
}

void session_close(struct session *s)
{
    if (s->group) {
        group_free(&s->group);
    } else {
        if (s->engine && comm)
            engine_quit(s->engine);
        engine_free(&s->engine);
    }
    draft_drop(&s->record);
    planning_free(&s->planning);
    tokenizer_close(&s->tokenizer);
    model_close(&s->model);
}

/* ---- Processes -------------------------------------------------------------- */

int session_runs_ranks(enum command_id c)
{
    return c == COMMAND_generate || c == COMMAND_chat || c == COMMAND_perplexity ||
           c == COMMAND_logits || c == COMMAND_bench || c == COMMAND_latentd_rank;
}

int session_follows(void)
{
    struct comm_job job;

    return comm_find_job(&job, NULL) == ERR_OK && job.rank > 0;
}

void session_let_rank_0_speak(void)
{
    if (session_follows())
        (void)sleep(SPEAK_S);
}

/* A rank other than 0.  What goes wrong here is rank 0's to say. */
static void follow(const struct options *o)
{
    struct session s = { 0 };
    struct order order = { 0 };
    struct comm_cost cost;
    struct err e = { 0 };

    comm_broadcast(comm, &order, sizeof order, 0);
    if (comm_check(comm, &e) == ERR_OK && order.kind == ORDER_MEASURE)
        (void)comm_measure_cost(comm, &cost, &e);
    if (comm_check(comm, &e) != ERR_OK || order.kind != ORDER_LOAD)
        return;
    enum err_code rc = session_open(&s, o, 0, &e);
    if (comm_share_error(comm, rc, &e) == ERR_OK &&
        processes_agree(comm, s.model, o, &e) == ERR_OK &&
        load(&s, o, order.n_context, &e) == ERR_OK)
        (void)engine_follow(s.engine, &e);
    engine_free(&s.engine);
    session_close(&s);
}

enum err_code session_start(const struct options *o, int *follows, struct err *e)
{
    struct comm_options c;
    struct comm_job job;
    struct team team;
    enum err_code rc = ERR_OK;

    *follows = 0;
    if (!session_runs_ranks(o->command))
        return ERR_OK;
    TRY(comm_find_job(&job, e));
    if (job.rank < 0)
        return ERR_OK;
    comm_options_default(&c);
    c.reduce = (enum comm_reduce)o->reduce;
    c.deadline_ms = (int)(o->rank_timeout * 1000);
    c.heed_signals = 1;
    team_init(&team, (int)o->threads); /* as the engine will: it decides how long waits spin */
    c.n_threads = team.n_threads;
    TRY(comm_create_mpi(&comm, &c, e));
    *follows = comm_rank(comm) != 0;
    if (o->ranks > 0 && o->ranks != comm_size(comm))
        rc = err_set(e, ERR_USAGE,
                     "--ranks %lld: mpirun has started %d; leave --ranks out, or give mpirun -np",
                     (long long)o->ranks, comm_size(comm));
    rc = share_verdict(rc, e); /* one rank may have been told another number than the others */
    told = rc != ERR_OK;
    TRY(rc);
    if (!*follows)
        return ERR_OK;
    log_set_quiet(1);
    follow(o);
    return ERR_OK;
}

struct comm *session_comm(void)
{
    return comm;
}

int session_end(void)
{
    struct order nothing = { 0 };
    struct err e = { 0 };

    if (!comm)
        return 0;
    if (comm_rank(comm) == 0 && !told)
        comm_broadcast(comm, &nothing, sizeof nothing, 0);
    int status = comm_check(comm, &e) == ERR_OK ? 0 : comm_exit_status(comm);
    comm_free(&comm);
    return status;
}
