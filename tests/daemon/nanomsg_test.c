/* SPDX-License-Identifier: MIT */
/* tests/daemon/nanomsg_test.c - nanomsg's REQ sockets are clients of the daemon, as the protocol
 * says. */
#include "tests/daemon/server_support.h"

#include <nanomsg/nn.h>
#include <nanomsg/reqrep.h>

static Latentd__Envelope *ask_over(int req, Latentd__Envelope *m)
{
    struct err e = { 0 };
    uint8_t *bytes;
    void *got;
    size_t n;

    m->token = "secret";
    assert_int_equal(envelope_encode(&bytes, &n, m, PROTO_QUESTION_MAX, &e), ERR_OK);
    assert_int_equal(nn_send(req, bytes, n, 0), n);
    free(bytes);
    int n_got = nn_recv(req, &got, NN_MSG, 0);
    assert_true(n_got > 0);
    Latentd__Envelope *a = NULL;
    if (envelope_decode(&a, got, (size_t)n_got, PROTO_ANSWER_MAX, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    nn_freemsg(got);
    return a;
}

static void stream_over(const char *endpoint, const char *id)
{
    int req = nn_socket(AF_SP, NN_REQ), fd = sp_connect(address), patience_ms = 60000;
    Latentd__Envelope m = question(LATENTD__METHOD__METHOD_NEXT);
    Latentd__NextRequest q = LATENTD__NEXT_REQUEST__INIT;
    int ended = 0;

    assert_true(req >= 0 && fd >= 0);
    assert_int_equal(nn_setsockopt(req, NN_SOL_SOCKET, NN_RCVTIMEO, &patience_ms, sizeof(int)), 0);
    assert_true(nn_connect(req, endpoint) >= 0);
    submit(fd, id, 3);
    q.id = (char *)id;
    q.has_cursor = q.has_wait_ms = 1;
    q.wait_ms = 5000;
    m.body_case = LATENTD__ENVELOPE__BODY_NEXT;
    m.next = &q;
    while (!ended) {
        if (q.cursor < 3)
            fake_book_produce(book, id, 1);
        Latentd__Envelope *a = ask_over(req, &m);
        assert_true(a->next_reply && a->next_reply->cursor > q.cursor);
        q.cursor = a->next_reply->cursor;
        ended = a->next_reply->end != NULL;
        envelope_free(&a);
    }
    assert_int_equal(q.cursor, 4);
    close(fd);
    nn_close(req);
}

static void a_req_socket_reads_a_stream(void **state)
{
    (void)state;
    stream_over(address, "nn-ipc");
    stream_over(tcp_address, "nn-tcp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_req_socket_reads_a_stream),
    };
    return cmocka_run_group_tests_name("daemon/nanomsg", tests, start_server, stop_server);
}
