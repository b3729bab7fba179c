/* SPDX-License-Identifier: MIT */
/* rank/attention.c - see attention.h.
 *
 * Reading order: the fold, which both forms share; absorbed; expanded; the cost rule;
 * memory.
 */
#include "rank/attention.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 512,        /* grid of a prompt's forms                       */
    ABSORBED_ROWS = 64, /* queries per pass over the cache, at least       */
    MAX_PIECE = 512,
};

/* A run: consecutive tokens of one sequence and one form in the batch. */
struct run {
    int first, n;
    int seq;
    int64_t last_pos;
};

/* The run from `first` on, before token `end`. */
static struct run next_run(const struct batch *b, int first, int end)
{
    const struct batch_token *t = b->tokens;
    int next = first + 1;

    while (next < end && t[next].seq == t[first].seq && t[next].form == t[first].form)
        next++;
    return (struct run){
        .first = first, .n = next - first, .seq = t[first].seq, .last_pos = t[next - 1].pos
    };
}

struct head_range {
    int begin, end;
};

static struct head_range heads_of(const struct attention *a, const struct layer_weights *w,
                                  int thread)
{
    return (struct head_range){ (int)team_begin(w->v_b.n_slabs, thread, a->n_threads),
                                (int)team_end(w->v_b.n_slabs, thread, a->n_threads) };
}

/* ---- The fold ----------------------------------------------------------- */

/* The rows from `row` on. */
static struct fold fold_from(const struct fold *f, int row)
{
    return (struct fold){ .o = f->o + row * f->width,
                          .joined_o = f->joined_o + row * f->width,
                          .max = f->max + row,
                          .sum = f->sum + row,
                          .joined_max = f->joined_max + row,
                          .joined_sum = f->joined_sum + row,
                          .width = f->width };
}

static void fold_begin(struct fold *f, int rows)
{
    memset(f->o, 0, (size_t)(rows * f->width) * sizeof(float));
    for (int r = 0; r < rows; r++) {
        f->max[r] = f->joined_max[r] = -INFINITY;
        f->sum[r] = f->joined_sum[r] = 0;
    }
}

static float exp_of(const struct cpu_kernels *k, float x)
{
    float p;

    k->softmax_part(&p, &x, 1, 0);
    return p;
}

/* Takes n scores of one row into its maximum and sum; they become weights. */
static void fold_scores(const struct cpu_kernels *k, struct fold *f, int row, float *s, int n)
{
    float max = f->max[row];

    for (int i = 0; i < n; i++)
        max = s[i] > max ? s[i] : max;
    if (max > f->max[row] && f->sum[row] > 0) {
        float shrink = exp_of(k, f->max[row] - max);
        f->sum[row] *= shrink;
        k->scale(f->o + row * f->width, shrink, f->width);
    }
    f->max[row] = max;
    f->sum[row] += k->softmax_part(s, s, n, max);
}

/* Ends a split of one row: joins it to those before and starts the next. */
static void fold_join(const struct cpu_kernels *k, struct fold *f, int row)
{
    float *o = f->o + row * f->width, *joined = f->joined_o + row * f->width;

    if (f->joined_max[row] == -INFINITY) {
        memcpy(joined, o, (size_t)f->width * sizeof *o);
        f->joined_max[row] = f->max[row];
        f->joined_sum[row] = f->sum[row];
    } else {
        float max = f->max[row] > f->joined_max[row] ? f->max[row] : f->joined_max[row];
        float mine = exp_of(k, f->max[row] - max), theirs = exp_of(k, f->joined_max[row] - max);
        k->scale(joined, theirs, f->width);
        k->values(joined, f->width, &mine, 1, 1, o, f->width, 1, f->width);
        f->joined_sum[row] = f->joined_sum[row] * theirs + f->sum[row] * mine;
        f->joined_max[row] = max;
    }
    memset(o, 0, (size_t)f->width * sizeof *o);
    f->max[row] = -INFINITY;
    f->sum[row] = 0;
}

/* The weighted mean of one row, over all its splits. */
static float *fold_end(const struct cpu_kernels *k, struct fold *f, int row)
{
    fold_join(k, f, row);
    float *o = f->joined_o + row * f->width;
    k->scale(o, 1 / f->joined_sum[row], f->width);
    return o;
}

/* Positions of a split for a produced position; no split for a prompt position. */
static int64_t split_of(const struct batch_token *t)
{
    int64_t split = 256;

    if (!t->produced)
        return INT64_MAX;
    while (split * 32 < t->pos + 1)
        split *= 2;
    return split;
}

/* Keys of the block at position `at` that a token may see, at most n. */
static int keys_seen(const struct batch_token *t, int64_t at, int n)
{
    int64_t seen = t->pos + 1 - at;

    return seen < 0 ? 0 : seen < n ? (int)seen : n;
}

/* One key block for n_tokens x n_heads rows (token-major): scores become weights, values are added.
 * s: [rows][64], already scored.  v: [n][v_stride]. */
static void fold_block(const struct attention *a, struct fold *f, const struct batch_token *tokens,
                       int n_tokens, int n_heads, int64_t at, int n, float *s, const float *v,
                       int64_t v_stride)
{
    const struct cpu_kernels *k = a->math.kernels;

    for (int t = 0; t < n_tokens; t++) {
        int seen = keys_seen(&tokens[t], at, n);
        int join = at > 0 && at % split_of(&tokens[t]) == 0;
        for (int row = t * n_heads; seen > 0 && row < (t + 1) * n_heads; row++) {
            if (join)
                fold_join(k, f, row);
            fold_scores(k, f, row, s + row * CACHE_PAGE, seen);
        }
    }
    for (int t = 0, next; t < n_tokens; t = next) { /* tokens that see as many keys go together */
        int row = t * n_heads, seen = keys_seen(&tokens[t], at, n);
        for (next = t + 1; next < n_tokens; next++)
            if (keys_seen(&tokens[next], at, n) != seen)
                break;
        if (seen > 0)
            k->values(f->o + row * f->width, f->width, s + row * CACHE_PAGE, CACHE_PAGE,
                      (next - t) * n_heads, v, v_stride, seen, f->width);
    }
}

/* ---- Absorbed ----------------------------------------------------------- */

/* The queries of n_tokens tokens and the thread's heads, taken into latent space. */
static void absorb_queries(const struct attention *a, const struct layer_weights *w,
                           struct head_range heads, int first, int n_tokens, const float *q,
                           int64_t q_stride, struct attention_scratch *s)
{
    const struct hparams *hp = a->hp;
    int int8 = matrix_wants_int8(&a->math, &w->k_b), n_heads = heads.end - heads.begin;

    for (int h = heads.begin; h < heads.end; h++) {
        int row = h - heads.begin;
        for (int t = 0; t < n_tokens; t++) {
            const float *head = q + (first + t) * q_stride + h * (hp->d_nope + hp->d_rope);
            columns_set(&s->nope, a->math.kernels, t, head, int8);
            memcpy(s->query_rope + (t * n_heads + row) * hp->d_rope, head + hp->d_nope,
                   (size_t)hp->d_rope * sizeof *head);
        }
        matrix_mul(&a->math, &w->k_b, h, 0, w->k_b.n_groups, s->nope.col, n_tokens,
                   s->query + row * hp->kv_lora_rank, n_heads * hp->kv_lora_rank);
    }
}

/* The folded latents of all rows, taken back to each head's values. */
static void unabsorb(const struct attention *a, const struct layer_weights *w,
                     struct head_range heads, int first, int n_tokens, float *o, int64_t o_stride,
                     struct attention_scratch *s)
{
    int int8 = matrix_wants_int8(&a->math, &w->v_b), n_heads = heads.end - heads.begin;

    for (int h = heads.begin; h < heads.end; h++) {
        for (int t = 0; t < n_tokens; t++) {
            int row = t * n_heads + h - heads.begin;
            columns_set(&s->latents, a->math.kernels, t, fold_end(a->math.kernels, &s->fold, row),
                        int8);
        }
        matrix_mul(&a->math, &w->v_b, h, 0, w->v_b.n_groups, s->latents.col, n_tokens,
                   o + first * o_stride + h * a->hp->d_v, o_stride);
    }
}

/* A run's queries, from `row` on, over the cached latents of its sequence. */
static void attend_latents(const struct attention *a, int layer, int n_heads, const struct batch *b,
                           struct run run, int row, struct attention_scratch *s)
{
    const struct hparams *hp = a->hp;
    int64_t d_c = hp->kv_lora_rank, width = d_c + hp->d_rope;
    struct fold fold = fold_from(&s->fold, row);

    comm_note_progress(a->comm);
    for (int64_t at = 0; at <= run.last_pos; at += CACHE_PAGE) {
        int64_t left = run.last_pos + 1 - at;
        int n = left < CACHE_PAGE ? (int)left : CACHE_PAGE;
        cache_read(a->cache, a->math.kernels, layer, run.seq, at / CACHE_PAGE, n, s->latent);
        a->math.kernels->scores(s->scores, CACHE_PAGE, s->query + row * d_c, d_c,
                                s->query_rope + row * hp->d_rope, hp->d_rope, n_heads * run.n,
                                s->latent, width, s->latent + d_c, width, n, d_c, hp->d_rope,
                                a->softmax_scale);
        fold_block(a, &fold, b->tokens + run.first, run.n, n_heads, at, n, s->scores, s->latent,
                   width);
    }
}

/* Tokens first .. end-1, of any sequences: they share the passes over k_b and v_b. */
static void run_absorbed(const struct attention *a, const struct layer_weights *w, int layer,
                         const struct batch *b, int first, int end, const float *q,
                         int64_t q_stride, float *o, int64_t o_stride, struct attention_scratch *s,
                         int thread)
{
    struct head_range heads = heads_of(a, w, thread);
    int n_heads = heads.end - heads.begin;

    if (n_heads == 0)
        return;
    int per_pass = s->absorbed_rows / n_heads;
    s->fold.width = a->hp->kv_lora_rank;
    for (int n; first < end; first += n) {
        n = end - first < per_pass ? end - first : per_pass;
        absorb_queries(a, w, heads, first, n, q, q_stride, s);
        fold_begin(&s->fold, n_heads * n);
        for (int t = first; t < first + n;) {
            struct run run = next_run(b, t, first + n);
            attend_latents(a, layer, n_heads, b, run, (t - first) * n_heads, s);
            t += run.n;
        }
        unabsorb(a, w, heads, first, n, o, o_stride, s);
    }
}

/* ---- Expanded ----------------------------------------------------------- */

/* Head h's W_UK [d_n][d_c] as x16 f32: line c holds 16 rows' column c.  It is k_b transposed, which
 * no block of a quantised type survives. */
static void transpose_k_b(const struct hparams *hp, const struct layer_weights *w, int h,
                          struct attention_scratch *s)
{
    int64_t d_c = hp->kv_lora_rank;

    for (int64_t c = 0; c < d_c; c++) { /* row c of k_b is column c of W_UK */
        unpack_row(w->k_b.type, matrix_group(&w->k_b, h, c / PACK_ROWS), (int)(c % PACK_ROWS),
                   w->k_b.cols, s->row_bytes);
        quant_dequantize_row(w->k_b.type, s->row_bytes, w->k_b.cols, s->row);
        for (int64_t i = 0; i < hp->d_nope; i++)
            s->w_k[(i / PACK_ROWS * d_c + c) * PACK_ROWS + i % PACK_ROWS] = s->row[i];
    }
}

/* Keys and values of n cached positions from `at` for the current head. */
static void expand_piece(const struct attention *a, const struct layer_weights *w, int layer, int h,
                         int seq, int64_t at, int64_t n, struct attention_scratch *s)
{
    const struct hparams *hp = a->hp;
    int64_t d_c = hp->kv_lora_rank, width = d_c + hp->d_rope;
    int int8 = matrix_wants_int8(&a->math, &w->v_b);
    struct matrix w_k;

    for (int64_t i = 0; i < n; i += CACHE_PAGE) {
        int rows = n - i < CACHE_PAGE ? (int)(n - i) : CACHE_PAGE;
        cache_read(a->cache, a->math.kernels, layer, seq, (at + i) / CACHE_PAGE, rows,
                   s->latent + i * width);
    }
    for (int64_t i = 0; i < n; i++)
        columns_set(&s->latents, a->math.kernels, i, s->latent + i * width, int8);
    matrix_init(&w_k, QUANT_F32, hp->d_nope, d_c, 1);
    w_k.data = (uint8_t *)s->w_k;
    matrix_mul(&a->math, &w_k, 0, 0, w_k.n_groups, s->latents.col, (int)n, s->keys, hp->d_nope);
    matrix_mul(&a->math, &w->v_b, h, 0, w->v_b.n_groups, s->latents.col, (int)n, s->values,
               hp->d_v);
}

/* How many of n tokens, whose positions ascend, see nothing from position `at` on. */
static int tokens_before(const struct batch_token *tokens, int n, int64_t at)
{
    int before = 0;

    while (before < n && tokens[before].pos < at)
        before++;
    return before;
}

static void expanded_head(const struct attention *a, const struct layer_weights *w, int layer,
                          int h, const struct batch *b, struct run run, const float *q,
                          int64_t q_stride, float *o, int64_t o_stride, struct attention_scratch *s)
{
    const struct hparams *hp = a->hp;
    const struct batch_token *tokens = b->tokens + run.first;
    const float *query = q + run.first * q_stride + h * (hp->d_nope + hp->d_rope);
    int64_t width = hp->kv_lora_rank + hp->d_rope;

    transpose_k_b(hp, w, h, s);
    s->fold.width = hp->d_v;
    fold_begin(&s->fold, run.n);
    for (int64_t at = 0; at <= run.last_pos; at += a->piece) {
        int64_t left = run.last_pos + 1 - at, piece = left < a->piece ? left : a->piece;
        comm_note_progress(a->comm);
        expand_piece(a, w, layer, h, run.seq, at, piece, s);
        for (int64_t i = 0; i < piece; i += CACHE_PAGE) {
            int n = piece - i < CACHE_PAGE ? (int)(piece - i) : CACHE_PAGE;
            int blind = tokens_before(tokens, run.n, at + i);
            const float *seeing = query + blind * q_stride;
            a->math.kernels->scores(s->scores + blind * CACHE_PAGE, CACHE_PAGE, seeing, q_stride,
                                    seeing + hp->d_nope, q_stride, run.n - blind,
                                    s->keys + i * hp->d_nope, hp->d_nope,
                                    s->latent + i * width + hp->kv_lora_rank, width, n, hp->d_nope,
                                    hp->d_rope, a->softmax_scale);
            fold_block(a, &s->fold, tokens, run.n, 1, at + i, n, s->scores, s->values + i * hp->d_v,
                       hp->d_v);
        }
    }
    for (int t = 0; t < run.n; t++)
        memcpy(o + (run.first + t) * o_stride + h * hp->d_v, fold_end(a->math.kernels, &s->fold, t),
               (size_t)hp->d_v * sizeof(float));
}

/* ---- One layer ---------------------------------------------------------- */

void attention_run(const struct attention *a, const struct layer_weights *w, int layer,
                   const struct batch *b, const float *q, int64_t q_stride, float *o,
                   int64_t o_stride, struct attention_scratch *s, int thread)
{
    struct head_range heads = heads_of(a, w, thread);

    for (int first = 0, end; first < b->n; first = end) {
        end = first;
        while (end < b->n && b->tokens[end].form == MLA_ABSORBED)
            end++;
        if (end > first) {
            run_absorbed(a, w, layer, b, first, end, q, q_stride, o, o_stride, s, thread);
            continue;
        }
        struct run run = next_run(b, first, b->n);
        for (int h = heads.begin; h < heads.end; h++)
            expanded_head(a, w, layer, h, b, run, q, q_stride, o, o_stride, s);
        end = first + run.n;
    }
}

enum mla_form attention_form(const struct hparams *hp, int mla, int64_t pos, int64_t prompt_len)
{
    if (mla == 0)
        return MLA_EXPANDED;
    if (mla == 1 || pos >= prompt_len)
        return MLA_ABSORBED;
    int64_t depth = pos / CHUNK * CHUNK;
    if (depth + CHUNK <= prompt_len)
        return MLA_EXPANDED;
    /* multiply-adds per head: (un)absorbing n tokens or expanding depth + n rows, and the pairs */
    double n = (double)(prompt_len - depth), pairs = n * (double)depth + n * (n + 1) / 2;
    double d_c = (double)hp->kv_lora_rank, d_nv = (double)(hp->d_nope + hp->d_v);
    double absorbed = n * d_c * d_nv + pairs * (2 * d_c + (double)hp->d_rope);
    double expanded = ((double)depth + n) * d_c * d_nv + pairs * (d_nv + (double)hp->d_rope);
    return expanded < absorbed ? MLA_EXPANDED : MLA_ABSORBED;
}

/* ---- Memory ------------------------------------------------------------- */

int64_t attention_piece(const struct hparams *hp, int n_threads, int amb_mib)
{
    int64_t values = hp->kv_lora_rank + hp->d_rope + hp->d_nope + hp->d_v;
    int64_t piece = ((int64_t)amb_mib << 20) / n_threads / (values * (int64_t)sizeof(float));

    piece = piece / CACHE_PAGE * CACHE_PAGE;
    return piece < CACHE_PAGE ? CACHE_PAGE : piece > MAX_PIECE ? MAX_PIECE : piece;
}

static float *carve_floats(struct carve *c, int64_t n)
{
    return carve_take(c, (size_t)n * sizeof(float));
}

void attention_carve(struct attention_scratch *s, struct carve *from, const struct attention *a)
{
    const struct hparams *hp = a->hp;
    int64_t d_c = hp->kv_lora_rank;
    int64_t heads = (a->max_heads + a->n_threads - 1) / a->n_threads;
    int64_t absorbed = heads > ABSORBED_ROWS ? heads : ABSORBED_ROWS;
    int64_t rows = absorbed > a->max_tokens ? absorbed : a->max_tokens;
    int64_t fold = absorbed * d_c > rows * hp->d_v ? absorbed * d_c : rows * hp->d_v;
    int64_t k_rows = (hp->d_nope + PACK_ROWS - 1) / PACK_ROWS * PACK_ROWS;
    int64_t latents = absorbed > a->piece ? absorbed : a->piece;

    s->absorbed_rows = (int)absorbed;
    s->fold.o = carve_floats(from, fold);
    s->fold.joined_o = carve_floats(from, fold);
    s->fold.max = carve_floats(from, rows);
    s->fold.sum = carve_floats(from, rows);
    s->fold.joined_max = carve_floats(from, rows);
    s->fold.joined_sum = carve_floats(from, rows);
    s->query = carve_floats(from, absorbed * d_c);
    s->query_rope = carve_floats(from, absorbed * hp->d_rope);
    s->scores = carve_floats(from, rows * CACHE_PAGE);
    s->latent = carve_floats(from, a->piece * (d_c + hp->d_rope));
    s->keys = carve_floats(from, a->piece * hp->d_nope);
    s->values = carve_floats(from, a->piece * hp->d_v);
    s->w_k = carve_floats(from, k_rows * d_c);
    s->row = carve_floats(from, hp->d_nope);
    s->row_bytes = carve_take(from, (size_t)hp->d_nope * sizeof(float) + ARENA_ALIGN);
    columns_carve(&s->nope, from, absorbed, hp->d_nope);
    columns_carve(&s->latents, from, latents, d_c);
}
