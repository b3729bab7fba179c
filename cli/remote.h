/* SPDX-License-Identifier: MIT */
/* cli/remote.h - what the subcommands that talk to a daemon share. */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include "base/err.h"
#include "base/str.h"
#include "options/options.h"
#include "proto/latent.h"

/* A connection to a daemon, which tells the user when it goes and comes back. */
struct remote {
    struct latent *c;
    double gone_s; /* since when there is no daemon; 0: there is one */
    int told_gone;
    int submitting, held; /* held: how often a Ctrl-C was passed over meanwhile */
    char *token;
};

/* Connects to --endpoint.  End with remote_close, also after a failure. */
enum err_code remote_open(struct remote *r, const struct options *o, struct err *e);
void remote_close(struct remote *r);

/* What liblatent said, as this program says it: ERR_USAGE for what the user gave wrong,
 * ERR_CANCELLED without a message where Ctrl-C ended the waiting. */
enum err_code remote_err(const struct latent_error *from, struct err *e);

/* From here to remote_interrupt_end Ctrl-C ends the call that waits, instead of the program. */
void remote_interrupt_begin(void);
void remote_interrupt_end(void);

/* 1 once for every Ctrl-C since the last call. */
int remote_interrupted(void);

/* The sampling options, as a request wants them; what the user did not give is the daemon's
 * default.  bias: the caller frees it (free).  Errors: ERR_USAGE, ERR_NOMEM. */
enum err_code remote_sampling(struct latent_request *r, struct latent_bias **bias,
                              const struct options *o, struct err *e);

/* Submits, and again as long as the daemon is still starting.  A Ctrl-C that comes while the daemon
 * has the question is left for whoever waits next, who can cancel; after two seconds it ends this
 * too: ERR_CANCELLED. */
enum err_code remote_submit(struct remote *r, const struct latent_request *q,
                            struct latent_accepted *out, struct err *e);

/* The rest of a stream, printed as it comes. */
struct remote_text {
    struct latent_stream stream;
    struct remote *r;         /* set by remote_print */
    struct str *keep;         /* the text is appended to it too; NULL: no */
    struct latent_chunk end;  /* once it has ended: how.  Its texts are gone */
    char message[256];        /* of the end */
    struct err *e;            /* of printing */
    enum err_code print_code; /* the same */
};

/* Prints from the cursor to the end.  Errors: those of printing and of the connection;
 * ERR_CANCELLED, Ctrl-C.  How the stream ended is in t->end. */
enum err_code remote_print(struct remote *r, struct remote_text *t, struct err *e);

/* A line with counts and speed, and what the end means for the exit status.
 * Errors: ERR_CANCELLED; ERR_NUMERIC; ERR_IO, it failed in another way. */
enum err_code remote_report(const struct remote_text *t, struct err *e);

#endif
