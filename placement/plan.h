/* SPDX-License-Identifier: MIT */
/* placement/plan.h - where everything goes: the plan as plain data.
 *
 * Devices are the memories of the ranks: "RANK<r>" is the host memory and the threads of rank r,
 * "CUDA<k>" a GPU.  A tensor is cut into parts, each on one device:
 *
 *     all      the whole tensor (norms, router, q_a, kv_a stand on every rank)
 *     heads    attention heads [begin, end)
 *     columns  columns of the FFN [begin, end), rows of gate and up alike
 *     experts  whole experts, as a list of ranges
 *     vocab    rows of the output matrix [begin, end)
 *
 * Every rank has its own copy of what stands on every rank, and of the latent cache of the layers
 * whose heads it computes, in its own memory: nothing is shared, so nothing is far away and
 * nothing is locked.  All bytes are signed 64-bit.
 */
#ifndef PLACEMENT_PLAN_H
#define PLACEMENT_PLAN_H

#include "model/model.h"
#include "placement/devices.h"
#include "placement/efficiency.h"
#include "placement/findings.h"
#include "placement/hot.h"
#include "placement/match.h"

enum plan_cache_type { PLAN_CACHE_F16, PLAN_CACHE_BF16, PLAN_CACHE_F32, PLAN_CACHE_Q8_0 };

/* What the user may choose besides rules and devices. */
struct plan_options {
    int64_t n_context; /* -c, positions of all requests together; 0: what fits  */
    int n_sequences;   /* -np                                                   */
    int ubatch;        /* -ub                                                   */
    int n_logits;      /* tokens of a step whose logits rank 0 keeps; at least 1 */
    enum plan_cache_type cache_type;
    int amb_mib;                     /* -amb                                                  */
    int n_threads;                   /* of a rank; 0: its share of the host's cores           */
    int batch;                       /* requests decoded at once, for the prediction          */
    int64_t depth;                   /* positions before the predicted token                  */
    const struct hot *hot;           /* expert frequencies, or NULL                       */
    const struct efficiency *engine; /* that the prediction is for; NULL: latentd */
    int no_prediction;               /* only where everything goes                        */
    int exact_math;                  /* float activations: a k_b out of kv_b is F32       */
};

enum device_kind { DEVICE_HOST, DEVICE_GPU };

struct plan_device {
    char name[16];
    enum device_kind kind;
    int host, rank;
    const struct gpu_kind *gpu; /* of a GPU */
    double read_bw, int8_rate;  /* bytes, operations per second */
    int64_t capacity_bytes; /* of a rank: what it needs, and its share of what its host has left */
    int64_t weights_bytes, cache_bytes, activation_bytes, staging_bytes, comm_bytes, reserve_bytes;
};

struct plan_rank {
    int host;
    int memory; /* device: its host memory                            */
    int main;   /* device: its first GPU, otherwise its host memory   */
    int n_threads;
};

enum plan_axis { AXIS_ALL, AXIS_HEADS, AXIS_COLUMNS, AXIS_EXPERTS, AXIS_VOCAB };

struct plan_range {
    int64_t begin, end;
};

struct plan_part {
    int tensor, device;
    enum plan_axis axis;
    int first_range, n_ranges; /* in plan.ranges */
    int64_t file_bytes, memory_bytes;
};

struct plan_tensor {
    const struct gguf_tensor *t; /* borrowed from the model */
    int role, layer;             /* enum tensor_role, ROLE_COUNT if the engine has no use for it */
    int rule;                    /* that took it and was obeyed, or -1 */
    const char *reason;          /* why it is where it is, a constant  */
};

/* One named piece of a predicted time. */
enum plan_phase { PHASE_DECODE, PHASE_PREFILL, PHASE_LOAD };
struct plan_term {
    enum plan_phase phase;
    char name[40];
    double us;
};

/* What one kind of link carries for a token, at its busiest end. */
struct plan_link {
    char name[40];
    double bytes, messages;
};

enum { PLAN_MAX_TERMS = 32, PLAN_MAX_LINKS = 4 };

struct plan_predict {
    int batch;
    int64_t depth;
    double decode_tps, prefill_tps, load_s;
    struct plan_term terms[PLAN_MAX_TERMS];
    int n_terms;
    double crossings; /* between GPU and host, a token */
    struct plan_link links[PLAN_MAX_LINKS];
    int n_links;
};

struct plan {
    const struct model *model;
    const struct inventory *inventory;
    struct plan_options opt; /* n_context is the planned one */

    struct plan_device *devices; /* [n_devices]: host memories in rank order, then GPUs */
    struct plan_rank *ranks;     /* [n_ranks]   */
    int n_devices, n_ranks, n_gpus;

    struct plan_tensor *tensors; /* [n_tensors], in file order */
    int n_tensors;
    struct plan_part *parts; /* [n_parts], in tensor order */
    int n_parts, parts_cap;
    struct plan_range *ranges;
    int n_ranges, ranges_cap;

    struct plan_predict predict;
    int fits;
};

/* Rows of logits that rank 0 has room for. */
static inline int plan_logits(const struct plan_options *o)
{
    return o->n_logits < 1 ? 1 : o->n_logits < o->ubatch ? o->n_logits : o->ubatch;
}

static inline int64_t plan_used(const struct plan_device *d)
{
    return d->weights_bytes + d->cache_bytes + d->activation_bytes + d->staging_bytes +
           d->comm_bytes + d->reserve_bytes;
}

static inline int64_t plan_slack(const struct plan_device *d)
{
    return d->capacity_bytes - plan_used(d);
}

/* A memory that is full or not as a whole: a host's, which its ranks share; a GPU's; or that of a
 * rank which is bound to NUMA nodes of its own. */
struct plan_memory {
    char name[80];
    int64_t needed_bytes, available_bytes;
    int n_ranks, first_rank; /* of a host */
};

/* i: from 0 below plan_memories, hosts first.  Returns 0 if there is none at i. */
int plan_memory_at(const struct plan *p, int i, struct plan_memory *m);

static inline int plan_memories(const struct plan *p)
{
    return p->inventory->n + p->n_devices;
}

/* What a plan is made of. */
struct plan_input {
    const struct model *model;
    const struct inventory *inventory;
    const struct rules *rules;
    const struct match *match; /* over the file's tensors, in file order */
    struct plan_options opt;
};

/* Plans.  Findings about rules that the devices cannot obey, about layers that are pulled together
 * and about uneven slices go to *findings.  With n_context 0 the most that fits is taken, at most
 * the model's context for every sequence.  p->fits tells whether every device has room.
 * Errors: ERR_NOMEM; ERR_USAGE.  End with plan_free. */
enum err_code plan_make(struct plan *p, const struct plan_input *in, struct findings *findings,
                        struct err *e);
void plan_free(struct plan *p);

/* "what fits" left to itself: the same for exactly n_context positions. */
enum err_code plan_make_at(struct plan *p, const struct plan_input *in, int64_t n_context,
                           struct findings *findings, struct err *e);

const char *plan_axis_name(enum plan_axis a);
const char *plan_cache_name(enum plan_cache_type t);

#endif
