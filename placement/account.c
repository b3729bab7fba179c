/* SPDX-License-Identifier: MIT */
/* placement/account.c - see account.h. */
#include "placement/account.h"

#include "base/arena.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/packing.h"

/* ---- Weights ---------------------------------------------------------------- */

struct extent extent_whole(const struct model *m, const struct plan_tensor *t)
{
    const struct hparams *hp = &m->hp;
    const int64_t *dim = t->t->dim;

    switch (t->role) {
    case ROLE_ATTN_KV_B: /* rows of one head after the other */
        return (struct extent){ hp->d_nope + hp->d_v, dim[0], hp->n_heads };
    default:
        return (struct extent){ dim[1], dim[0], dim[2] * dim[3] };
    }
}

static int64_t packed(enum quant type, int64_t rows, int64_t cols, int64_t slabs)
{
    return (int64_t)arena_round((size_t)slabs * pack_matrix_bytes(type, rows, cols));
}

static int is_vector(const struct plan_tensor *t)
{
    return t->t->n_dims == 1;
}

/* A kv_b becomes k_b, transposed and in a float type, and v_b. */
static int64_t account_kv_b(const struct plan *p, enum quant type, int64_t heads)
{
    const struct hparams *hp = &p->model->hp;
    enum quant derived = p->opt.exact_math ? QUANT_F32 : QUANT_F16;
    enum quant k = quant_info[type].program == QUANT_FLOAT ? type : derived;

    return packed(k, hp->kv_lora_rank, hp->d_nope, heads) +
           packed(type, hp->d_v, hp->kv_lora_rank, heads);
}

int64_t account_memory(const struct plan *p, const struct plan_tensor *t, enum device_kind kind,
                       struct extent x)
{
    enum quant type = quant_info[t->t->type].plain;

    if (x.rows <= 0 || x.cols <= 0 || x.slabs <= 0)
        return 0;
    if (is_vector(t))
        return (int64_t)arena_round((size_t)x.cols * sizeof(float));
    if (t->role == ROLE_ATTN_KV_B)
        return account_kv_b(p, type, x.slabs);
    if (t->role == ROLE_TOKEN_EMBD || kind == DEVICE_GPU)
        return (int64_t)arena_round((size_t)(x.rows * x.slabs) *
                                    quant_row_bytes(type, (size_t)x.cols));
    if (t->role == ROLE_GATE_UP_EXPS)
        return 2 * packed(type, x.rows / 2, x.cols, x.slabs);
    return packed(type, x.rows, x.cols, x.slabs);
}

int64_t account_file(const struct plan_tensor *t, struct extent x)
{
    return x.rows * x.slabs * (int64_t)quant_row_bytes(t->t->type, (size_t)x.cols);
}

/* ---- Latent cache ------------------------------------------------------------ */

enum { PAGE = 64 };

/* Under q8_0 the rope key stays in f16; every 32 latent values share an f16 scale. */
int64_t account_cache_row(const struct hparams *hp, enum plan_cache_type type)
{
    int64_t latent = hp->kv_lora_rank, rope = hp->d_rope, bytes;

    if (type == PLAN_CACHE_Q8_0)
        bytes = latent + latent / 32 * 2 + rope * 2;
    else
        bytes = (latent + rope) * (type == PLAN_CACHE_F32 ? 4 : 2);
    return (bytes + 3) / 4 * 4;
}

int64_t account_cache_layer(const struct hparams *hp, enum plan_cache_type type, int64_t n_context)
{
    return (n_context + PAGE - 1) / PAGE * PAGE * account_cache_row(hp, type);
}

int64_t account_page_tables(const struct hparams *hp, const struct plan_options *o)
{
    int64_t longest = o->n_context < hp->context_length ? o->n_context : hp->context_length;
    int64_t pages = (longest + PAGE - 1) / PAGE;

    return (int64_t)arena_round((size_t)(o->n_sequences * pages) * sizeof(int32_t));
}

/* ---- Activations -------------------------------------------------------------- */

struct counter {
    int64_t bytes;
};

static void take(struct counter *c, int64_t bytes)
{
    c->bytes += (int64_t)arena_round((size_t)bytes);
}

static void take_floats(struct counter *c, int64_t n)
{
    take(c, n * (int64_t)sizeof(float));
}

/* Columns of int8 activations with their scales and sums. */
static void take_columns(struct counter *c, int64_t n, int64_t width)
{
    take(c, n * (int64_t)sizeof(struct cpu_column));
    take(c, n * width);
    take_floats(c, n * (width / 32));
    take_floats(c, n * (width / 32));
    take(c, n * (width / 16) * (int64_t)sizeof(int16_t));
}

static int64_t at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t round_rows(int64_t rows)
{
    return (rows + PACK_ROWS - 1) / PACK_ROWS * PACK_ROWS;
}

/* Positions whose keys and values are expanded at a time. */
static int64_t piece_of(const struct hparams *hp, int n_threads, int amb_mib)
{
    enum { MAX_PIECE = 512 };
    int64_t values = hp->kv_lora_rank + hp->d_rope + hp->d_nope + hp->d_v;
    int64_t piece = ((int64_t)amb_mib << 20) / n_threads / (values * (int64_t)sizeof(float));

    piece = piece / PAGE * PAGE;
    return piece < PAGE ? PAGE : piece > MAX_PIECE ? MAX_PIECE : piece;
}

/* Scratch of one thread in attention. */
static void take_attention(struct counter *c, const struct hparams *hp, int64_t tokens,
                           int64_t heads, int n_threads, int64_t piece)
{
    enum { ABSORBED_ROWS = 64 };
    int64_t d_c = hp->kv_lora_rank;
    int64_t absorbed = at_least((heads + n_threads - 1) / n_threads, ABSORBED_ROWS);
    int64_t rows = at_least(absorbed, tokens);
    int64_t fold = at_least(absorbed * d_c, rows * hp->d_v);

    take_floats(c, fold);
    take_floats(c, fold);
    for (int i = 0; i < 4; i++)
        take_floats(c, rows);
    take_floats(c, absorbed * d_c);
    take_floats(c, absorbed * hp->d_rope);
    take_floats(c, rows * PAGE);
    take_floats(c, piece * (d_c + hp->d_rope));
    take_floats(c, piece * hp->d_nope);
    take_floats(c, piece * hp->d_v);
    take_floats(c, round_rows(hp->d_nope) * d_c);
    take_floats(c, hp->d_nope);
    take(c, hp->d_nope * (int64_t)sizeof(float) + ARENA_ALIGN);
    take_columns(c, absorbed, hp->d_nope);
    take_columns(c, at_least(absorbed, piece), d_c);
}

static void take_moe(struct counter *c, const struct hparams *hp, int64_t n)
{
    int64_t experts = hp->n_experts, pairs = n * hp->n_experts_used;

    if (hp->n_layers <= hp->n_dense)
        return;
    take_floats(c, n * experts);
    take_floats(c, 2 * n * experts);
    take(c, pairs * (int64_t)sizeof(int32_t));
    take_floats(c, pairs);
    take(c, (experts + 1) * (int64_t)sizeof(int32_t));
    take(c, pairs * (int64_t)sizeof(int32_t));
    take_floats(c, pairs);
    take(c, pairs * (int64_t)sizeof(struct cpu_column));
    take_floats(c, pairs * hp->d_expert);
    take_floats(c, pairs * hp->d_expert);
    take_columns(c, pairs, hp->d_expert);
}

/* Logits on their way to rank 0, with a word for each rank that says whether they are numbers; the
 * complete ones there; the sampler's candidates. */
static void take_head(struct counter *c, const struct hparams *hp, const struct plan_options *o,
                      const struct account_rank *r)
{
    enum { GATHER_ROWS = 64, CANDIDATE_BYTES = 32 };
    int64_t n = o->ubatch, rows = n < GATHER_ROWS ? n : GATHER_ROWS;

    take(c, n * (int64_t)sizeof(int32_t));
    if (r->rank == 0) {
        take_floats(c, plan_logits(o) * hp->n_vocab);
        c->bytes += hp->n_vocab * (int64_t)CANDIDATE_BYTES;
    }
    if (r->n_ranks == 1)
        return;
    take(c, r->n_ranks * (int64_t)sizeof(size_t));
    take_floats(c, rows * (r->vocab + 1));
    if (r->rank == 0)
        take_floats(c, rows * (hp->n_vocab + r->n_ranks));
}

int64_t account_activations(const struct hparams *hp, const struct plan_options *o,
                            const struct account_rank *r)
{
    struct counter c = { 0 };
    int64_t n = o->ubatch, d = hp->d_model, heads = r->heads, ffn = r->columns;
    int n_threads = r->n_threads;

    take_floats(&c, n * d);
    take_floats(&c, n * d);
    take(&c, n * (int64_t)sizeof(int64_t));
    take(&c, n_threads * n * (int64_t)sizeof(int64_t));
    take_floats(&c, n * hp->d_rope);
    take_floats(&c, n * hp->q_lora_rank);
    take_floats(&c, n * heads * (hp->d_nope + hp->d_rope));
    take_floats(&c, n * (hp->kv_lora_rank + hp->d_rope));
    take_floats(&c, n * heads * hp->d_v);
    take_floats(&c, n * ffn);
    take_floats(&c, n * ffn);
    take_columns(&c, n, d);
    take_columns(&c, n, hp->q_lora_rank);
    take_columns(&c, n, heads * hp->d_v);
    take_columns(&c, n, ffn);
    take_moe(&c, hp, n);
    take_head(&c, hp, o, r);
    int64_t piece = piece_of(hp, n_threads, o->amb_mib);
    for (int t = 0; t < n_threads; t++)
        take_attention(&c, hp, n, heads, n_threads, piece);
    return c.bytes;
}

int64_t account_expert_buffers(const struct hparams *hp, const struct plan_options *o)
{
    struct counter c = { 0 };
    int64_t n = o->ubatch;

    take_floats(&c, n * hp->d_model);
    take(&c, n * hp->d_model * (int64_t)sizeof(int64_t));
    take_columns(&c, n, hp->d_model);
    take_moe(&c, hp, n);
    return c.bytes;
}

/* ---- The rest ------------------------------------------------------------------ */

int64_t account_staging(int n_threads)
{
    return n_threads * ((int64_t)4 << 20);
}

/* Two buffers of rows for every rank of several.  The leader's: finished sums as f32; with other
 * hosts a message out and one in from each; the seats of the host's ranks; of every rank of
 * the group its figures, and a place on two boards. */
int64_t account_comm(const struct plan *p, int rank)
{
    enum { EXTRA = 2, ROOM = 704, SEAT = 128, FIGURES = 64, BOARD = 128 << 10 };
    int64_t cells = p->opt.ubatch * (int64_t)(p->model->hp.d_model + EXTRA);
    int64_t rows = (int64_t)arena_round((size_t)cells * sizeof(int64_t));
    int host = p->ranks[rank].host, hosts = p->inventory->n;
    int64_t bytes = p->n_ranks > 1 ? 2 * rows : rows;

    for (int r = 0; r < rank; r++)
        if (p->ranks[r].host == host)
            return bytes; /* it does not lead */
    if (p->n_ranks > 1)
        bytes += (int64_t)arena_round((size_t)cells * sizeof(float));
    if (hosts > 1)
        bytes += (1 + hosts) * rows;
    return bytes + ROOM + p->inventory->hosts[host].ranks * SEAT +
           p->n_ranks * (FIGURES + 2 * (int64_t)BOARD);
}

int64_t account_reserve(enum device_kind kind)
{
    return (int64_t)(kind == DEVICE_GPU ? 512 : 256) << 20;
}
