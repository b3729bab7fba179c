/* SPDX-License-Identifier: MIT */
/* rank/comm_sum.c - comm_settle: partial sums of all ranks to everybody's residual.
 *
 * Every rank adds up its rows in memory that the ranks of its host can read.  On one host:
 *
 *     few rows    gate; every rank adds all partials to its own x
 *     many        gate; every rank finishes a share of the sums as f32; gate; everybody adds those
 *
 * Over several hosts the ranks of a host first make one sum of theirs, in the form in which it
 * travels; then the leaders exchange these sums (few rows), or each a share of them and
 * afterwards the finished f32 (many).  All threads of all ranks of a host share each part of
 * the work.  Shares are ranges of elements, row after row, so their number changes no bit.
 *
 * Form: exact i64, or what one partial is after rounding: f32, bf16.  A message between hosts
 * is the values [n_rows * width] in that form, then i64 [n_rows][COMM_EXTRA] at the next
 * multiple of 8 bytes.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "rank/comm_room.h"

enum { BLOCK = 256 }; /* elements that are worked on at a time */

/* From how much work on a second gate pays (bytes that a rank reads less because of it), and
 * messages between hosts go in two halves.  Measured: tests/tools/bench_comm.c. */
enum { SCATTER_BYTES = 128 << 10, SCATTER_BYTES_CROWDED = 4 << 20, TWO_HALVES_BYTES = 256 << 10 };

struct settling {
    struct comm *c;
    const struct cpu_kernels *k;
    float *x;
    int64_t n_rows, n; /* n: elements, n_rows * width */
    int64_t *bad;
    int thread, n_threads;
};

/* ---- Shares ----------------------------------------------------------------------- */

/* The part of [from, to) that belongs to `part` of n, cut at multiples of 16. */
struct range {
    int64_t begin, end;
};

static int64_t cut(struct range all, int64_t part, int64_t n)
{
    if (part == n)
        return all.end;
    return all.begin + (all.end - all.begin) * part / n / 16 * 16;
}

static struct range share(struct range all, int64_t part, int64_t n)
{
    return (struct range){ cut(all, part, n), cut(all, part + 1, n) };
}

static struct range share_of_team(const struct settling *s)
{
    return share((struct range){ 0, s->n }, s->thread, s->n_threads);
}

/* Of all threads of the host.  Ranks may have teams of different sizes: first by rank. */
static struct range share_of_host(const struct settling *s, struct range all)
{
    struct range rank = share(all, s->c->local, s->c->n_local);

    return share(rank, s->thread, s->n_threads);
}

/* What of all hosts' sums is finished by host h. */
static struct range share_of_hosts(const struct settling *s, int h)
{
    return share((struct range){ 0, s->n }, h, s->c->n_hosts);
}

static int64_t *rows_of(const struct comm *c, int local, int turn)
{
    const struct comm_memory *m = &c->memory;
    size_t cells = ((size_t)m->max_rows * (size_t)m->stride + 7) / 8 * 8;

    return m->rows + ((size_t)local * 2 + (size_t)turn) * cells;
}

int64_t *comm_rows(struct comm *c)
{
    return rows_of(c, c->local, c->turn);
}

/* ---- Blocks ------------------------------------------------------------------------ */

static size_t form_bytes(const struct comm *c)
{
    static const size_t bytes[] = { [COMM_EXACT] = 8, [COMM_F32] = 4, [COMM_BF16] = 2 };

    return bytes[c->opt.reduce];
}

/* -O2 makes vectors of this only where the number of turns is known. */
enum { TURN = 16 };

static void add_f32(float *restrict sum, const float *restrict v, int64_t n)
{
    int64_t i = 0;

    for (; i + TURN <= n; i += TURN)
        for (int k = 0; k < TURN; k++)
            sum[i + k] += v[i + k];
    for (; i < n; i++)
        sum[i] += v[i];
}

static uint16_t bf16_of(float v)
{
    uint32_t u;

    memcpy(&u, &v, sizeof u);
    if ((u & 0x7fffffff) > 0x7f800000) /* not a number */
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float f32_of_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float v;

    memcpy(&v, &u, sizeof v);
    return v;
}

static void round_bf16(float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = f32_of_bf16(bf16_of(v[i]));
}

/* out[n] = fix as f32, rounded once; fix becomes zero. */
static void finish(const struct settling *s, float *out, int64_t *fix, int64_t n)
{
    memset(out, 0, (size_t)n * sizeof *out);
    s->k->settle(out, fix, n);
}

/* fix[n] = the sum over ranks of the host of elements at, at + 1 ... of one row. */
static void sum_exact(const struct settling *s, int64_t at, int64_t n, int64_t *fix)
{
    const struct comm *c = s->c;

    memcpy(fix, rows_of(c, 0, c->turn) + at, (size_t)n * sizeof *fix);
    for (int r = 1; r < c->n_local; r++)
        s->k->add_fixed(fix, rows_of(c, r, c->turn) + at, n);
}

/* sum[n] = the sum of rounded partials, in rank order. */
static void sum_rounded(const struct settling *s, int64_t at, int64_t n, float *sum)
{
    const struct comm *c = s->c;
    int64_t fix[BLOCK];
    float part[BLOCK];

    for (int r = 0; r < c->n_local; r++) {
        memcpy(fix, rows_of(c, r, c->turn) + at, (size_t)n * sizeof *fix);
        finish(s, r == 0 ? sum : part, fix, n);
        if (c->opt.reduce == COMM_BF16)
            round_bf16(r == 0 ? sum : part, n);
        if (r > 0)
            add_f32(sum, part, n);
    }
}

/* Calls fn for every block of a range: elements at[i], all in one row. */
typedef void block_fn(const struct settling *s, int64_t element, int64_t at, int64_t n);

static void for_blocks(const struct settling *s, struct range r, block_fn *fn)
{
    int64_t width = s->c->memory.width, stride = s->c->memory.stride;

    for (int64_t i = r.begin, n; i < r.end; i += n) {
        int64_t row = i / width, col = i % width;
        n = width - col < r.end - i ? width - col : r.end - i;
        n = n < BLOCK ? n : BLOCK;
        fn(s, i, row * stride + col, n);
    }
}

/* ---- One host ----------------------------------------------------------------------- */

static void block_to_x(const struct settling *s, int64_t element, int64_t at, int64_t n)
{
    if (s->c->opt.reduce == COMM_EXACT) {
        int64_t fix[BLOCK];
        sum_exact(s, at, n, fix);
        s->k->settle(s->x + element, fix, n);
    } else {
        float sum[BLOCK];
        sum_rounded(s, at, n, sum);
        add_f32(s->x + element, sum, n);
    }
}

static void block_to_sums(const struct settling *s, int64_t element, int64_t at, int64_t n)
{
    float *sums = s->c->memory.sums + element;

    if (s->c->opt.reduce == COMM_EXACT) {
        int64_t fix[BLOCK];
        sum_exact(s, at, n, fix);
        finish(s, sums, fix, n);
    } else {
        sum_rounded(s, at, n, sums);
    }
}

/* This thread's share of x += the finished sums. */
static void add_sums(const struct settling *s)
{
    struct range r = share_of_team(s);

    add_f32(s->x + r.begin, s->c->memory.sums + r.begin, r.end - r.begin);
}

static int scatters(const struct settling *s)
{
    const struct comm *c = s->c;
    int64_t saved = s->n * (8 * (c->n_local - 1) - 8);

    return saved > (c->oversubscribed ? SCATTER_BYTES_CROWDED : SCATTER_BYTES);
}

static void settle_on_host(const struct settling *s)
{
    if (scatters(s)) {
        for_blocks(s, share_of_host(s, (struct range){ 0, s->n }), block_to_sums);
        comm_host_gate(s->c, s->thread, s->n_threads);
        add_sums(s);
    } else {
        for_blocks(s, share_of_team(s), block_to_x);
    }
}

/* One rank settles its rows where they are, which leaves zeros. */
static void block_alone(const struct settling *s, int64_t element, int64_t at, int64_t n)
{
    s->k->settle(s->x + element, rows_of(s->c, 0, 0) + at, n);
}

static void settle_alone(const struct settling *s)
{
    for_blocks(s, share_of_team(s), block_alone);
    for (int64_t i = s->thread; i < s->n_rows; i += s->n_threads) {
        int64_t *extra = comm_rows(s->c) + i * s->c->memory.stride + s->c->memory.width;
        s->bad[i] = extra[COMM_BAD];
        extra[COMM_BAD] = extra[COMM_DIGEST] = 0;
    }
}

/* ---- Several hosts ------------------------------------------------------------------ */

static size_t values_bytes(const struct settling *s, struct range r)
{
    return (size_t)(r.end - r.begin) * form_bytes(s->c);
}

static size_t extras_at(const struct settling *s)
{
    return (values_bytes(s, (struct range){ 0, s->n }) + 7) / 8 * 8;
}

static size_t extras_bytes(const struct settling *s)
{
    return (size_t)s->n_rows * COMM_EXTRA * sizeof(int64_t);
}

static uint8_t *message_of(const struct settling *s, int host)
{
    const struct comm_memory *m = &s->c->memory;

    return host == s->c->host ? m->outbox : m->inbox + (size_t)host * m->message;
}

static void block_to_outbox(const struct settling *s, int64_t element, int64_t at, int64_t n)
{
    uint8_t *out = s->c->memory.outbox + (size_t)element * form_bytes(s->c);

    if (s->c->opt.reduce == COMM_EXACT) {
        sum_exact(s, at, n, (int64_t *)out);
    } else if (s->c->opt.reduce == COMM_F32) {
        sum_rounded(s, at, n, (float *)out);
    } else {
        float sum[BLOCK];
        sum_rounded(s, at, n, sum);
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = bf16_of(sum[i]);
    }
}

/* sum[n] += a block of one host's message. */
static void add_message(const struct settling *s, const uint8_t *from, int64_t n, float *sum)
{
    if (s->c->opt.reduce == COMM_F32)
        add_f32(sum, (const float *)from, n);
    else
        for (int64_t i = 0; i < n; i++)
            sum[i] += f32_of_bf16(((const uint16_t *)from)[i]);
}

/* fix or sum [n] = the sum over hosts, in their order. */
static void sum_hosts(const struct settling *s, int64_t element, int64_t n, int64_t *fix,
                      float *sum)
{
    size_t at = (size_t)element * form_bytes(s->c);

    memset(fix, 0, (size_t)n * sizeof *fix);
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int h = 0; h < s->c->n_hosts; h++)
        if (s->c->opt.reduce == COMM_EXACT)
            s->k->add_fixed(fix, (const int64_t *)(message_of(s, h) + at), n);
        else
            add_message(s, message_of(s, h) + at, n, sum);
}

static void hosts_to_x(const struct settling *s, int64_t element, int64_t at, int64_t n)
{
    int64_t fix[BLOCK];
    float sum[BLOCK];

    (void)at;
    sum_hosts(s, element, n, fix, sum);
    if (s->c->opt.reduce == COMM_EXACT)
        s->k->settle(s->x + element, fix, n);
    else
        add_f32(s->x + element, sum, n);
}

static void hosts_to_sums(const struct settling *s, int64_t element, int64_t at, int64_t n)
{
    int64_t fix[BLOCK];
    float sum[BLOCK], *out = s->c->memory.sums + element;

    (void)at;
    sum_hosts(s, element, n, fix, sum);
    if (s->c->opt.reduce == COMM_EXACT)
        finish(s, out, fix, n);
    else
        memcpy(out, sum, (size_t)n * sizeof *out);
}

/* Leaders: every other host h gets values send[h] of the own sum and all extras; its values
 * `own` come into its message here. */
static void exchange_messages(const struct settling *s, int whole)
{
    struct comm *c = s->c;
    struct comm_piece pieces[2 * COMM_MAX_HOSTS];
    struct range all = { 0, s->n };
    int n = 0;

    for (int h = 0; h < c->n_hosts; h++) {
        struct range theirs = whole ? all : share_of_hosts(s, h);
        struct range ours = whole ? all : share_of_hosts(s, c->host);
        size_t send_at = (size_t)theirs.begin * form_bytes(c);
        size_t recv_at = (size_t)ours.begin * form_bytes(c);
        if (h == c->host)
            continue;
        pieces[n++] = (struct comm_piece){ h, c->memory.outbox + send_at, values_bytes(s, theirs),
                                           message_of(s, h) + recv_at, values_bytes(s, ours) };
        pieces[n++] = (struct comm_piece){ h, c->memory.outbox + extras_at(s), extras_bytes(s),
                                           message_of(s, h) + extras_at(s), extras_bytes(s) };
    }
    comm_exchange(c, pieces, n);
}

/* Leaders: finished f32 of the own share to all, and theirs. */
static void exchange_sums(const struct settling *s)
{
    struct comm *c = s->c;
    struct comm_piece pieces[COMM_MAX_HOSTS];
    struct range ours = share_of_hosts(s, c->host);
    int n = 0;

    for (int h = 0; h < c->n_hosts; h++) {
        struct range theirs = share_of_hosts(s, h);
        if (h != c->host)
            pieces[n++] = (struct comm_piece){
                h, c->memory.sums + ours.begin, (size_t)(ours.end - ours.begin) * sizeof(float),
                c->memory.sums + theirs.begin, (size_t)(theirs.end - theirs.begin) * sizeof(float)
            };
    }
    comm_exchange(c, pieces, n);
}

/* The extras of this host: bad counts added up, the digest that all its ranks have. */
static void extras_to_outbox(const struct settling *s)
{
    struct comm *c = s->c;
    int64_t *out = (int64_t *)(c->memory.outbox + extras_at(s));

    for (int64_t i = 0; i < s->n_rows; i++, out += COMM_EXTRA) {
        int64_t at = i * c->memory.stride + c->memory.width;
        out[COMM_DIGEST] = rows_of(c, 0, c->turn)[at + COMM_DIGEST];
        out[COMM_BAD] = 0;
        for (int r = 0; r < c->n_local; r++)
            out[COMM_BAD] += rows_of(c, r, c->turn)[at + COMM_BAD];
    }
}

static void settle_over_hosts(const struct settling *s)
{
    struct comm *c = s->c;
    int works = comm_is_leader(c) && s->thread == 0;
    int whole =
        values_bytes(s, (struct range){ 0, s->n }) * (size_t)(c->n_hosts - 1) <= TWO_HALVES_BYTES;

    for_blocks(s, share_of_host(s, (struct range){ 0, s->n }), block_to_outbox);
    comm_host_gate(c, s->thread, s->n_threads);
    if (works) {
        extras_to_outbox(s);
        exchange_messages(s, whole);
    }
    comm_host_gate(c, s->thread, s->n_threads);
    if (comm_failed(c))
        return;
    if (whole) {
        for_blocks(s, share_of_team(s), hosts_to_x);
        return;
    }
    for_blocks(s, share_of_host(s, share_of_hosts(s, c->host)), hosts_to_sums);
    comm_host_gate(c, s->thread, s->n_threads);
    if (works)
        exchange_sums(s);
    comm_host_gate(c, s->thread, s->n_threads);
    add_sums(s);
}

/* ---- Bad counts and digests ----------------------------------------------------------- */

static void drifted(struct comm *c, int rank)
{
    char why[200];

    (void)snprintf(why, sizeof why,
                   "its step is not that of rank %d on host %s; one of the two has another model, "
                   "build or bad memory",
                   c->rank, comm_host(c, c->rank));
    comm_raise(c, rank, "has drifted", why);
}

static int rank_at(const struct comm *c, int host, int local)
{
    for (int r = 0; r < c->size; r++)
        if (c->places[r].host == host && c->places[r].local == local)
            return r;
    return 0;
}

/* Rows of this thread. */
static void settle_extras(const struct settling *s)
{
    struct comm *c = s->c;

    for (int64_t i = s->thread; i < s->n_rows; i += s->n_threads) {
        int64_t at = i * c->memory.stride + c->memory.width;
        int64_t digest = rows_of(c, c->local, c->turn)[at + COMM_DIGEST];
        s->bad[i] = 0;
        for (int r = 0; r < c->n_local; r++) {
            const int64_t *extra = rows_of(c, r, c->turn) + at;
            s->bad[i] += extra[COMM_BAD];
            if (extra[COMM_DIGEST] != digest)
                drifted(c, rank_at(c, c->host, r));
        }
        for (int h = 0; h < c->n_hosts; h++) {
            if (h == c->host)
                continue; /* sends itself nothing */
            const int64_t *extra =
                (const int64_t *)(message_of(s, h) + extras_at(s)) + i * COMM_EXTRA;
            s->bad[i] += extra[COMM_BAD];
            if (extra[COMM_DIGEST] != digest)
                drifted(c, c->leaders[h]);
        }
    }
}

/* ---- The whole -------------------------------------------------------------------------- */

/* The buffer of the last sum, which nobody reads any more. */
static void clear_last(const struct settling *s)
{
    struct comm *c = s->c;
    int64_t n = c->dirty[c->turn ^ 1] * c->memory.stride;
    struct range r = share((struct range){ 0, n }, s->thread, s->n_threads);

    memset(rows_of(c, c->local, c->turn ^ 1) + r.begin, 0,
           (size_t)(r.end - r.begin) * sizeof(int64_t));
}

static void take_turn(struct comm *c)
{
    c->dirty[c->turn ^ 1] = 0;
    c->turn ^= 1;
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void settle_together(const struct settling *s)
{
    struct comm *c = s->c;

    if (s->thread == 0)
        c->dirty[c->turn] = s->n_rows;
    if (c->n_hosts > 1)
        settle_over_hosts(s);
    else
        settle_on_host(s);
    if (!comm_failed(c))
        settle_extras(s);
    clear_last(s);
    comm_team_gate(c, s->n_threads, take_turn);
}

void comm_settle(struct comm *c, const struct cpu_kernels *k, float *x, int64_t n_rows,
                 int64_t *bad, int thread, int n_threads)
{
    struct settling s = { c, k, x, n_rows, n_rows * c->memory.width, bad, thread, n_threads };
    double begin = thread == 0 ? now_us() : 0;

    if (comm_failed(c))
        return;
    comm_host_gate(c, thread, n_threads);
    if (c->size > 1) {
        settle_together(&s);
    } else {
        settle_alone(&s);
        comm_team_gate(c, n_threads, NULL);
    }
    if (thread == 0)
        c->sum_us += now_us() - begin;
}
