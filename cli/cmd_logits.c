/* SPDX-License-Identifier: MIT */
/* cli/cmd_logits.c - `latent logits`: the logits of every position, as a NumPy file. */
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/npy.h"
#include "session/session.h"
#include "cli/text_file.h"

/* --tokens as given, or the text of -f with BOS as the file says. */
static enum err_code read_ids(struct token_list *ids, const struct session *s,
                              const struct options *o, struct err *e)
{
    struct str text = { 0 };

    for (size_t i = 0; i < o->tokens.n; i++)
        token_list_push(ids, (int32_t)o->tokens.v[i]);
    if (o->tokens.n > 0)
        return ids->ids ? session_check_ids(s, ids->ids, ids->n, e)
                        : err_set(e, ERR_NOMEM, "no memory for the tokens");
    enum err_code rc = text_file_read(o->file, &text, e);
    if (rc == ERR_OK)
        rc = tokenizer_encode(s->tokenizer, text.data ? text.data : "", text.len, TOKENIZE_BOS, ids,
                              e);
    str_free(&text);
    if (rc == ERR_OK && ids->n == 0)
        return err_set(e, ERR_USAGE, "%s: no tokens in it; give some text", o->file);
    return rc;
}

struct rows {
    struct npy_writer *npy;
    int64_t n_vocab;
    struct progress progress;
    enum err_code failed;
    struct err *e;
};

static void write_row(void *arg, int64_t pos, const float *logits)
{
    struct rows *r = arg;

    if (r->failed == ERR_OK)
        r->failed = npy_write(r->npy, logits, r->n_vocab, r->e);
    progress_update(&r->progress, pos + 1);
}

/* In pieces, so that a full disk ends the work early. */
static enum err_code compute(struct rows *r, struct engine *engine, const struct token_list *ids,
                             int64_t piece, struct err *e)
{
    engine_begin(engine, 0, (int64_t)ids->n);
    for (int64_t at = 0; at < (int64_t)ids->n; at += piece) {
        int64_t n = (int64_t)ids->n - at < piece ? (int64_t)ids->n - at : piece;
        TRY(engine_feed(engine, 0, ids->ids + at, n, ENGINE_ALL, write_row, r, e));
        TRY(r->failed);
    }
    return ERR_OK;
}

static enum err_code logits(struct session *s, struct token_list *ids, const struct options *o,
                            struct err *e)
{
    struct rows r = { .e = e };

    TRY(session_open(s, o, o->tokens.n == 0, e));
    TRY(read_ids(ids, s, o, e));
    TRY(session_check_length(s, o, "prompt", (int64_t)ids->n, e));
    TRY(session_load(s, o, (int64_t)ids->n, e));
    r.n_vocab = s->model->hp.n_vocab;
    TRY(npy_create(&r.npy, o->output, (int64_t)ids->n, r.n_vocab, e));
    progress_start(&r.progress, "computing", (int64_t)ids->n);
    enum err_code rc = compute(&r, s->engine, ids, o->ubatch, e);
    progress_end(&r.progress);
    if (rc == ERR_OK)
        return npy_finish(&r.npy, e);
    npy_abandon(&r.npy);
    return rc;
}

enum err_code run_logits(const struct options *o, struct err *e)
{
    struct session s = { 0 };
    struct token_list ids = { 0 };

    if (!o->tokens.n == !o->file)
        return err_set(e, ERR_USAGE, "logits: wants one prompt; give --tokens LIST or -f FILE");
    if (!o->output)
        return err_set(e, ERR_USAGE, "logits: nowhere to write; give -o OUT.npy or -o -");
    /* mpirun gives its processes a terminal, wherever its own output goes */
    if (strcmp(o->output, "-") == 0 && isatty(STDOUT_FILENO) && !session_comm())
        return err_set(e, ERR_USAGE,
                       "logits: -o - writes bytes, and standard output is a terminal; "
                       "send it to a file or a program");
    enum err_code rc = logits(&s, &ids, o, e);
    token_list_free(&ids);
    session_close(&s);
    return rc;
}
