/* SPDX-License-Identifier: MIT */
/* placement/cost_draw.c - the fullest of several devices that hold experts.
 *
 * A router draws experts; device d meets X_d of its n_d, which we take as binomial and
 * independent of the other devices.  Then P(all done by t) is a product of distribution
 * functions, a staircase with a step wherever some device finishes one more expert, and the
 * expected maximum is the area above it.
 */
#include <math.h>
#include <stdlib.h>

#include "placement/cost_parts.h"

/* A group of equal devices, and how far along its distribution function it is. */
struct stair {
    const struct draw *d;
    int members, m;    /* m experts are done by now */
    double log_p, cdf; /* of exactly m; of at most m */
};

static int by_kind(const void *a, const void *b)
{
    const struct draw *x = a, *y = b;

    if (x->us != y->us)
        return x->us < y->us ? -1 : 1;
    return x->n != y->n ? x->n - y->n : (x->q > y->q) - (x->q < y->q);
}

static double log_p_after(const struct stair *s)
{
    double n = s->d->n, q = s->d->q;

    return s->log_p + log((n - s->m) / (s->m + 1.0)) + log(q) - log1p(-q);
}

/* Groups equal neighbours of sorted v; returns the number of groups.  Sets the logarithm of
 * P(nobody has anything to do). */
static int make_stairs(struct stair *s, const struct draw *v, int n_draws, double *log_all)
{
    int n = 0;

    *log_all = 0;
    for (int i = 0; i < n_draws; i++) {
        if (n == 0 || by_kind(s[n - 1].d, &v[i])) {
            double none = v[i].n * log1p(-v[i].q);
            s[n++] = (struct stair){ .d = &v[i], .log_p = none, .cdf = exp(none) };
        }
        s[n - 1].members++;
        *log_all += s[n - 1].log_p;
    }
    return n;
}

/* The group that finishes its next expert first, or -1. */
static int next_step(const struct stair *s, int n)
{
    int best = -1;

    for (int i = 0; i < n; i++)
        if (s[i].m < s[i].d->n &&
            (best < 0 || (s[i].m + 1) * s[i].d->us < (s[best].m + 1) * s[best].d->us))
            best = i;
    return best;
}

static double area_above(struct stair *s, int n, double log_all)
{
    double now = 0, area = 0;

    for (int i = next_step(s, n); i >= 0 && log_all < -1e-9; i = next_step(s, n)) {
        double then = (s[i].m + 1) * s[i].d->us;
        area += (then - now) * (1 - exp(log_all));
        now = then;
        s[i].log_p = log_p_after(&s[i]);
        double cdf = fmin(1, s[i].cdf + exp(s[i].log_p));
        if (s[i].cdf > 0)
            log_all += s[i].members * (log(cdf) - log(s[i].cdf));
        s[i].cdf = cdf;
        s[i].m++;
    }
    return area;
}

double cost_draw_max(struct draw *v, int n_draws, double *mean)
{
    enum { MAX_KINDS = 64 };
    struct stair stairs[MAX_KINDS];
    double log_all, surest = 0;
    int kinds = 0;

    *mean = 0;
    for (int i = 0; i < n_draws; i++) {
        *mean = fmax(*mean, v[i].n * v[i].q * v[i].us);
        surest = fmax(surest, v[i].q);
    }
    if (n_draws <= 1 || surest > 0.999)
        return *mean; /* one device has the whole draw, or all are met */
    qsort(v, (size_t)n_draws, sizeof *v, by_kind);
    for (int i = 0; i < n_draws; i++)
        kinds += i == 0 || by_kind(&v[i - 1], &v[i]);
    if (kinds > MAX_KINDS)
        return *mean; /* hot lists make all devices different: no simple form, no claim */
    int n = make_stairs(stairs, v, n_draws, &log_all);
    return fmax(*mean, area_above(stairs, n, log_all));
}
