/* SPDX-License-Identifier: MIT */
/* placement/devices.h - the machines that a plan is for: hosts, their memory and GPUs.
 *
 *     SPEC := host {',' host}
 *     host := [N '*'] 'host(' key=value {',' key=value} ')'
 *     ram=512G     host memory that weights may use               (needed)
 *     bw=400G      read bandwidth of that memory, bytes a second  (needed); also N*KIND,
 *                  N channels of a known kind: bw=12*DDR5-4800
 *     cores=64     cores for kernels                              (default: bw / 8 GB/s)
 *     numa=2       NUMA nodes                                     (default 1)
 *     ranks=4      ranks on this host                             (default: GPUs, or else numa)
 *     gpus=4*H200  known GPUs, several kinds joined by '+'        (default none)
 *     link=50G/3us bandwidth and latency to other hosts           (default 1.25G/50us: 10 GbE)
 *
 * K, M, G, T are powers of 1000, Ki, Mi, Gi, Ti of 1024.  Blanks do not count.  @FILE reads the
 * SPEC from a file, where # begins a comment.
 */
#ifndef PLACEMENT_DEVICES_H
#define PLACEMENT_DEVICES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A GPU of devices.def: bytes, bytes per second, operations per second. */
struct gpu_kind {
    const char *name;
    int64_t memory_bytes;
    double memory_bw, bf16_rate, int8_rate;
    double link_bw, link_us; /* to the other GPUs of the host; time of a small sum */
    double bus_bw;           /* to host memory                                     */
};

/* INVENTORY_MAX bounds the ranks of all hosts, and their GPUs. */
enum {
    HOST_MAX_GPUS = 64,
    INVENTORY_MAX_HOSTS = 1024,
    HOST_MAX_RANKS = 1024,
    INVENTORY_MAX = 2048
};

struct host {
    int64_t ram_bytes;
    double ram_bw;
    int cores, numa, ranks;
    int n_gpus;
    const struct gpu_kind *gpus[HOST_MAX_GPUS];
    double link_bw, link_us;
    double sum_us, sum_bw; /* sums over ranks in host memory; 0: not measured */
    double int8_rate;      /* of all cores, operations per second */
    double disk_bw;        /* bytes per second                     */
    char name[64];         /* of a probed host; "" otherwise       */
    uint64_t
        memory_nodes; /* bits: NUMA nodes that the memory of this process is bound to; 0: none */
    int apart;        /* its ranks are bound to other nodes than each other: each has its share */
};

/* Starts as { 0 }; end with inventory_free. */
struct inventory {
    struct host *hosts; /* [n], owned */
    int n;
    int *host_of; /* [ranks] where ranks are not in the order of the hosts, owned; otherwise NULL */
    int probed;   /* this machine, not a description         */
    int guessed;  /* bandwidths are assumptions, not measured */
};

/* Reads a SPEC, or the file behind '@'.  Errors: ERR_USAGE, with the column and what is wanted;
 * ERR_IO; ERR_NOMEM. */
enum err_code inventory_read(struct inventory *m, const char *spec, struct err *e);
void inventory_free(struct inventory *m);

/* GPUs and ranks of all hosts. */
int inventory_gpus(const struct inventory *m);
int inventory_ranks(const struct inventory *m);

/* Deals `ranks` ranks over the hosts in proportion to their own numbers, at least one each.
 * Errors: ERR_USAGE, fewer ranks than hosts. */
enum err_code inventory_set_ranks(struct inventory *m, int ranks, struct err *e);

/* The kind called `name`, or NULL with the nearest name in *nearest. */
const struct gpu_kind *gpu_kind_by_name(const char *name, size_t len, const char **nearest);

/* Rate of int8 products that `cores` cores of a current x86-64 reach. */
double cpu_int8_rate(int cores);

#endif
