/* SPDX-License-Identifier: MIT */
/* tests/cli/interrupt_test.c - Ctrl-C at moments that are hard to meet from outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/remote.h"
#include "daemon/server.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "tests/support/fake_book.h"
#include "tests/support/temp_dir.h"

static struct requests *book;
static struct server *server;
static struct gguf *gguf;
static struct tokenizer *tokenizer;

static enum err_code open_to(struct remote *r, const char *endpoint, struct err *e)
{
    char *argv[] = { "--endpoint", (char *)endpoint };
    struct options o = { 0 };

    assert_int_equal(options_parse(&o, COMMAND_submit, 2, argv, e), ERR_OK);
    enum err_code rc = remote_open(r, &o, e);
    options_free(&o);
    return rc;
}

static void one_before_the_connection_counts(void **state)
{
    struct remote r = { 0 };
    struct err e = { 0 };
    (void)state;

    remote_interrupt_begin();
    assert_int_equal(raise(SIGINT), 0);
    assert_int_equal(open_to(&r, "ipc://nobody", &e), ERR_CANCELLED);
    assert_int_equal(remote_interrupted(), 1);
    remote_close(&r);
    remote_interrupt_end();
}

/* Ctrl-C while the journal has not recorded the request yet; arg: whether it does later. */
static void *interrupt(void *arg)
{
    for (int i = 0; i < 60000 && fake_book_waiters(book) == 0; i++)
        usleep(1000);
    (void)kill(getpid(), SIGINT);
    usleep(300 * 1000);
    if (*(int *)arg)
        fake_book_hold(book, 0);
    return NULL;
}

static enum err_code submit_and_interrupt(const char *id, int recorded)
{
    struct latent_request q;
    struct remote r = { 0 };
    struct err e = { 0 };
    pthread_t thread;

    remote_interrupt_begin();
    assert_int_equal(open_to(&r, "ipc://s", &e), ERR_OK);
    latent_request_init(&q);
    q.id = id;
    q.text = "hello";
    q.text_len = 5;
    fake_book_hold(book, 1);
    assert_int_equal(pthread_create(&thread, NULL, interrupt, &recorded), 0);
    enum err_code rc = remote_submit(&r, &q, NULL, &e);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(remote_interrupted(), 1);
    remote_close(&r);
    remote_interrupt_end();
    fake_book_hold(book, 0);
    return rc;
}

static void who_submits_learns_what_to_cancel(void **state)
{
    (void)state;
    assert_int_equal(submit_and_interrupt("known", 1), ERR_OK);
    assert_int_equal(fake_book_accepted(book, "known"), 1);
}

static void who_submits_is_not_held_for_ever(void **state)
{
    (void)state;
    assert_int_equal(submit_and_interrupt("never", 0), ERR_CANCELLED);
}

static int start(void **state)
{
    struct service service = { 0 };
    struct err e = { 0 };

    if (temp_dir_enter(state) != 0)
        return -1;
    book = fake_book_open(NULL, 0);
    if (gguf_open(&gguf, TEST_DATA "/models/tiny-v3-q4_k_m.gguf", 0, &e) != ERR_OK ||
        tokenizer_open(&tokenizer, gguf, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    service = (struct service){ .book = book, .gguf = gguf, .tokenizer = tokenizer };
    if (server_start(&server, &service, &e) != ERR_OK ||
        server_listen(server, "ipc://s", NULL, 0, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return 0;
}

static int stop(void **state)
{
    server_stop(&server);
    fake_book_close(book);
    tokenizer_close(&tokenizer);
    gguf_close(&gguf);
    return temp_dir_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_before_the_connection_counts),
        cmocka_unit_test(who_submits_learns_what_to_cancel),
        cmocka_unit_test(who_submits_is_not_held_for_ever),
    };

    log_set_quiet(1);
    return cmocka_run_group_tests(tests, start, stop);
}
