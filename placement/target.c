/* SPDX-License-Identifier: MIT */
/* placement/target.c - see target.h. */
#include "placement/target.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

static const struct device_word {
    const char *word;
    enum target_kind kind;
    int many;         /* takes <k>, '*' and [a-b] */
    const char *form; /* what may follow          */
} words[] = {
    {"CPU",   TARGET_CPU,  0,
     "CPU is every rank already; CPU0 are the ranks of host 0, and one rank is RANK0"            },
    { "RANK", TARGET_RANK, 0,
     "RANK is followed by one number, as in RANK0; join several with '+': RANK0+RANK1"           },
    { "CUDA", TARGET_CUDA, 1,
     "CUDA is followed by a number, '*' or a range: CUDA0, CUDA*, CUDA[0-3]"                     },
    { "GPU",  TARGET_CUDA, 1, "GPU is followed by a number, '*' or a range: GPU0, GPU*, GPU[0-3]"},
    { "SIM",  TARGET_SIM,  1, "SIM is followed by a number, '*' or a range: SIM0, SIM*, SIM[0-3]"},
};
enum { N_WORDS = sizeof words / sizeof *words };

static const struct foreign_target {
    const char *prefix, *advice;
} foreigners[] = {
#define X(prefix, advice) { prefix, advice },
#include "placement/foreign_targets.def"
#undef X
};

/* wrong: where a device was known, what is wrong behind it; otherwise NULL. */
struct cursor {
    const char *at, *end, *wrong;
};

static int fail(struct cursor *c, const char *why)
{
    c->wrong = why;
    return 0;
}

static int take_char(struct cursor *c, char wanted)
{
    if (c->at == c->end || *c->at != wanted)
        return 0;
    c->at++;
    return 1;
}

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t'))
        c->at++;
}

/* Digits with a value of at most `max`; 0 if there are none or too many. */
static int take_number(struct cursor *c, int max, int *out)
{
    const char *start = c->at;
    int v = 0;

    for (; c->at < c->end && isdigit((unsigned char)*c->at); c->at++) {
        v = 10 * v + (*c->at - '0');
        if (v > max)
            return 0;
    }
    *out = v;
    return c->at > start;
}

/* What follows CUDA, GPU and SIM. */
static int take_range(struct cursor *c, struct target_part *p)
{
    if (take_char(c, '*')) {
        p->last = INT_MAX;
        return 1;
    }
    if (take_char(c, '[')) {
        if (!take_number(c, TARGET_MAX_INDEX, &p->first) || !take_char(c, '-') ||
            !take_number(c, TARGET_MAX_INDEX, &p->last) || !take_char(c, ']'))
            return 0;
        return p->first <= p->last || fail(c, "a range begins with its lower number");
    }
    if (!take_number(c, TARGET_MAX_INDEX, &p->first))
        return 0;
    p->last = p->first;
    return 1;
}

static int take_device(struct cursor *c, struct target_part *p)
{
    for (int i = 0; i < N_WORDS; i++) {
        size_t len = strlen(words[i].word);
        if ((size_t)(c->end - c->at) < len || memcmp(c->at, words[i].word, len) != 0)
            continue;
        c->at += len;
        p->kind = words[i].kind;
        c->wrong = words[i].form;
        if (words[i].many)
            return take_range(c, p);
        int numbered = c->at < c->end && isdigit((unsigned char)*c->at);
        if (p->kind == TARGET_CPU && !numbered) {
            p->last = INT_MAX;
            return 1;
        }
        if (p->kind == TARGET_CPU)
            p->kind = TARGET_CPU_HOST;
        if (!take_number(c, TARGET_MAX_INDEX, &p->first))
            return 0;
        p->last = p->first;
        return 1;
    }
    return 0;
}

static int take_part(struct cursor *c, struct target_part *p)
{
    *p = (struct target_part){ .count = TARGET_NO_COUNT };
    c->wrong = NULL;
    skip_blanks(c);
    if (c->at == c->end)
        return fail(c, "a device is missing beside '+'");
    if (!take_device(c, p))
        return 0;
    if (take_char(c, ':')) {
        c->wrong = "':' is followed by a number of experts of each layer, as in CPU:16";
        if (!take_number(c, TARGET_MAX_INDEX, &p->count))
            return 0;
        if (p->count == 0)
            return fail(c, "a count of 0 takes no expert; leave that part out");
    }
    skip_blanks(c);
    return 1;
}

/* 1: read into *t; 0: not a target, *wrong tells what is if a device is named; -1: no memory. */
static int read_parts(struct target *t, const char *text, size_t len, const char **wrong)
{
    struct cursor c = { .at = text, .end = text + len };
    size_t n = 1;

    for (size_t i = 0; i < len; i++)
        n += text[i] == '+';
    if (n > TARGET_MAX_PARTS)
        return 0;
    struct target_part *parts = calloc(n, sizeof *parts);
    if (!parts)
        return -1;
    int good = 1;
    for (size_t i = 0; good && i < n; i++)
        good = take_part(&c, &parts[i]) && (i + 1 == n || take_char(&c, '+'));
    if (!good || c.at != c.end) {
        *wrong = c.wrong;
        free(parts);
        return 0;
    }
    *t = (struct target){ .parts = parts, .n = (int)n };
    return 1;
}

/* Letters of a name, then maybe something in brackets: "RPC0[192.0.2.9:50052]". */
static const struct foreign_target *find_foreigner(const char *text, size_t len)
{
    size_t name = 0;

    while (name < len && (isalnum((unsigned char)text[name]) || text[name] == '_'))
        name++;
    if (name < len &&
        (text[name] != '[' || text[len - 1] != ']' || memchr(text + name, '=', len - name)))
        return NULL;
    for (size_t i = 0; i < sizeof foreigners / sizeof *foreigners; i++) {
        size_t prefix = strlen(foreigners[i].prefix);
        if (name >= prefix && strncasecmp(text, foreigners[i].prefix, prefix) == 0)
            return &foreigners[i];
    }
    return NULL;
}

static int looks_like_name(const char *text, size_t len)
{
    if (len == 0 || len > 128 || !isalpha((unsigned char)text[0]))
        return 0;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("_+:*[]@-. ", text[i]))
            return 0;
    return 1;
}

/* "CUDO1" -> "CUDA1": the word with the fewest edits, and the first number that follows. */
static void suggest(const char *text, size_t len, char *out, size_t size)
{
    char letters[16] = "";
    size_t n = 0, at;
    int best = INT_MAX, index = 0;
    const struct device_word *nearest = words;

    for (at = 0; at < len && isalpha((unsigned char)text[at]); at++)
        if (n + 1 < sizeof letters)
            letters[n++] = (char)toupper((unsigned char)text[at]);
    letters[n] = '\0';
    for (int i = 0; i < N_WORDS; i++) {
        int d = str_distance(letters, words[i].word);
        if (d < best) {
            best = d;
            nearest = &words[i];
        }
    }
    while (at < len && !isdigit((unsigned char)text[at]))
        at++;
    struct cursor c = { text + at, text + len, NULL };
    int numbered = take_number(&c, TARGET_MAX_INDEX, &index);
    if (nearest->kind == TARGET_CPU && !numbered)
        snprintf(out, size, "CPU");
    else
        snprintf(out, size, "%s%d", nearest->word, numbered ? index : 0);
}

static enum target_reading read_failed(const char *text, size_t len, const char *wrong, char *why,
                                       size_t size)
{
    const struct foreign_target *f = find_foreigner(text, len);
    char nearest[32];

    if (f) {
        snprintf(why, size, "%.*s belongs to another program: %s", (int)len, text, f->advice);
        return TARGET_FOREIGN;
    }
    if (!looks_like_name(text, len))
        return TARGET_NOT;
    if (wrong) {
        snprintf(why, size, "%.*s is not a target: %s", (int)len, text, wrong);
        return TARGET_UNKNOWN;
    }
    suggest(text, len, nearest, sizeof nearest);
    snprintf(why, size,
             "%.*s is not a target; the nearest is %s; targets are CPU, CPU<host>, RANK<r>, "
             "CUDA<k>, CUDA*, CUDA[a-b], each with :COUNT if wanted, and several joined by '+'",
             (int)len, text, nearest);
    return TARGET_UNKNOWN;
}

enum target_reading target_read(struct target *t, const char *text, size_t len, char *why,
                                size_t size)
{
    const char *wrong = NULL;
    int got = len > 0 ? read_parts(t, text, len, &wrong) : 0;

    if (got < 0)
        return TARGET_NOMEM;
    return got ? TARGET_READ : read_failed(text, len, wrong, why, size);
}

void target_free(struct target *t)
{
    free(t->parts);
    *t = (struct target){ 0 };
}

int target_equal(const struct target *a, const struct target *b)
{
    if (a->n != b->n)
        return 0;
    for (int i = 0; i < a->n; i++) {
        const struct target_part *p = &a->parts[i], *q = &b->parts[i];
        if (p->kind != q->kind || p->first != q->first || p->last != q->last ||
            p->count != q->count)
            return 0;
    }
    return 1;
}
