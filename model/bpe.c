/* SPDX-License-Identifier: MIT */
/* model/bpe.c - see bpe.h.
 *
 * The symbols of a piece are a linked list; pairs that have a merge wait in a heap,
 * ordered by rank and then by place.  A pair whose symbols have changed in the
 * meantime is dropped when its turn comes.  A merge takes one entry out and puts at most
 * two in, so a heap of twice the piece never grows: O(n log n).
 *
 * Reading order: the table of merges, the heap, one piece.
 */
#include "model/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "model/byte_alphabet.h"

/* ---- The table of merges ------------------------------------------------ */

enum { NO_MERGE = -1 };

static size_t pair_slot(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t slot = (pair * 0x9E3779B97F4A7C15u >> 32) & (b->n_slots - 1);

    while (b->slot[slot]) {
        const struct bpe_merge *m = &b->merge[b->slot[slot] - 1];
        if (m->left == left && m->right == right)
            break;
        slot = (slot + 1) & (b->n_slots - 1);
    }
    return slot;
}

/* The rank of a pair, or NO_MERGE. */
static int64_t rank_of(const struct bpe *b, int32_t left, int32_t right)
{
    return b->n_merges ? (int64_t)b->slot[pair_slot(b, left, right)] - 1 : NO_MERGE;
}

/* As in vocab.c: half of the slots stay empty. */
static int resize(struct bpe *b, uint32_t cap)
{
    size_t n_slots = 2 * (size_t)cap;
    struct bpe_merge *merge;
    uint32_t *slot;

    merge = realloc(b->merge, cap * sizeof *merge);
    if (!merge)
        return -1;
    b->merge = merge;
    slot = calloc(n_slots, sizeof *slot);
    if (!slot)
        return -1;
    free(b->slot);
    b->slot = slot;
    b->n_slots = n_slots;
    b->cap = cap;
    for (uint32_t rank = 0; rank < b->n_merges; rank++)
        b->slot[pair_slot(b, merge[rank].left, merge[rank].right)] = rank + 1;
    return 0;
}

void bpe_reserve(struct bpe *b, uint32_t n)
{
    uint32_t cap = b->cap ? b->cap : 1024;

    while (cap < n && cap <= INT32_MAX / 4)
        cap *= 2;
    if (cap < n || (cap > b->cap && resize(b, cap)))
        b->failed = 1;
}

int bpe_add(struct bpe *b, struct vocab *v, const char *text, size_t n, int32_t n_tokens)
{
    const char *gap = n > 1 ? memchr(text + 1, ' ', n - 1) : NULL;
    size_t n_left = gap ? (size_t)(gap - text) : n, n_right = n - n_left - (gap ? 1 : 0);
    struct bpe_merge m;
    size_t slot;

    if (!gap || n_right == 0)
        return -1;
    str_clear(&b->joined);
    str_append(&b->joined, text, n_left);
    str_append(&b->joined, gap + 1, n_right);
    if (b->n_merges == b->cap)
        bpe_reserve(b, b->n_merges + 1);
    if (b->joined.failed)
        b->failed = 1;
    if (b->failed)
        return 0;
    m.left = vocab_intern(v, text, n_left);
    m.right = vocab_intern(v, gap + 1, n_right);
    m.result = vocab_intern(v, b->joined.data, b->joined.len);
    slot = pair_slot(b, m.left, m.right);
    if (!b->slot[slot]) { /* a repeated one keeps its first rank */
        b->merge[b->n_merges++] = m;
        b->slot[slot] = b->n_merges;
    }
    return m.result >= n_tokens;
}

void bpe_finish(struct bpe *b, struct vocab *v, const uint8_t *plain, int32_t n_tokens)
{
    str_free(&b->joined);
    b->vocab = v;
    b->plain = plain;
    b->n_tokens = n_tokens;
    for (int byte = 0; byte < 256; byte++) {
        char letter[2];
        b->byte_symbol[byte] = vocab_intern(v, letter, alphabet_letter((uint8_t)byte, letter));
    }
    for (int32_t i = 0; i < n_tokens; i++)
        if (v->text[i].len > b->longest)
            b->longest = v->text[i].len;
}

void bpe_free(struct bpe *b)
{
    free(b->merge);
    free(b->slot);
    str_free(&b->joined);
    *b = (struct bpe){ 0 };
}

/* ---- The heap ----------------------------------------------------------- */

static void heap_push(struct bpe_work *w, uint64_t entry)
{
    size_t at = w->n_heap++;

    while (at > 0 && w->heap[(at - 1) / 2] > entry) {
        w->heap[at] = w->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    w->heap[at] = entry;
}

static uint64_t heap_pop(struct bpe_work *w)
{
    uint64_t least = w->heap[0], entry = w->heap[--w->n_heap];
    size_t at = 0, child;

    while ((child = 2 * at + 1) < w->n_heap) {
        if (child + 1 < w->n_heap && w->heap[child + 1] < w->heap[child])
            child++;
        if (w->heap[child] >= entry)
            break;
        w->heap[at] = w->heap[child];
        at = child;
    }
    w->heap[at] = entry;
    return least;
}

/* ---- One piece ---------------------------------------------------------- */

static int work_reserve(struct bpe_work *w, size_t n)
{
    size_t cap = 64;

    while (cap < n)
        cap *= 2;
    if (w->cap >= cap)
        return 0;
    free(w->node);
    free(w->heap);
    w->node = calloc(cap, sizeof *w->node);
    w->heap = calloc(2 * cap, sizeof *w->heap);
    w->cap = w->node && w->heap ? cap : 0;
    return w->cap ? 0 : -1;
}

void bpe_work_free(struct bpe_work *w)
{
    free(w->node);
    free(w->heap);
    str_free(&w->letters);
    *w = (struct bpe_work){ 0 };
}

/* The token that is this piece, or -1. */
static int32_t whole_token(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n)
{
    char letter[2];
    int32_t symbol;

    if (n > b->longest)
        return -1;
    str_clear(&w->letters);
    for (size_t i = 0; i < n; i++)
        str_append(&w->letters, letter, alphabet_letter((uint8_t)piece[i], letter));
    symbol = w->letters.failed ? -1 : vocab_find(b->vocab, w->letters.data, w->letters.len);
    return symbol >= 0 && symbol < b->n_tokens && b->plain[symbol] ? symbol : -1;
}

/* Puts node `left` and the one after it into the heap, if they have a merge. */
static void offer(const struct bpe *b, struct bpe_work *w, uint32_t left, uint32_t n)
{
    uint32_t right = w->node[left].after;
    int64_t rank;

    if (right >= n)
        return;
    rank = rank_of(b, w->node[left].symbol, w->node[right].symbol);
    if (rank != NO_MERGE)
        heap_push(w, (uint64_t)rank << 32 | left);
}

static void merge_pairs(const struct bpe *b, struct bpe_work *w, uint32_t n)
{
    w->n_heap = 0;
    for (uint32_t i = 0; i + 1 < n; i++)
        offer(b, w, i, n);
    while (w->n_heap) {
        uint64_t entry = heap_pop(w);
        const struct bpe_merge *m = &b->merge[entry >> 32];
        uint32_t left = (uint32_t)entry, right = w->node[left].after;

        if (right >= n || w->node[left].symbol != m->left || w->node[right].symbol != m->right)
            continue; /* stale */
        w->node[left].symbol = m->result;
        w->node[left].after = w->node[right].after;
        w->node[right].symbol = -1;
        if (w->node[left].after < n)
            w->node[w->node[left].after].before = left;
        offer(b, w, left, n);
        if (left > 0)
            offer(b, w, w->node[left].before, n);
    }
}

static void emit(const struct bpe *b, int32_t symbol, struct token_list *out)
{
    const char *text;
    size_t n, used;

    if (symbol < b->n_tokens && b->plain[symbol]) {
        token_list_push(out, symbol);
        return;
    }
    text = vocab_text(b->vocab, symbol, &n);
    for (size_t at = 0; at < n; at += used) {
        int byte = alphabet_byte(text + at, n - at, &used);
        if (byte >= 0 && b->byte_token[byte] >= 0)
            token_list_push(out, b->byte_token[byte]);
    }
}

void bpe_encode(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n, int whole,
                struct token_list *out)
{
    int32_t token = whole ? whole_token(b, w, piece, n) : -1;

    if (token >= 0) {
        token_list_push(out, token);
        return;
    }
    if (work_reserve(w, n)) {
        token_list_free(out);
        out->failed = 1;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        w->node[i].symbol = b->byte_symbol[(uint8_t)piece[i]];
        w->node[i].before = (uint32_t)i - 1;
        w->node[i].after = (uint32_t)i + 1;
    }
    merge_pairs(b, w, (uint32_t)n);
    for (uint32_t i = 0; i < n; i = w->node[i].after)
        emit(b, w->node[i].symbol, out);
}
