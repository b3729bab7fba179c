/* SPDX-License-Identifier: MIT */
/* tests/daemon/serve_test.c - the daemon without its server, over a real rank and a tiny model.
 *
 * usage: serve_test LATENTD-RANK
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sqlite3.h>

#include "daemon/journal.h"
#include "daemon/status_board.h"
#include "tests/daemon/rig.h"
#include "tests/support/temp_dir.h"

enum { CLIENTS = 8, PATIENCE_S = 300 };

/* Client k has k times so many words, and gets some more than so many tokens.  A rank is killed so
 * many times; after that turn the daemon stays. */
#ifdef __SANITIZE_ADDRESS__ /* ten times as slow */
enum { WORDS = 4, TOKENS = 20, KILLS = 3, LAST_TURN = 200 };
#define CONTEXT "512"
#else
enum { WORDS = 12, TOKENS = 60, KILLS = 5, LAST_TURN = 400 };
#define CONTEXT "1024"
#endif

static const char *rank_program;
static const char model[] = TEST_DATA "/models/tiny-v3-q4_k_m.gguf";
static char *strict[] = { "-c", CONTEXT, "--reuse", "strict", "-np", "4", NULL };

static char *two_ranks[] = { "-c", CONTEXT, "--reuse", "strict", "-np", "4", "--ranks", "2", NULL };
static char **words = strict;

static void open_rig(struct rig *r, const char *dir)
{
    struct err e = { 0 };

    if (rig_open(r, rank_program, model, dir, words, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

static void turn(struct rig *r)
{
    struct err e = { 0 };

    if (rig_turn(r, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

/* Client k: its own prompt, length and seed. */
struct order {
    struct token_list prompt;
    struct request_spec spec;
};

static void make_order(struct order *o, struct rig *r, const char *id, int k)
{
    char text[2048] = "";

    *o = (struct order){ 0 };
    for (int i = 0; i <= k * WORDS; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "word %d of %d, ", i, k);
    assert_int_equal(
        tokenizer_encode(r->core.tokenizer, text, strlen(text), TOKENIZE_BOS, &o->prompt, NULL),
        ERR_OK);
    o->spec = (struct request_spec){ .id = id,
                                     .client = k & 1 ? "odd" : "even",
                                     .prompt = o->prompt.ids,
                                     .n_prompt = (int64_t)o->prompt.n,
                                     .max_tokens = TOKENS + 7 * k,
                                     .has_seed = 1,
                                     .ignore_eos = 1 };
    sampling_default(&o->spec.sampling);
    o->spec.sampling.seed = (uint64_t)k;
    o->spec.sampling.repeat_penalty = 1.1f;
}

static void submit(struct rig *r, struct order *o, struct reader *x)
{
    struct err e = { 0 };

    memset(x, 0, sizeof *x);
    (void)snprintf(x->id, sizeof x->id, "%s", o->spec.id);
    if (rig_submit(r, &o->spec, &e) != ANSWER_OK)
        fail_msg("%s: %s", o->spec.id, e.msg);
}

static void read_all(struct rig *r, struct reader *v, int n)
{
    double until = clock_seconds() + PATIENCE_S;
    int left = n;

    while (left > 0) {
        struct err e = { 0 };
        turn(r);
        left = 0;
        for (int i = 0; i < n; i++) {
            if (!v[i].ended && reader_read(r, &v[i], &e) != ANSWER_OK)
                fail_msg("%s", e.msg);
            left += !v[i].ended;
        }
        if (clock_seconds() > until)
            fail_msg("no end after %d s", PATIENCE_S);
    }
}

static void same_reply(const struct reader *a, const struct reader *b)
{
    assert_int_equal(a->view.reason, b->view.reason);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->n * sizeof *a->tokens);
    assert_int_equal(a->text.len, b->text.len);
    assert_memory_equal(a->text.data, b->text.data, a->text.len);
}

/* What each client gets alone; kept for the other tests. */
static struct reader solo[CLIENTS];

static void every_client_alone(void **state)
{
    struct rig r;
    struct order o;
    char id[32];
    (void)state;

    open_rig(&r, "solo");
    for (int k = 0; k < CLIENTS; k++) {
        (void)snprintf(id, sizeof id, "solo-%d", k);
        make_order(&o, &r, id, k);
        submit(&r, &o, &solo[k]);
        read_all(&r, &solo[k], 1);
        assert_int_equal(solo[k].n, o.spec.max_tokens);
        assert_int_equal(solo[k].view.reason, REASON_LENGTH);
        assert_int_equal(solo[k].cursor, solo[k].n + 1);
        assert_true(solo[k].text.len > 0);
        token_list_free(&o.prompt);
    }
    rig_close(&r);
}

/* What rank 0 has sent before it was ready. */
static void the_rank_has_told_of_itself(struct rig *r)
{
    struct status_rank *ranks;
    struct str plan = { 0 }, metrics = { 0 };

    assert_int_equal(status_ranks(r->core.status, &ranks), 1);
    assert_true(ranks[0].is.figures[COMM_TO_LOAD] > 0);
    assert_int_equal(ranks[0].is.figures[COMM_LOADED], ranks[0].is.figures[COMM_TO_LOAD]);
    assert_true(*ranks[0].is.host && ranks[0].is.n_threads == 1);
    assert_string_equal(ranks[0].is.device, "RANK0");
    status_plan(r->core.status, LINK_PLAN_SUMMARY, &plan);
    assert_non_null(strstr(plan.data, "RANK0: weights "));
    status_metrics(r->core.status, &metrics);
    assert_non_null(strstr(metrics.data, "\nlatentd_rules 0\n"));
    str_free(&plan);
    str_free(&metrics);
    free(ranks);
}

/* All at once; `disturb` is called again and again meanwhile. */
static void run_together(const char *dir, void (*disturb)(struct rig *r, int turn))
{
    struct reader got[CLIENTS];
    struct order o[CLIENTS];
    char ids[CLIENTS][32];
    struct rig r;
    int turns = 0, left = CLIENTS;

    open_rig(&r, dir);
    for (int k = 0; k < CLIENTS; k++) {
        (void)snprintf(ids[k], sizeof ids[k], "together-%d", k);
        make_order(&o[k], &r, ids[k], k);
        submit(&r, &o[k], &got[k]);
    }
    double until = clock_seconds() + PATIENCE_S;
    while (left > 0) {
        struct err e = { 0 };
        if (disturb)
            disturb(&r, turns++);
        turn(&r);
        left = 0;
        for (int k = 0; k < CLIENTS; k++) {
            if (!got[k].ended && reader_read(&r, &got[k], &e) != ANSWER_OK)
                fail_msg("%s", e.msg);
            left += !got[k].ended;
        }
        if (clock_seconds() > until)
            fail_msg("no end after %d s", PATIENCE_S);
    }
    for (int k = 0; k < CLIENTS; k++) {
        same_reply(&solo[k], &got[k]);
        str_free(&got[k].text);
        token_list_free(&o[k].prompt);
    }
    struct status_view v;
    status_read(r.core.status, &v);
    assert_int_equal(v.pages_used, 0);
    if (!disturb)
        the_rank_has_told_of_itself(&r);
    rig_close(&r);
}

static void all_at_once_get_what_they_get_alone(void **state)
{
    (void)state;
    run_together("together", NULL);
}

static int kills;

static void kill_rank(struct rig *r, int n)
{
    if (n % 40 == 0 && kills < KILLS && ranks_pid(r->core.ranks) > 0) {
        (void)kill(ranks_pid(r->core.ranks), SIGKILL);
        kills++;
    }
}

static void a_killed_rank_is_only_a_pause(void **state)
{
    (void)state;
    run_together("killed", kill_rank);
    assert_true(kills > 0);
}

static void turn_for(struct rig *r, double seconds)
{
    for (double until = clock_seconds() + seconds; clock_seconds() < until;)
        turn(r);
}

static int runs(struct rig *r, pid_t other_than)
{
    return ranks_pid(r->core.ranks) > 0 && ranks_pid(r->core.ranks) != other_than;
}

/* While the journal cannot be written the driver waits, and learns of a rank's end only after the
 * next one has come.  That one must live. */
static void a_rank_is_not_ended_for_the_one_before(void **state)
{
    struct rig r;
    struct order o;
    struct reader x;
    struct err e = { 0 };
    (void)state;

    open_rig(&r, "blocked");
    make_order(&o, &r, "blocked", 2);
    submit(&r, &o, &x);
    while (x.n < 5) {
        turn(&r);
        assert_int_equal(reader_read(&r, &x, &e), ANSWER_OK);
    }
    pid_t first = ranks_pid(r.core.ranks);
    assert_int_equal(rename("blocked", "away"), 0);
    o.spec.id = "another"; /* needs a write, even if the first has ended meanwhile */
    assert_int_equal(rig_submit(&r, &o.spec, &e), ANSWER_JOURNAL_FULL);
    turn_for(&r, 0.3);
    assert_int_equal(kill(first, SIGKILL), 0);
    for (double until = clock_seconds() + PATIENCE_S; !runs(&r, first);) {
        turn(&r);
        assert_true(clock_seconds() < until);
    }
    pid_t second = ranks_pid(r.core.ranks);
    assert_int_equal(rename("away", "blocked"), 0);
    while (!journal_ok(r.core.journal, NULL, 0))
        turn(&r);
    turn_for(&r, 1);
    assert_int_equal(ranks_pid(r.core.ranks), second);
    read_all(&r, &x, 1);
    same_reply(&solo[2], &x);
    str_free(&x.text);
    token_list_free(&o.prompt);
    rig_close(&r);
}

static void reopen(struct rig *r, int n)
{
    if (n % 60 != 59 || n > LAST_TURN)
        return;
    rig_close(r);
    open_rig(r, "reopened");
}

static void a_new_daemon_takes_up_where_the_old_one_was(void **state)
{
    (void)state;
    run_together("reopened", reopen);
}

static void two_ranks_under_mpirun_say_the_same(void **state)
{
    (void)state;
    words = two_ranks;
    kills = KILLS - 2; /* two more */
    run_together("two-ranks", kill_rank);
    words = strict;
    assert_true(kills > KILLS - 2);
}

/* ---- Ends and refusals ---------------------------------------------------- */

static int woken;

static void count_wake(struct requests_waiter *w)
{
    (void)w;
    woken++;
}

static void ends_have_their_reasons(void **state)
{
    struct request_bytes stop = { .data = "", .len = 0 };
    struct requests_waiter w = { .wake = rig_no_wake }, far = { .wake = count_wake };
    struct request_events ev;
    struct rig r;
    struct order o;
    struct reader x;
    struct err e = { 0 };
    (void)state;

    open_rig(&r, "ends");
    make_order(&o, &r, "stopped", 3); /* stops at a text that the solo reply has */
    size_t at = solo[3].text.len / 2;
    while (((unsigned char)solo[3].text.data[at] & 0xc0) == 0x80)
        at++;
    stop = (struct request_bytes){ .data = solo[3].text.data + at, .len = 1 };
    while (((unsigned char)stop.data[stop.len] & 0xc0) == 0x80)
        stop.len++;
    o.spec.stops = &stop;
    o.spec.n_stops = 1;
    submit(&r, &o, &x);
    read_all(&r, &x, 1);
    assert_int_equal(x.view.reason, REASON_STOP);
    assert_null(memmem(x.text.data, x.text.len, stop.data, stop.len));
    assert_memory_equal(x.text.data, solo[3].text.data, x.text.len);
    str_free(&x.text);

    token_list_free(&o.prompt);
    make_order(&o, &r, "cancelled", 1);
    o.spec.max_tokens = 900;
    submit(&r, &o, &x);
    assert_int_equal(requests_next(r.core.book, "cancelled", 5000, &far, &ev, &e), ANSWER_WAIT);
    while (x.n < 5) {
        turn(&r);
        assert_int_equal(reader_read(&r, &x, &e), ANSWER_OK);
    }
    assert_int_equal(woken, 0); /* nothing that it asked for has come */
    assert_int_equal(requests_cancel(r.core.book, "cancelled", &w, &e), ANSWER_WAIT);
    while (requests_cancel(r.core.book, "cancelled", NULL, &e) != ANSWER_OK)
        turn(&r);
    requests_forget(r.core.book, &w);
    read_all(&r, &x, 1);
    assert_int_equal(x.view.reason, REASON_CANCELLED);
    assert_int_equal(woken, 1);
    assert_true(x.n < 900);
    str_free(&x.text);

    o.spec.id = "late";
    o.spec.deadline_ms = 100;
    submit(&r, &o, &x);
    read_all(&r, &x, 1);
    assert_int_equal(x.view.reason, REASON_DEADLINE);
    str_free(&x.text);

    o.spec.id = "full"; /* more than the context */
    o.spec.deadline_ms = 0;
    o.spec.max_tokens = -1;
    submit(&r, &o, &x);
    read_all(&r, &x, 1);
    assert_int_equal(x.view.reason, REASON_LENGTH);
    str_free(&x.text);
    token_list_free(&o.prompt);
    rig_close(&r);
}

/* Tokens of one model are no text of another. */
static void another_model_ends_what_lives(void **state)
{
    struct rig r;
    struct order o;
    struct reader x;
    struct err e = { 0 };
    (void)state;

    open_rig(&r, "model");
    make_order(&o, &r, "over", 0);
    submit(&r, &o, &x);
    read_all(&r, &x, 1);
    str_free(&x.text);
    o.spec.id = "lives";
    o.spec.max_tokens = 900;
    submit(&r, &o, &x);
    while (x.n < 5) {
        turn(&r);
        assert_int_equal(reader_read(&r, &x, &e), ANSWER_OK);
    }
    token_list_free(&o.prompt);
    rig_close(&r);

    if (rig_open(&r, rank_program, TEST_DATA "/models/tiny-v2-f16.gguf", "model", words, &e))
        fail_msg("%s", e.msg);
    str_clear(&x.text);
    read_all(&r, &x, 1);
    assert_int_equal(x.view.reason, REASON_FAILED);
    assert_non_null(strstr(x.view.message, "another model"));
    assert_int_equal(x.cursor, x.n + 1);
    assert_int_equal(x.text.len, 0);
    str_free(&x.text);
    (void)snprintf(x.id, sizeof x.id, "over");
    assert_int_equal(reader_read(&r, &x, &e), ANSWER_UNKNOWN);
    rig_close(&r);
}

/* Sets one byte of what a request has asked for, counted from its end; 0: the first of all. */
static void damage(const char *id, int from_end, char byte)
{
    sqlite3 *db;
    sqlite3_stmt *s;
    sqlite3_blob *blob;

    assert_int_equal(sqlite3_open("damaged/journal.db", &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT number FROM request WHERE id = ?1", -1, &s, 0),
                     SQLITE_OK);
    assert_int_equal(sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_int_equal(
        sqlite3_blob_open(db, "main", "request", "spec", sqlite3_column_int64(s, 0), 1, &blob),
        SQLITE_OK);
    int at = from_end ? sqlite3_blob_bytes(blob) - from_end : 0;
    assert_int_equal(sqlite3_blob_write(blob, &byte, 1, at), SQLITE_OK);
    sqlite3_blob_close(blob);
    sqlite3_finalize(s);
    sqlite3_close(db);
}

/* SQLite does not see a wrong byte in a value.  Who was hit ends as failed, or is not known any
 * more where nothing of it can be read. */
static void a_damaged_request_harms_no_other(void **state)
{
    static const char *const ids[] = { "good", "bad-stop", "bad-version", "bad-prompt" };
    const struct request_bytes stop = { .data = "\x01", .len = 1 };
    struct order o[4];
    struct reader x[4];
    struct rig r;
    (void)state;

    open_rig(&r, "damaged");
    for (int i = 0; i < 4; i++) {
        make_order(&o[i], &r, ids[i], 0);
        o[i].spec.stops = &stop;
        o[i].spec.n_stops = i == 1;
        submit(&r, &o[i], &x[i]);
    }
    rig_close(&r);
    damage("bad-stop", 1, 0);
    damage("bad-version", 0, 0);
    damage("bad-prompt", 5, 0x7f); /* the last byte of its last token */
    open_rig(&r, "damaged");
    for (int i = 0; i < 3; i++) {
        if (i > 0)
            assert_int_equal(reader_read(&r, &x[i], NULL), ANSWER_UNKNOWN);
        submit(&r, &o[i], &x[i]);
    }
    read_all(&r, x, 4);
    for (int i = 0; i < 3; i++)
        same_reply(&solo[0], &x[i]);
    assert_int_equal(x[3].view.reason, REASON_FAILED);
    assert_non_null(strstr(x[3].view.message, "prompt: token"));
    for (int i = 0; i < 4; i++) {
        str_free(&x[i].text);
        token_list_free(&o[i].prompt);
    }
    rig_close(&r);
}

static void what_is_wrong_is_refused_by_name(void **state)
{
    struct request_bytes nul = { .data = "a\0b", .len = 3 };
    const struct logit_bias bias[] = { { .id = 4095 }, { .id = 4096 } };
    struct rig r;
    struct order o;
    struct reader x;
    struct err e = { 0 };
    (void)state;

    open_rig(&r, "refused");
    make_order(&o, &r, "once", 0);
    submit(&r, &o, &x);
    assert_int_equal(rig_submit(&r, &o.spec, &e), ANSWER_OK); /* the same again */
    o.spec.max_tokens++;
    assert_int_equal(rig_submit(&r, &o.spec, &e), ANSWER_CONFLICT);
    o.spec.id = "other";
#define REFUSED(field, value, answer, says)                  \
    do {                                                     \
        struct request_spec bad = o.spec;                    \
        bad.field = value;                                   \
        assert_int_equal(rig_submit(&r, &bad, &e), answer);  \
        if (!strstr(e.msg, says))                            \
            fail_msg("'%s' does not say '%s'", e.msg, says); \
    } while (0)
    REFUSED(id, "with blank", ANSWER_INVALID, "id");
    REFUSED(id, "", ANSWER_INVALID, "id");
    REFUSED(max_tokens, 0, ANSWER_INVALID, "max_tokens");
    REFUSED(sampling.temperature, -1, ANSWER_INVALID, "temperature");
    REFUSED(sampling.top_p, 2, ANSWER_INVALID, "top-p");
    REFUSED(priority, 101, ANSWER_INVALID, "priority");
    REFUSED(deadline_ms, -1, ANSWER_INVALID, "deadline_ms");
    REFUSED(n_prompt, 0, ANSWER_INVALID, "prompt");
    o.spec.sampling.bias = bias;
    REFUSED(sampling.n_bias, 2, ANSWER_INVALID, "sampling.bias: an id: 4096");
    o.spec.stops = &nul;
    REFUSED(n_stops, 1, ANSWER_INVALID, "NUL");
    o.prompt.ids[0] = 1 << 30;
    REFUSED(n_stops, 0, ANSWER_INVALID, "prompt");
#undef REFUSED
    assert_int_equal(requests_cancel(r.core.book, "nobody", NULL, &e), ANSWER_UNKNOWN);
    struct request_events ev;
    assert_int_equal(requests_next(r.core.book, "nobody", 0, NULL, &ev, &e), ANSWER_UNKNOWN);
    assert_int_equal(requests_next(r.core.book, "once", -1, NULL, &ev, &e), ANSWER_INVALID);
    assert_true(requests_drain(r.core.book, 1) <= 1);
    o.prompt.ids[0] = 1;
    o.spec.n_stops = 0;
    assert_int_equal(rig_submit(&r, &o.spec, &e), ANSWER_DRAINING);
    token_list_free(&o.prompt);
    rig_close(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_client_alone),
        cmocka_unit_test(all_at_once_get_what_they_get_alone),
        cmocka_unit_test(a_killed_rank_is_only_a_pause),
        cmocka_unit_test(a_rank_is_not_ended_for_the_one_before),
        cmocka_unit_test(a_new_daemon_takes_up_where_the_old_one_was),
        cmocka_unit_test(two_ranks_under_mpirun_say_the_same),
        cmocka_unit_test(ends_have_their_reasons),
        cmocka_unit_test(another_model_ends_what_lives),
        cmocka_unit_test(a_damaged_request_harms_no_other),
        cmocka_unit_test(what_is_wrong_is_refused_by_name),
    };

    if (argc != 2)
        return 2;
    rank_program = argv[1];
    log_set_program("latentd");
    log_set_quiet(getenv("LATENTD_TEST_LOG") == NULL);
    return cmocka_run_group_tests_name("daemon/serve", tests, temp_dir_enter, temp_dir_remove);
}
