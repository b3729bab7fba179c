/* SPDX-License-Identifier: MIT */
/* cli/bench_devices.c - see bench_devices.h.
 *
 * Read bandwidth of every NUMA node with 1, 2, 4, ... of its cores, each thread kept to a core and
 * reading memory of its own; then of all nodes together.  Matrix rates with all cores.  With -m,
 * the disk under that file.
 *
 * Under mpirun, sums over its ranks.  Where there is a profile already, only those are measured and
 * added: mpirun may have bound this process to a part of the machine.
 */
#include "cli/bench_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/json_out.h"
#include "cli/machine.h"
#include "cli/numa.h"
#include "placement/probe.h"
#include "placement/profile.h"
#include "session/session.h"
#include "session/state_dir.h"

struct measuring {
    const struct options *o;
    struct numa numa;
    struct profile profile;
    struct str path;
};

/* ---- Measuring ------------------------------------------------------------------- */

static void add_reading(struct measuring *x, int threads, int node, const int *cpus)
{
    struct profile *p = &x->profile;
    struct team team;

    if (p->n_reads == PROFILE_MAX_READS)
        return;
    team_init(&team, threads);
    double rate = machine_read_rate(&team, cpus);
    if (rate > 0)
        p->reads[p->n_reads++] = (struct profile_reading){ threads, node, rate };
}

/* 1, 2, 4, ... and all of n CPUs. */
static void measure_counts(struct measuring *x, const int *cpus, int n, int node)
{
    for (int threads = 1; threads < n; threads *= 2)
        add_reading(x, threads, node, cpus);
    add_reading(x, n, node, cpus);
}

static void measure_memory(struct measuring *x)
{
    const struct numa *n = &x->numa;

    for (int i = 0, end; n->n_nodes > 1 && i < n->n_cpus; i = end) {
        for (end = i; end < n->n_cpus && n->node[end] == n->node[i];)
            end++;
        measure_counts(x, n->cpus + i, end - i, n->node[i]);
    }
    if (n->n_nodes == 1)
        measure_counts(x, n->cpus, n->n_cpus, PROFILE_ALL_NODES);
    else
        add_reading(x, n->n_cpus, PROFILE_ALL_NODES, n->cpus);
}

/* In the planner's own words, which decide later whether this is still the same machine. */
static enum err_code describe(struct profile *p, struct err *e)
{
    struct inventory here = { 0 };

    TRY(inventory_probe(&here, e));
    probe_cpu_name(p->cpu, sizeof p->cpu);
    p->cores = here.hosts[0].cores;
    p->numa = here.hosts[0].numa;
    inventory_free(&here);
    return ERR_OK;
}

static enum err_code measure_sums(struct measuring *x, struct err *e)
{
    struct comm_cost c;

    TRY(session_measure_sums(&c, e));
    if (c.ranks > 1)
        profile_add_sum(&x->profile, &(struct profile_sum){ c.ranks, c.hosts, c.row_us,
                                                            c.latency_us, c.bytes_per_s });
    return ERR_OK;
}

static enum err_code measure(struct measuring *x, struct err *e)
{
    struct profile *p = &x->profile;
    struct team all;

    p->n_reads = 0;
    TRY(numa_read(&x->numa, e));
    TRY(describe(p, e));
    team_init(&all, x->numa.n_cpus);
    if (x->o->model) /* first, since it may be refused */
        TRY(machine_disk_rate(&p->disk_bytes_per_s, x->o->model, &all, e));
    log_info("measuring memory and cores: some seconds");
    measure_memory(x);
    if (p->n_reads == 0)
        return err_set(e, ERR_NOMEM, "no memory to measure bandwidth with; end other programs");
    p->int8_ops_per_s = machine_math_rate(MATH_INT8, &all);
    p->bf16_ops_per_s = machine_math_rate(MATH_BF16, &all);
    p->f32_ops_per_s = machine_math_rate(MATH_F32, &all);
    return ERR_OK;
}

/* ---- Output ------------------------------------------------------------------------- */

static void print_sums(const struct profile *p)
{
    if (p->n_sums == 0)
        printf("%-24s not measured: start with mpirun -np N --bind-to none\n", "sums over ranks");
    for (int i = 0; i < p->n_sums; i++)
        printf("%-24s %8d %12.1f us a row of V3, %.2f GB/s, %d host%s\n",
               i == 0 ? "sums over ranks" : "", p->sums[i].ranks, p->sums[i].row_us,
               p->sums[i].bytes_per_s / 1e9, p->sums[i].hosts, p->sums[i].hosts == 1 ? "" : "s");
}

static void print_text(const struct measuring *x)
{
    const struct profile *p = &x->profile;

    printf("%s, %d core%s, %d NUMA node%s\n\n%-24s %8s %12s\n", p->cpu, p->cores,
           p->cores == 1 ? "" : "s", p->numa, p->numa == 1 ? "" : "s", "memory reads", "threads",
           "GB/s");
    for (int i = 0; i < p->n_reads; i++) {
        const struct profile_reading *r = &p->reads[i];
        char where[24] = "all nodes";
        if (r->node != PROFILE_ALL_NODES)
            snprintf(where, sizeof where, "node %d", r->node);
        printf("  %-22s %8d %12.1f\n", where, r->threads, r->bytes_per_s / 1e9);
    }
    printf("\n%-24s %8d %12.0f int8 GOPS\n", "multiply-adds", p->cores, p->int8_ops_per_s / 1e9);
    printf("%-24s %8s %12.0f bf16 GFLOPS\n", "", "", p->bf16_ops_per_s / 1e9);
    printf("%-24s %8s %12.0f f32 GFLOPS\n\n", "", "", p->f32_ops_per_s / 1e9);
    if (p->disk_bytes_per_s > 0)
        printf("%-24s %8s %12.2f GB/s\n", "disk reads", "", p->disk_bytes_per_s / 1e9);
    else
        printf("%-24s not measured: name a model file with -m\n", "disk reads");
    print_sums(p);
    printf("%-24s not measured: this version has no GPU code\n\n", "GPUs");
}

static enum err_code print_profile(const struct measuring *x, struct err *e)
{
    const struct profile *p = &x->profile;
    json_t *reads = json_array(), *sums = p->n_sums > 0 ? json_array() : json_null();

    for (int i = 0; i < p->n_sums; i++)
        json_array_append_new(
            sums, json_pack("{s:i,s:i,s:f,s:f,s:f}", "ranks", p->sums[i].ranks, "hosts",
                            p->sums[i].hosts, "row_us", p->sums[i].row_us, "latency_us",
                            p->sums[i].latency_us, "bytes_per_s", p->sums[i].bytes_per_s));
    for (int i = 0; i < p->n_reads; i++)
        json_array_append_new(reads,
                              json_pack("{s:i,s:i,s:f}", "threads", p->reads[i].threads, "node",
                                        p->reads[i].node, "bytes_per_s", p->reads[i].bytes_per_s));
    return json_print(
        json_pack("{s:o,s:i,s:i,s:o,s:f,s:f,s:f,s:o,s:o,s:s}", "cpu",
                  json_text(p->cpu, strlen(p->cpu)), "cores", p->cores, "numa", p->numa, "reads",
                  reads, "int8_ops_per_s", p->int8_ops_per_s, "bf16_ops_per_s", p->bf16_ops_per_s,
                  "f32_ops_per_s", p->f32_ops_per_s, "disk_bytes_per_s",
                  p->disk_bytes_per_s > 0 ? json_real(p->disk_bytes_per_s) : json_null(),
                  "all_reduce", sums, "profile", x->path.data),
        e);
}

/* Whether there is a profile of this machine to add to.  Its sums stay, however all else is
 * measured anew. */
static int read_profile_here(struct measuring *x)
{
    char cpu[sizeof x->profile.cpu];
    struct profile p;

    probe_cpu_name(cpu, sizeof cpu);
    if (profile_read(&p, x->path.data, NULL) != ERR_OK || strcmp(p.cpu, cpu) != 0)
        return 0;
    x->profile = p;
    return 1;
}

static enum err_code run(struct measuring *x, struct err *e)
{
    TRY(state_dir_profile(&x->path, x->o->state_dir, 1, e));
    int known = read_profile_here(x);
    if (known && session_comm() && comm_size(session_comm()) > 1)
        log_info("measuring sums only: %s has the rest", x->path.data);
    else
        TRY(measure(x, e));
    if (session_comm())
        TRY(measure_sums(x, e));
    TRY(profile_write(&x->profile, x->path.data, e));
    if (x->o->json)
        return print_profile(x, e);
    print_text(x);
    printf("kept for latent plan in %s\n", x->path.data);
    return ERR_OK;
}

enum err_code bench_devices(const struct options *o, struct err *e)
{
    struct measuring *x = calloc(1, sizeof *x);

    if (!x)
        return err_set(e, ERR_NOMEM, "no memory to measure with");
    x->o = o;
    enum err_code rc = run(x, e);
    str_free(&x->path);
    free(x);
    return rc;
}
