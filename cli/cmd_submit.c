/* SPDX-License-Identifier: MIT */
/* cli/cmd_submit.c - `latent submit` and `latent follow`: a request to a daemon, and its stream.
 *
 * Each token is printed once, whatever is restarted meanwhile: the cursor of what was printed is
 * kept here, and the daemon gives what comes after it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/output.h"
#include "cli/remote.h"
#include "cli/text_file.h"

static enum err_code read_prompt(struct str *text, const struct options *o, struct err *e)
{
    if (!o->prompt && !o->file)
        return err_set(e, ERR_USAGE, "no prompt: nothing to submit; give -p TEXT or -f FILE");
    if (o->prompt && o->file)
        return err_set(e, ERR_USAGE, "-p and -f: two prompts; give one of them");
    if (o->prompt)
        str_puts(text, o->prompt);
    else
        TRY(text_file_read(o->file, text, e));
    return text->failed ? err_set(e, ERR_NOMEM, "no memory for the prompt") : ERR_OK;
}

static enum err_code choose_id(char id[LATENT_ID_SIZE], const struct options *o, struct err *e)
{
    struct latent_error le;

    if (!o->request_id)
        return latent_new_id(id, &le) == LATENT_OK ? ERR_OK : remote_err(&le, e);
    if (!*o->request_id || strlen(o->request_id) >= LATENT_ID_SIZE)
        return err_set(e, ERR_USAGE, "--id: 1 to %d bytes of visible ASCII", LATENT_ID_SIZE - 1);
    snprintf(id, LATENT_ID_SIZE, "%s", o->request_id);
    return ERR_OK;
}

/* Ctrl-C, or nobody reads stdout any more: then nobody wants the rest. */
static enum err_code give_up(struct remote *r, struct remote_text *t, int printed, struct err *e)
{
    struct latent_error le;

    remote_interrupted();
    if (latent_cancel(r->c, t->stream.id, &le) != LATENT_OK)
        return remote_err(&le, e);
    if (!printed)
        return ERR_CANCELLED;
    TRY(remote_print(r, t, e)); /* what came until then */
    return remote_report(t, e);
}

static enum err_code stream(struct remote *r, const char *id, struct err *e)
{
    struct remote_text t = { 0 };

    latent_stream_init(&t.stream, id, 0);
    enum err_code rc = remote_print(r, &t, e);
    if (rc == ERR_CANCELLED)
        return give_up(r, &t, t.print_code == ERR_OK, e);
    if (rc != ERR_OK) {
        log_info("the request goes on: latent follow %s --cursor %" PRIu64, id, t.stream.cursor);
        return rc;
    }
    if (isatty(STDOUT_FILENO))
        TRY(output_write("\n", 1, e));
    return remote_report(&t, e);
}

static enum err_code submit(struct remote *r, const struct str *text, struct latent_bias **bias,
                            const struct options *o, struct err *e)
{
    char id[LATENT_ID_SIZE];
    struct latent_request q;
    struct latent_accepted accepted;

    latent_request_init(&q);
    TRY(choose_id(id, o, e));
    q.id = id;
    q.client = o->client;
    q.text = text->data ? text->data : "";
    q.text_len = text->len;
    q.parse_special = o->parse_special;
    q.max_tokens = o->n_predict;
    q.priority = (int)o->priority;
    q.deadline_ms = (uint32_t)(o->deadline * 1000);
    TRY(remote_sampling(&q, bias, o, e));
    TRY(remote_submit(r, &q, &accepted, e));
    if (o->detach) {
        printf("%s\n", id);
        return ERR_OK;
    }
    log_info("request %s, seed %" PRIu64, id, accepted.seed);
    return stream(r, id, e);
}

enum err_code run_submit(const struct options *o, struct err *e)
{
    struct remote r = { 0 };
    struct str text = { 0 };
    struct latent_bias *bias = NULL;
    enum err_code rc = read_prompt(&text, o, e);

    remote_interrupt_begin();
    if (rc == ERR_OK)
        rc = remote_open(&r, o, e);
    if (rc == ERR_OK)
        rc = submit(&r, &text, &bias, o, e);
    remote_interrupt_end();
    remote_close(&r);
    str_free(&text);
    free(bias);
    return rc;
}

/* The request is another's: Ctrl-C ends the reading, not the request. */
enum err_code run_follow(const struct options *o, struct err *e)
{
    struct remote r = { 0 };
    struct remote_text t = { 0 };

    if (strlen(o->args[0]) >= LATENT_ID_SIZE)
        return err_set(e, ERR_USAGE, "%.40s...: no id has so many bytes", o->args[0]);
    remote_interrupt_begin();
    latent_stream_init(&t.stream, o->args[0], (uint64_t)o->cursor);
    enum err_code rc = remote_open(&r, o, e);
    if (rc == ERR_OK)
        rc = remote_print(&r, &t, e);
    if (rc == ERR_CANCELLED && t.print_code == ERR_OK)
        log_info("the request goes on: latent follow %s --cursor %" PRIu64, o->args[0],
                 t.stream.cursor);
    if (rc == ERR_OK && isatty(STDOUT_FILENO))
        rc = output_write("\n", 1, e);
    if (rc == ERR_OK)
        rc = remote_report(&t, e);
    remote_interrupt_end();
    remote_close(&r);
    return rc;
}
