/* SPDX-License-Identifier: MIT */
/* tests/support/golden.h - reference numbers and the models they belong to.
 *
 * What the tree ships lies in tests/data; the rest in the folder that $LATENTD_FIXTURES
 * names (models/, golden/), without which the tests that need it are reported as skipped.
 */
#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H

#include <stdint.h>

/* A float32 .npy of two dimensions. */
struct npy {
    int64_t rows, cols;
    float *data; /* free with free() */
};

/* 0 on success. */
int npy_read(struct npy *out, const char *path);

/* ||a - b|| / ||b|| over n values, NaN when anything is. */
double relative_error(const float *a, const float *b, int64_t n);

/* Token ids of golden/logits/prompts.json ("p64", "p300"), free with free(); NULL if not found. */
int32_t *prompt_read(const char *name, int64_t *n);

/* Path of a model or a golden file in tests/data, else under $LATENTD_FIXTURES; NULL if it is in
 * neither.  The result lives until the next four calls. */
const char *fixture_model(const char *name);  /* "tiny-v3-f16.gguf" */
const char *fixture_golden(const char *name); /* "logits/tiny-v3-f16.p64.npy" */

#endif
