/* SPDX-License-Identifier: MIT */
/* tests/tools/fit_replay.c - fits rows of placement/efficiency.def to published speeds.
 *
 *     fit_replay REPLAY.tsv          searches host bandwidth and NUMA share of every engine over
 *                                    the odd rows (least mean |log(predicted / published)|)
 *     fit_replay REPLAY.tsv --table  prints what the table in use predicts, as Markdown
 *
 * Everything else in a row of the table is set by hand, from measurements that its comment names.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/replay.h"

static double error_of(struct replay *r, const struct efficiency *x)
{
    double sum = 0;
    int n = 0;

    for (int i = 0; i < r->n; i++)
        if (r->rows[i].number % 2 == 1 && !strcmp(r->rows[i].engine, x->name)) {
            sum += fabs(log(replay_tps(&r->rows[i], x) / r->rows[i].tps));
            n++;
        }
    return n ? sum / n : INFINITY;
}

static void fit(struct replay *r, const char *name)
{
    struct efficiency best = *efficiency_by_name(name);
    double least = INFINITY;

    for (int bw = 20; bw <= 95; bw++)
        for (int numa = 0; numa <= 100; numa += 5) {
            struct efficiency x = *efficiency_by_name(name);
            x.host_bw = bw / 100.0;
            x.numa = numa / 100.0;
            double error = error_of(r, &x);
            if (error < least - 1e-9) {
                least = error;
                best = x;
            }
        }
    printf("%-14s host_bw %.2f numa %.2f: odd rows off by %.0f %% on average\n", name, best.host_bw,
           best.numa, 100 * (exp(least) - 1));
}

static void print_table(struct replay *r)
{
    printf("| row | engine | model | GB | published | predicted | off | used to | dominates | "
           "prefill | "
           "predicted |\n|--:|---|---|--:|--:|--:|--:|---|---|--:|--:|\n");
    for (int i = 0; i < r->n; i++) {
        struct replay_row *row = &r->rows[i];
        double tps = replay_tps(row, efficiency_by_name(row->engine));
        const struct plan_term *t = cost_dominating(&row->plan.predict, PHASE_DECODE);
        printf("| %d | %s | %s | %.0f (%.0f) | %.1f | %.1f | %+.0f %% | %s | %s |", row->number,
               row->engine, row->model, row->gigabytes, row->file_gigabytes, row->tps, tps,
               100 * (tps / row->tps - 1), row->number % 2 ? "fit" : "test", t->name);
        if (row->pp > 0)
            printf(" %.1f | %.0f |\n", row->pp, row->plan.predict.prefill_tps);
        else
            printf(" | |\n");
    }
}

int main(int argc, char **argv)
{
    static const char *const engines[] = { "llama.cpp", "ik_llama.cpp", "ktransformers" };
    struct replay r;

    if (argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "--table") != 0)) {
        fprintf(stderr, "usage: fit_replay REPLAY.tsv [--table]\n");
        return 2;
    }
    replay_open(&r, argv[1]);
    if (argc == 3)
        print_table(&r);
    for (size_t i = 0; argc == 2 && i < sizeof engines / sizeof *engines; i++)
        fit(&r, engines[i]);
    replay_close(&r);
    return 0;
}
