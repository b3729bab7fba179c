/* SPDX-License-Identifier: MIT */
/* cli/inspect.h - what `latent inspect` found out about a file, before it is printed. */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include <stdint.h>

#include "base/str.h"
#include "model/hparams.h"

struct inspection {
    const char *path;
    struct gguf *gguf;
    struct hparams hp;
    int has_hparams;  /* hp holds something                                 */
    struct err unfit; /* why the engine would refuse it; ERR_OK if it would not */
};

/* Bytes and tensors of one type, in one file. */
struct type_total {
    uint64_t bytes;
    int n_tensors;
};
void inspect_count_types(const struct gguf *g, struct type_total totals[QUANT_COUNT]);

/* Appends a value: "61", "true", text, or of an array its element type and count. */
void inspect_append_value(struct str *s, const struct gguf_value *v);

void inspect_print_text(const struct inspection *in, int with_tensors);

/* Errors: ERR_NOMEM. */
enum err_code inspect_print_json(const struct inspection *in, struct err *e);

#endif
