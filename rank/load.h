/* SPDX-License-Identifier: MIT */
/* rank/load.h - filling the weight arena from the file.
 *
 * A job brings (part of) one tensor to its place.  All jobs are cut into units of some
 * megabytes that the threads of the team take one after another: read the rows, turn
 * interleaved types into plain ones, check, pack.
 */
#ifndef RANK_LOAD_H
#define RANK_LOAD_H

#include "base/team.h"
#include "model/model.h"
#include "rank/comm.h"
#include "rank/matrix.h"

/* Exactly one destination is set: `vector`, `rows`, or `to` (with data). */
struct load_job {
    const struct gguf_tensor *tensor;
    float *vector;    /* all values as f32                              */
    uint8_t *rows;    /* rows as in the file, interleaved types made plain */
    struct matrix to; /* packed; slab s takes columns src_col .. of the file's rows
                         slab * src_stride + src_first + 0 .. to.rows - 1,
                         slab = src_slabs ? src_slabs[s] : s             */
    int64_t src_stride, src_first, src_col;
    const int32_t *src_slabs; /* [to.n_slabs], borrowed */
    int transpose; /* slab row r takes column r of the file rows s * src_stride + 0 .. to.cols - 1,
                      as a float type (k_b out of kv_b)                */
};

struct load_list {
    struct load_job *jobs;
    int n, cap;
    int ignore; /* count only: drop what is added */
    int failed; /* no memory for the list         */
};

void load_list_add(struct load_list *l, struct load_job job);
void load_list_free(struct load_list *l);

struct load_options {
    int check_values;  /* refuse NaN and Inf                                            */
    struct comm *comm; /* whose COMM_LOADED and COMM_TO_LOAD grow; NULL: nobody looks */
};

/* Runs all jobs on the team.  *bytes_read is what came from the files.  The first error stops it.
 * Errors: ERR_IO, ERR_FORMAT, ERR_NOMEM. */
enum err_code load_run(const struct load_list *l, const struct model *m, const struct team *team,
                       const struct load_options *opt, int64_t *bytes_read, struct err *e);

#endif
