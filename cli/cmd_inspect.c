/* SPDX-License-Identifier: MIT */
/* cli/cmd_inspect.c - `latent inspect`: what is in the file, and would it run.
 *
 * Everything that can be read is printed, also of other architectures, of vocabularies alone
 * and of a file of which only the header is here.  A file that is malformed or was cut inside
 * its tensor data is then still a failure, with the reader's own reason.
 */
#include <sys/stat.h>

#include "base/log.h"
#include "cli/inspect.h"
#include "options/options.h"
#include "model/model.h"

/* Whether some tensor data is there: then missing bytes mean damage, not a header alone. */
static int has_some_data(const struct gguf *g)
{
    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct stat st;
        if (stat(gguf_part_path(g, t->part), &st) == 0 && (uint64_t)st.st_size > t->offset)
            return 1;
    }
    return 0;
}

/* Opens the file, or its header alone.  *cut says that data is missing where some is there. */
static enum err_code open_file(struct inspection *in, struct err *cut, struct err *e)
{
    struct err first = { 0 };
    enum err_code rc = gguf_open(&in->gguf, in->path, 0, &first);

    if (rc == ERR_OK)
        return ERR_OK;
    if (rc != ERR_FORMAT || gguf_open(&in->gguf, in->path, GGUF_HEADERS_ONLY, NULL) != ERR_OK) {
        *e = first;
        return rc;
    }
    if (has_some_data(in->gguf))
        *cut = first;
    else
        log_warn("%s: only the header is here: it can be inspected and planned, not run", in->path);
    return ERR_OK;
}

/* Fills hp where it can, and `unfit` with what the engine would say. */
static void judge(struct inspection *in, const struct options *o)
{
    struct model *m = NULL;

    if (gguf_tensor_count(in->gguf) == 0) {
        err_set(&in->unfit, ERR_UNSUPPORTED, "no tensors: a vocabulary alone");
        return;
    }
    if (hparams_read(&in->hp, in->gguf, &in->unfit) != ERR_OK)
        return;
    in->has_hparams = 1;
    if (model_open(&m, in->path, GGUF_HEADERS_ONLY, o->override_kv.v, (int)o->override_kv.n,
                   &in->unfit) == ERR_OK)
        model_close(&m);
}

static enum err_code inspect(struct inspection *in, const struct options *o, struct err *e)
{
    struct err cut = { 0 };

    TRY(open_file(in, &cut, e));
    for (size_t i = 0; i < o->override_kv.n; i++)
        TRY(gguf_override(in->gguf, o->override_kv.v[i], e));
    judge(in, o);
    if (o->json)
        TRY(inspect_print_json(in, e));
    else
        inspect_print_text(in, o->tensors);

    const struct err *failure = cut.code != ERR_OK ? &cut : &in->unfit;
    if (failure->code == ERR_OK || failure->code == ERR_UNSUPPORTED)
        return ERR_OK;
    *e = *failure;
    return e->code;
}

enum err_code run_inspect(const struct options *o, struct err *e)
{
    struct inspection in = { .path = o->n_args ? o->args[0] : o->model };

    if (!in.path)
        return err_set(e, ERR_USAGE, "inspect: no file; give MODEL");
    enum err_code rc = inspect(&in, o, e);
    if (in.has_hparams)
        hparams_free(&in.hp);
    gguf_close(&in.gguf);
    return rc;
}
