/* SPDX-License-Identifier: MIT */
/* placement/devices.c - see devices.h. */
#include "placement/devices.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "placement/spec_reader.h"

#define GIB ((int64_t)1 << 30)

static const struct gpu_kind gpu_kinds[] = {
#define GPU(name, gib, gbs, bf16, int8, link, us, bus) \
    { name, (gib)*GIB, (gbs)*1e9, (bf16)*1e12, (int8)*1e12, (link)*1e9, us, (bus)*1e9 },
#define MEM(name, gbs)
#include "placement/devices.def"
#undef GPU
#undef MEM
};

static const struct memory_kind {
    const char *name;
    double channel_bw;
} memory_kinds[] = {
#define GPU(name, gib, gbs, bf16, int8, link, us, bus)
#define MEM(name, gbs) { name, (gbs)*1e9 },
#include "placement/devices.def"
#undef GPU
#undef MEM
};

enum {
    N_GPU_KINDS = sizeof gpu_kinds / sizeof *gpu_kinds,
    N_MEMORY_KINDS = sizeof memory_kinds / sizeof *memory_kinds
};

/* Peak of one core of a 2020s server: 64 int8 products a cycle at 2.5 GHz. */
static const double core_int8_rate = 2 * 64 * 2.5e9;
/* One core alone reads about this much. */
static const double core_read_bw = 8e9;
static const double default_disk_bw = 2e9;

double cpu_int8_rate(int cores)
{
    return cores * core_int8_rate;
}

const struct gpu_kind *gpu_kind_by_name(const char *name, size_t len, const char **nearest)
{
    char word[64];
    int best = INT_MAX;

    snprintf(word, sizeof word, "%.*s", (int)(len < 63 ? len : 63), name);
    for (int i = 0; i < N_GPU_KINDS; i++) {
        if (strcasecmp(word, gpu_kinds[i].name) == 0)
            return &gpu_kinds[i];
        int d = str_distance(word, gpu_kinds[i].name);
        if (d < best) {
            best = d;
            *nearest = gpu_kinds[i].name;
        }
    }
    return NULL;
}

/* ---- Values of one host ----------------------------------------------------- */

static enum err_code read_gpus(struct spec *s, struct host *h, struct err *e)
{
    do {
        int n = 1;
        const char *nearest = "";
        struct spec_word word;
        if (spec_at_digit(s) || spec_next_is(s, '-')) {
            TRY(spec_count(s, 1, HOST_MAX_GPUS, "GPUs", &n, e));
            if (!spec_take(s, '*'))
                return spec_error(s, e, "gpus is N*NAME, such as 4*H200");
        }
        TRY(spec_name(s, &word, e));
        const struct gpu_kind *kind = gpu_kind_by_name(word.text, word.len, &nearest);
        if (!kind)
            return spec_error(s, e, "no GPU called %.*s in the table; the nearest is %s",
                              (int)word.len, word.text, nearest);
        if (h->n_gpus + n > HOST_MAX_GPUS)
            return spec_error(s, e, "more than %d GPUs on one host", HOST_MAX_GPUS);
        while (n-- > 0)
            h->gpus[h->n_gpus++] = kind;
    } while (spec_take(s, '+'));
    return ERR_OK;
}

/* bytes per second, or N*KIND */
static enum err_code read_bandwidth(struct spec *s, struct host *h, struct err *e)
{
    int channels;
    struct spec_word word;

    if (!spec_channels_follow(s, &channels))
        return spec_size(s, 1e6, 1e15, "bw", &h->ram_bw, e);
    TRY(spec_name(s, &word, e));
    for (int i = 0; i < N_MEMORY_KINDS; i++)
        if (strlen(memory_kinds[i].name) == word.len &&
            strncasecmp(memory_kinds[i].name, word.text, word.len) == 0) {
            h->ram_bw = channels * memory_kinds[i].channel_bw;
            return ERR_OK;
        }
    return spec_error(s, e,
                      "no memory called %.*s in the table; write bytes a second, such as 400G",
                      (int)word.len, word.text);
}

static enum err_code read_link(struct spec *s, struct host *h, struct err *e)
{
    TRY(spec_size(s, 1e5, 1e13, "link", &h->link_bw, e));
    if (!spec_take(s, '/'))
        return spec_error(s, e, "link is BANDWIDTH/LATENCY, such as 50G/3us");
    return spec_microseconds(s, &h->link_us, e);
}

enum host_key { KEY_RAM, KEY_BW, KEY_CORES, KEY_NUMA, KEY_RANKS, KEY_GPUS, KEY_LINK, N_KEYS };
static const char *const key_names[N_KEYS] = {
    "ram", "bw", "cores", "numa", "ranks", "gpus", "link"
};

static enum err_code read_value(struct spec *s, struct host *h, enum host_key key, struct err *e)
{
    double ram = 0;

    switch (key) {
    case KEY_RAM:
        TRY(spec_size(s, 1e6, 1e15, "ram", &ram, e));
        h->ram_bytes = (int64_t)ram;
        return ERR_OK;
    case KEY_BW:
        return read_bandwidth(s, h, e);
    case KEY_CORES:
        return spec_count(s, 1, 65536, "cores", &h->cores, e);
    case KEY_NUMA:
        return spec_count(s, 1, 256, "NUMA nodes", &h->numa, e);
    case KEY_RANKS:
        return spec_count(s, 1, HOST_MAX_RANKS, "ranks", &h->ranks, e);
    case KEY_GPUS:
        return read_gpus(s, h, e);
    default:
        return read_link(s, h, e);
    }
}

static enum err_code read_key(struct spec *s, enum host_key *key, struct err *e)
{
    struct spec_word word;
    int nearest = 0, best = INT_MAX;
    char text[32];

    TRY(spec_name(s, &word, e));
    snprintf(text, sizeof text, "%.*s", (int)(word.len < 31 ? word.len : 31), word.text);
    for (int i = 0; i < N_KEYS; i++) {
        int d = str_distance(text, key_names[i]);
        if (d < best) {
            best = d;
            nearest = i;
        }
    }
    *key = (enum host_key)nearest;
    if (best > 0)
        return spec_error(s, e, "a host has no %s; the nearest is %s", text, key_names[nearest]);
    if (!spec_take(s, '='))
        return spec_error(s, e, "'=' is missing behind %s", text);
    return ERR_OK;
}

static void fill_defaults(struct host *h)
{
    if (h->cores == 0) {
        double cores = ceil(h->ram_bw / core_read_bw);
        h->cores = cores < 65536 ? (int)cores : 65536;
    }
    if (h->numa == 0)
        h->numa = 1;
    if (h->ranks == 0)
        h->ranks = h->n_gpus > 0 ? h->n_gpus : h->numa;
    if (h->link_bw == 0) {
        h->link_bw = 1.25e9;
        h->link_us = 50;
    }
    h->int8_rate = cpu_int8_rate(h->cores);
    h->disk_bw = default_disk_bw;
}

static enum err_code read_host(struct spec *s, struct host *h, struct err *e)
{
    int seen[N_KEYS] = { 0 };

    *h = (struct host){ 0 };
    if (!spec_literal(s, "host") || !spec_take(s, '('))
        return spec_error(s, e, "a host is written host(ram=512G,bw=400G,...)");
    do {
        enum host_key key;
        TRY(read_key(s, &key, e));
        if (seen[key]++)
            return spec_error(s, e, "%s is given twice", key_names[key]);
        TRY(read_value(s, h, key, e));
    } while (spec_take(s, ','));
    if (!spec_take(s, ')'))
        return spec_error(s, e, "',' or ')' is missing");
    if (!seen[KEY_RAM] || !seen[KEY_BW])
        return spec_error(s, e, "a host needs %s", seen[KEY_RAM] ? "bw=" : "ram=");
    fill_defaults(h);
    return ERR_OK;
}

/* ---- The machine ------------------------------------------------------------ */

static enum err_code add_hosts(struct inventory *m, const struct host *h, int n, struct spec *s,
                               struct err *e)
{
    if (m->n + n > INVENTORY_MAX_HOSTS)
        return spec_error(s, e, "more than %d hosts", INVENTORY_MAX_HOSTS);
    struct host *hosts = realloc(m->hosts, (size_t)(m->n + n) * sizeof *hosts);
    if (!hosts)
        return err_set(e, ERR_NOMEM, "no memory for %d hosts", m->n + n);
    m->hosts = hosts;
    while (n-- > 0)
        m->hosts[m->n++] = *h;
    return ERR_OK;
}

static enum err_code read_spec(struct inventory *m, const char *name, const char *text,
                               struct err *e)
{
    struct spec s = { .name = name, .text = text, .at = text };

    spec_skip(&s);
    if (!*s.at)
        return spec_error(&s, e, "no host; write host(ram=512G,bw=400G,...)");
    do {
        struct host h;
        int n = 1;
        if (spec_at_digit(&s) || spec_next_is(&s, '-')) {
            TRY(spec_count(&s, 1, INVENTORY_MAX_HOSTS, "hosts", &n, e));
            if (!spec_take(&s, '*'))
                return spec_error(&s, e, "'*' is missing between the number and host(...)");
        }
        TRY(read_host(&s, &h, e));
        TRY(add_hosts(m, &h, n, &s, e));
    } while (spec_take(&s, ','));
    if (*s.at)
        return spec_error(&s, e, "',' or the end is expected");
    if (inventory_ranks(m) > INVENTORY_MAX || inventory_gpus(m) > INVENTORY_MAX)
        return spec_error(&s, e, "%d ranks and %d GPUs; at most %d of each are planned for",
                          inventory_ranks(m), inventory_gpus(m), INVENTORY_MAX);
    return ERR_OK;
}

enum err_code inventory_read(struct inventory *m, const char *spec, struct err *e)
{
    char *text = NULL;
    enum err_code rc;

    *m = (struct inventory){ 0 };
    if (*spec == '@') {
        TRY(spec_read_file(spec + 1, &text, e));
        rc = read_spec(m, spec + 1, text, e);
    } else {
        rc = read_spec(m, "--devices", spec, e);
    }
    free(text);
    if (rc != ERR_OK)
        inventory_free(m);
    return rc;
}

void inventory_free(struct inventory *m)
{
    free(m->hosts);
    free(m->host_of);
    *m = (struct inventory){ 0 };
}

int inventory_gpus(const struct inventory *m)
{
    int n = 0;

    for (int h = 0; h < m->n; h++)
        n += m->hosts[h].n_gpus;
    return n;
}

int inventory_ranks(const struct inventory *m)
{
    int n = 0;

    for (int h = 0; h < m->n; h++)
        n += m->hosts[h].ranks;
    return n;
}

enum err_code inventory_set_ranks(struct inventory *m, int ranks, struct err *e)
{
    int before = inventory_ranks(m), so_far = 0, dealt = 0;

    if (ranks > INVENTORY_MAX)
        return err_set(e, ERR_USAGE, "--ranks %d: at most %d are planned for", ranks,
                       INVENTORY_MAX);
    if (ranks < m->n)
        return err_set(e, ERR_USAGE, "--ranks %d: there are %d hosts, and each needs a rank", ranks,
                       m->n);
    for (int h = 0; h < m->n; h++) {
        int left = m->n - 1 - h; /* hosts that still need one */
        so_far += m->hosts[h].ranks;
        int upto = (int)((int64_t)ranks * so_far / before);
        int n = upto - dealt;
        n = n < 1 ? 1 : n > ranks - dealt - left ? ranks - dealt - left : n;
        if (n > HOST_MAX_RANKS)
            return err_set(e, ERR_USAGE, "--ranks %d: more than %d on one host", ranks,
                           HOST_MAX_RANKS);
        m->hosts[h].ranks = n;
        dealt += n;
    }
    return ERR_OK;
}
