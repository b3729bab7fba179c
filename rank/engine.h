/* SPDX-License-Identifier: MIT */
/* rank/engine.h - the engine of one process: weights, latent cache, forward pass.
 *
 * A sequence is a prompt and what is produced after it.  It is begun with the length of
 * its prompt, then fed tokens in order, any number at a time; how they are cut into steps
 * does not change a bit of the result.
 *
 *     engine_begin(e, seq, n_prompt)
 *     engine_feed(e, seq, prompt, n_prompt, ENGINE_LAST, on_logits, arg, err)
 *     engine_feed(e, seq, &next, 1, ENGINE_LAST, on_logits, arg, err) ...
 *
 * That is for one program that owns all sequences.  Whoever schedules many requests builds
 * steps of its own (engine_run_step) and must not mix the two.
 *
 * Not thread-safe: one thread at a time.
 */
#ifndef RANK_ENGINE_H
#define RANK_ENGINE_H

#include "model/model.h"
#include "placement/plan.h"
#include "rank/cache.h"
#include "rank/comm.h"
#include "rank/step.h"

struct engine;
struct sampler;

struct engine_options {
    int n_threads;              /* -t; 0: the cores this process may use            */
    const char *cpu_isa;        /* --cpu-isa; NULL: the best of this machine        */
    int exact_math;             /* float activations and no int8                    */
    int mla;                    /* -mla 0..3                                        */
    int amb_mib;                /* -amb                                             */
    enum cache_type cache_type; /* -ctk                                       */
    int64_t n_context;       /* -c, positions of all sequences together; 0: what fits, at most the
                                model's context * n_sequences                    */
    int n_sequences;         /* -np                                              */
    int max_batch;           /* -ub, tokens of a step                            */
    int max_logits;          /* rows of engine_logits, at most max_batch         */
    int router_groups;       /* 0: --router-groups off                           */
    int check_tensors;       /* --check-tensors                                  */
    enum comm_reduce reduce; /* --reduce, of a rank by itself              */
    int record_experts;      /* rank 0 counts the choices of the router    */
    int bind_threads;        /* each to a core, if they have as many; else they may wander */
};

/* The defaults of the command line. */
void engine_options_default(struct engine_options *o);

/* What the engine takes, in bytes, to the byte what it maps. */
struct engine_memory {
    size_t weights, cache, activations, comm;
    int64_t n_context; /* positions, after 0 was replaced */
};

/* Sizes everything from the headers alone.  Errors: ERR_NOFIT, it does not fit into the memory
 * that is available (says by how much and the smallest change that fits); ERR_USAGE. */
enum err_code engine_plan(struct engine_memory *mem, const struct model *m,
                          const struct engine_options *o, struct err *e);

/* The same for one rank of a plan, whose context it takes. */
enum err_code engine_plan_rank(struct engine_memory *mem, const struct plan *plan, int rank,
                               const struct engine_options *o, struct err *e);

/* Plans, maps, loads.  Borrows m, which must outlive the engine.
 * Errors: those of engine_plan, weights_load, forward_create; ERR_USAGE, --cpu-isa names a set that
 * this machine lacks. */
enum err_code engine_create(struct engine **out, const struct model *m,
                            const struct engine_options *o, struct err *e);

/* One rank of a plan: what is placed on it, with the plan's context, threads, -ub, -np, -ctk and
 * -amb instead of those of o.  comm joins the ranks (collective; borrowed, without buffers yet);
 * NULL for a plan of one rank.  All ranks fail together, with the first one's error.
 * Errors: those of engine_create without ERR_NOFIT; ERR_PEER; ERR_UNSUPPORTED, a GPU. */
enum err_code engine_create_rank(struct engine **out, const struct plan *plan, struct comm *comm,
                                 const struct engine_options *o, struct err *e);
void engine_free(struct engine **e);

/* The other ranks than 0 carry out steps until rank 0 ends with engine_quit.
 * Errors: ERR_PEER, ERR_NOMEM, ERR_FORMAT. */
enum err_code engine_follow(struct engine *e, struct err *err);
void engine_quit(struct engine *e);

const struct engine_memory *engine_memory_used(const struct engine *e);
int64_t engine_context(const struct engine *e); /* positions that one sequence may have */
const char *engine_isa(const struct engine *e); /* "avx2", ...                      */
int engine_threads(const struct engine *e);

struct comm *engine_comm(const struct engine *e); /* of its group, or of one rank */

/* What a step may name. */
const struct step_limits *engine_limits(const struct engine *e);

/* Of rank 0: room for logits [max_logits][n_vocab], and a sampler; the plan counts both. */
float *engine_logits(const struct engine *e);
struct sampler *engine_sampler(const struct engine *e);

/* Carries out one step, on rank 0 of a group and thereby on all: page changes, then the tokens,
 * whose pos, form (attention_form) and produced the driver has set.  logits: [tokens that want
 * them][n_vocab] in batch order, or NULL if none does.  Sets each token's bad_layer.  The step is
 * within engine_limits. Errors: ERR_FORMAT, a token attends to a position that no page holds;
 * nothing is computed; ERR_PEER, a rank failed: the group is at its end. */
enum err_code engine_run_step(struct engine *e, struct step *s, float *logits, struct err *err);

/* All ranks together.  Active are the weight bytes that one token of one sequence reads when
 * decoded alone: every matrix it meets, of the experts those it uses.  The floor of decode time
 * is this over the read bandwidth, or what the busiest rank reads over that of a rank. */
struct engine_totals {
    int n_ranks, n_threads;
    int64_t weights, cache, active, busiest_active, file_bytes;
};

const struct engine_totals *engine_totals(const struct engine *e);

/* [n_layers][n_experts]: how often the router has chosen each expert of the model since the engine
 * was created, zero in dense layers.  NULL without record_experts, and on other ranks than 0. */
const uint64_t *engine_expert_counts(const struct engine *e);

/* Starts sequence `seq` (0 .. n_sequences - 1) anew; the first n_prompt tokens fed are its prompt.
 */
void engine_begin(struct engine *e, int seq, int64_t n_prompt);

/* A further turn of a sequence: what is fed from now on is prompt up to n_prompt tokens in all.
 * What is in the cache stays as it was computed, so the bits depend on the turns. */
void engine_extend(struct engine *e, int seq, int64_t n_prompt);

/* Tokens fed so far. */
int64_t engine_length(const struct engine *e, int seq);

enum engine_want { ENGINE_NONE, ENGINE_LAST, ENGINE_ALL };

/* Logits [n_vocab] after the token at `pos`; valid during the call. */
typedef void engine_logits_fn(void *arg, int64_t pos, const float *logits);

/* Evaluates the next n tokens of one sequence and reports the wanted logits in order.
 * Errors: ERR_FULL, the cache has no room (message says how much was wanted; nothing was fed);
 * ERR_USAGE, a token id outside the vocabulary; ERR_NUMERIC, a sum was not a number or out of
 * range: names layer and position, the sequence must be begun anew; ERR_NOMEM. */
enum err_code engine_feed(struct engine *e, int seq, const int32_t *tokens, int64_t n,
                          enum engine_want want, engine_logits_fn *on_logits, void *arg,
                          struct err *err);

/* One step of any mix of the engine's own sequences: fills in each token's pos, form and produced
 * from its seq and the order of the list, runs it, and advances the sequences.  logits: [tokens
 * that want them][n_vocab].  b->n is at most max_batch.  Errors: as engine_feed, but numeric
 * failures only set bad_layer of their tokens. */
enum err_code engine_step(struct engine *e, struct batch *b, float *logits, struct err *err);

#endif
