/* SPDX-License-Identifier: MIT */
/* tests/tools/fake_latentd.c - the listening side of latentd with a book that needs no model.
 *
 *     fake_latentd ADDRESS STATE_FILE RATE_MS VOCABULARY.gguf [TOKEN]
 *
 * Serves until SIGTERM; may be killed and started again.  See tests/support/fake_book.h.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "daemon/server.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "tests/support/fake_book.h"

int main(int argc, char **argv)
{
    struct gguf *gguf = NULL;
    struct tokenizer *tokenizer = NULL;
    struct server *server = NULL;
    struct err e = { 0 };
    char bound[128];
    sigset_t wait_for;
    int got;

    if (argc < 5) {
        fprintf(stderr, "usage: fake_latentd ADDRESS STATE_FILE RATE_MS VOCABULARY.gguf [TOKEN]\n");
        return 2;
    }
    log_set_program("fake_latentd");
    sigemptyset(&wait_for);
    sigaddset(&wait_for, SIGTERM);
    sigprocmask(SIG_BLOCK, &wait_for, NULL);
    struct service service = { .book = fake_book_open(argv[2], atoi(argv[3])),
                               .token = argc > 5 ? argv[5] : NULL };
    if (gguf_open(&gguf, argv[4], 0, &e) == ERR_OK &&
        tokenizer_open(&tokenizer, gguf, &e) == ERR_OK) {
        service.gguf = gguf;
        service.tokenizer = tokenizer;
        if (server_start(&server, &service, &e) == ERR_OK &&
            server_listen(server, argv[1], bound, sizeof bound, &e) == ERR_OK) {
            printf("%s\n", bound);
            fflush(stdout);
            sigwait(&wait_for, &got);
        }
    }
    if (e.code != ERR_OK)
        log_error("%s", e.msg);
    server_stop(&server);
    fake_book_close(service.book);
    tokenizer_close(&tokenizer);
    gguf_close(&gguf);
    return e.code != ERR_OK;
}
