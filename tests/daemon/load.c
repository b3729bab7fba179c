/* SPDX-License-Identifier: MIT */
/* tests/daemon/load.c - many clients of a running daemon, as a test and as a measurement.
 *
 * usage: load ENDPOINT CLIENTS SECONDS [MAX_TOKENS [PROMPT_WORDS]]
 *
 * Every client sends one request after the other, of mixed lengths, until the time is over.  There
 * are 16 different requests; whatever its company, each must give the text that it gave alone,
 * which it does where the daemon runs with --reuse strict.  Prints tokens a second, and the time
 * from one token to the next as a client sees it.  Exit status 1: a reply was another one.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "proto/latent.h"

enum { KINDS = 16, MAX_CLIENTS = 1024, MAX_GAPS = 1 << 16, TEXT_MAX = 1 << 16 };

static const char *endpoint;
static int max_tokens = 48, prompt_words = 60;
static double stop_at;
static char *solo[KINDS];
static volatile int wrong;

struct worker {
    pthread_t thread;
    int number;
    long tokens, requests;
    double gaps[MAX_GAPS]; /* seconds between chunks of one token */
    int n_gaps;
    double last;
    char text[TEXT_MAX];
    size_t len;
};

static void die(const char *what, const struct latent_error *e)
{
    fprintf(stderr, "load: %s: %s: %s\n", what, latent_code_name(e->code), e->message);
    exit(1);
}

/* Request `kind`: the same each time but for its id. */
static void fill(struct latent_request *r, int kind, char *prompt, size_t size)
{
    size_t n = 0;

    latent_request_init(r);
    for (int i = 0; i < 4 + prompt_words * kind / KINDS && n + 32 < size; i++)
        n += (size_t)snprintf(prompt + n, size - n, "word %d of %d, ", i, kind);
    r->text = prompt;
    r->text_len = n;
    r->max_tokens = max_tokens / 2 + max_tokens * kind / KINDS;
    r->has_seed = 1;
    r->seed = (uint64_t)kind;
    r->ignore_eos = 1;
}

static int take(void *arg, const struct latent_chunk *c)
{
    struct worker *w = arg;
    double now = clock_seconds();

    if (c->n_tokens == 1 && w->last > 0 && w->n_gaps < MAX_GAPS)
        w->gaps[w->n_gaps++] = now - w->last;
    w->last = now;
    w->tokens += (long)c->n_tokens;
    if (w->len + c->text_len < sizeof w->text) {
        memcpy(w->text + w->len, c->text, c->text_len);
        w->len += c->text_len;
    }
    w->text[w->len] = 0;
    return 0;
}

static void run_one(struct latent *l, struct worker *w, int kind)
{
    struct latent_error e;
    struct latent_request r;
    struct latent_stream s;
    char id[LATENT_ID_SIZE], prompt[16384], client[16];

    fill(&r, kind, prompt, sizeof prompt);
    snprintf(client, sizeof client, "load-%d", w->number);
    r.client = client;
    if (latent_new_id(id, &e))
        die("id", &e);
    r.id = id;
    if (latent_submit(l, &r, NULL, &e))
        die("submit", &e);
    latent_stream_init(&s, id, 0);
    w->last = 0;
    w->len = 0;
    if (latent_follow(l, &s, take, w, &e))
        die("follow", &e);
    w->requests++;
}

static struct latent *connect_to(void)
{
    struct latent_options o = { .endpoint = endpoint, .connect_ms = 60000 };
    struct latent_error e;
    struct latent *l;

    if (latent_connect(&l, &o, &e))
        die("connect", &e);
    return l;
}

static void *run(void *arg)
{
    struct worker *w = arg;
    struct latent *l = connect_to();

    for (int i = w->number; clock_seconds() < stop_at; i++) {
        int kind = i * 7 % KINDS;
        run_one(l, w, kind);
        if (strcmp(w->text, solo[kind]) != 0) {
            fprintf(stderr, "load: client %d, request %d: another text than alone\n", w->number,
                    kind);
            wrong = 1;
        }
    }
    latent_close(&l);
    return NULL;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void report(struct worker *w, int n, double seconds)
{
    long tokens = 0, requests = 0;
    double *gaps = malloc(sizeof *gaps * MAX_GAPS * (size_t)n);
    size_t n_gaps = 0;

    for (int i = 0; i < n; i++) {
        tokens += w[i].tokens;
        requests += w[i].requests;
        if (gaps)
            memcpy(gaps + n_gaps, w[i].gaps, (size_t)w[i].n_gaps * sizeof *gaps);
        n_gaps += (size_t)w[i].n_gaps;
    }
    printf("%d clients: %ld requests, %ld tokens in %.1f s, %.1f tokens/s\n", n, requests, tokens,
           seconds, (double)tokens / seconds);
    if (gaps && n_gaps) {
        qsort(gaps, n_gaps, sizeof *gaps, compare);
        printf("between tokens: median %.3f ms, p99 %.3f ms\n", 1e3 * gaps[n_gaps / 2],
               1e3 * gaps[n_gaps * 99 / 100]);
    }
    free(gaps);
}

int main(int argc, char **argv)
{
    static struct worker alone;

    if (argc < 4) {
        fprintf(stderr, "usage: load ENDPOINT CLIENTS SECONDS [MAX_TOKENS [PROMPT_WORDS]]\n");
        return 2;
    }
    endpoint = argv[1];
    int n = atoi(argv[2]);
    n = n < 1 ? 1 : n > MAX_CLIENTS ? MAX_CLIENTS : n;
    max_tokens = argc > 4 ? atoi(argv[4]) : max_tokens;
    prompt_words = argc > 5 ? atoi(argv[5]) : prompt_words;
    struct latent *l = connect_to();
    double begin = clock_seconds();
    for (int k = 0; k < KINDS; k++) {
        run_one(l, &alone, k);
        solo[k] = strdup(alone.text);
        if (!solo[k])
            return 1;
    }
    report(&alone, 1, clock_seconds() - begin);
    latent_close(&l);

    struct worker *w = calloc((size_t)n, sizeof *w);
    if (!w)
        return 1;
    begin = clock_seconds();
    stop_at = begin + atof(argv[3]);
    for (int i = 0; i < n; i++) {
        w[i].number = i;
        if (pthread_create(&w[i].thread, NULL, run, &w[i]))
            return 1;
    }
    for (int i = 0; i < n; i++)
        pthread_join(w[i].thread, NULL);
    report(w, n, clock_seconds() - begin);
    free(w);
    return wrong;
}
