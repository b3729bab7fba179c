/* SPDX-License-Identifier: MIT */
#include "base/arena.h"

#include <sys/mman.h>

enum err_code arena_map(struct arena *a, size_t size, const char *what, struct err *e)
{
    *a = (struct arena){ 0 };
    if (size == 0)
        return ERR_OK;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_set(e, ERR_NOMEM,
                       "no memory for %zu bytes of %s; free some or use a smaller one", size, what);
    madvise(p, size, MADV_HUGEPAGE); /* a refusal only costs speed */
    a->base = p;
    a->size = size;
    return ERR_OK;
}

void *arena_take(struct arena *a, size_t bytes)
{
    size_t rounded = arena_round(bytes);

    if (rounded < bytes || rounded > a->size - a->used)
        return NULL;
    void *p = a->base + a->used;
    a->used += rounded;
    return p;
}

void arena_reset(struct arena *a, size_t used)
{
    a->used = used;
}

void arena_unmap(struct arena *a)
{
    if (a->base)
        munmap(a->base, a->size);
    *a = (struct arena){ 0 };
}
