/* SPDX-License-Identifier: MIT */
/* cli/cmd_perplexity.c - `latent perplexity`: how well the model predicts a text.
 *
 * The text is cut into chunks of BOS and N - 1 tokens (score.h); of each the second half is scored,
 * so that every scored token has at least half a chunk before it.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/json_out.h"
#include "cli/score.h"
#include "session/session.h"
#include "cli/text_file.h"

struct scoring {
    const int32_t *chunk; /* the ids being fed */
    int n_vocab;
    struct score score;
};

static void add_position(void *arg, int64_t pos, const float *logits)
{
    struct scoring *s = arg;

    score_add(&s->score, score_token(logits, s->n_vocab, s->chunk[pos + 1]));
}

/* Only what is scored needs logits, and nothing needs the last token's. */
static enum err_code score_chunk(struct scoring *s, struct engine *engine, int64_t chunk,
                                 struct err *e)
{
    int64_t first = score_first(chunk), end = score_end(chunk);

    engine_begin(engine, 0, chunk);
    TRY(engine_feed(engine, 0, s->chunk, first, ENGINE_NONE, NULL, NULL, e));
    TRY(engine_feed(engine, 0, s->chunk + first, end - first, ENGINE_ALL, add_position, s, e));
    if (!isfinite(s->score.sum))
        return err_set(e, ERR_NUMERIC, "a logit is not a number; try --check-tensors");
    return ERR_OK;
}

static enum err_code score_text(struct scoring *s, struct session *session,
                                const struct token_list *text, int64_t chunk, struct err *e)
{
    int64_t n_chunks = score_chunk_count((int64_t)text->n, chunk);
    struct progress progress;
    int32_t *ids = malloc((size_t)chunk * sizeof *ids);
    enum err_code rc = ERR_OK;

    if (!ids)
        return err_set(e, ERR_NOMEM, "no memory for a chunk");
    s->chunk = ids;
    ids[0] = tokenizer_bos(session->tokenizer);
    progress_start(&progress, "scoring", n_chunks);
    for (int64_t i = 0; rc == ERR_OK && i < n_chunks; i++) {
        memcpy(ids + 1, text->ids + i * chunk, (size_t)(chunk - 1) * sizeof *ids);
        rc = score_chunk(s, session->engine, chunk, e);
        progress_update(&progress, i + 1);
    }
    progress_end(&progress);
    free(ids);
    return rc;
}

static enum err_code read_ids(struct token_list *ids, const struct session *s,
                              const struct options *o, struct err *e)
{
    struct str text = { 0 };
    enum err_code rc = text_file_read(o->file, &text, e);

    if (rc == ERR_OK)
        rc = tokenizer_encode(s->tokenizer, text.data ? text.data : "", text.len, 0, ids, e);
    str_free(&text);
    TRY(rc);
    if (tokenizer_bos(s->tokenizer) < 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: the vocabulary has no BOS token to begin a chunk "
                       "with; set one with --override-kv "
                       "tokenizer.ggml.bos_token_id=int:ID",
                       o->model);
    if (score_chunk_count((int64_t)ids->n, o->ctx_size) == 0)
        return err_set(e, ERR_USAGE,
                       "%s: %zu tokens, less than one chunk of %" PRId64
                       "; give a longer text or a smaller -c",
                       o->file, ids->n, o->ctx_size - 1);
    return ERR_OK;
}

static enum err_code print_result(const struct score *s, const struct options *o, struct err *e)
{
    if (!o->json) {
        printf("PPL = %.3f ± %.3f (%" PRId64 " tokens)\n", score_perplexity(s), score_error(s),
               s->n);
        return ERR_OK;
    }
    json_t *j =
        json_pack("{s:f,s:f,s:I,s:I}", "perplexity", score_perplexity(s), "error", score_error(s),
                  "tokens", (json_int_t)s->n, "ctx_size", (json_int_t)o->ctx_size);
    return json_print(j, e);
}

static enum err_code perplexity(struct session *s, struct token_list *ids, const struct options *o,
                                struct err *e)
{
    struct scoring scoring = { 0 };

    TRY(session_open(s, o, 1, e));
    TRY(session_check_length(s, o, "-c", o->ctx_size, e));
    TRY(read_ids(ids, s, o, e));
    TRY(session_load(s, o, 0, e));
    scoring.n_vocab = s->model->hp.n_vocab;
    TRY(score_text(&scoring, s, ids, o->ctx_size, e));
    TRY(print_result(&scoring.score, o, e));
    return session_keep_record(s, e);
}

enum err_code run_perplexity(const struct options *o, struct err *e)
{
    enum { CHUNK_MIN = 4 };
    struct session s = { 0 };
    struct token_list ids = { 0 };

    if (!o->file)
        return err_set(e, ERR_USAGE, "perplexity: no text; give -f FILE");
    if (o->ctx_size < CHUNK_MIN)
        return err_set(e, ERR_USAGE, "-c %" PRId64 ": too short for a chunk; give at least %d",
                       o->ctx_size, CHUNK_MIN);
    enum err_code rc = perplexity(&s, &ids, o, e);
    token_list_free(&ids);
    session_close(&s);
    return rc;
}
