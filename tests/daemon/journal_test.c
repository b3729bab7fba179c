/* SPDX-License-Identifier: MIT */
/* tests/daemon/journal_test.c - the journal: what is read back, set aside, forgotten, refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include "base/log.h"
#include "daemon/clock.h"
#include "daemon/journal.h"
#include "tests/support/temp_dir.h"

enum { PATIENCE_MS = 60000 }; /* and more: each millisecond of sleep is longer */

/* What has settled. */
struct seen {
    pthread_mutex_t lock;
    int requests, refused, tokens, ends;
};

static void settled(void *arg, struct journal_entry *list)
{
    struct seen *s = arg;

    pthread_mutex_lock(&s->lock);
    for (struct journal_entry *x = list; x; x = x->next) {
        s->requests += x->spec.len > 0 && !x->refused;
        s->refused += x->refused;
        s->tokens += x->shown ? 0 : x->n_tokens;
        s->ends += x->n_ends;
    }
    pthread_mutex_unlock(&s->lock);
}

static int count(struct seen *s, const int *what)
{
    pthread_mutex_lock(&s->lock);
    int n = *what;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void await(struct seen *s, const int *what, int n)
{
    for (int i = 0; i < PATIENCE_MS && count(s, what) < n; i++)
        usleep(1000);
    assert_int_equal(count(s, what), n);
}

static struct journal *open_journal(const char *dir, int64_t keep_ms, int64_t keep_bytes)
{
    struct journal_options o = { .dir = dir, .keep_ms = keep_ms, .keep_bytes = keep_bytes };
    struct journal *j = NULL;
    struct err e = { 0 };

    if (journal_open(&j, &o, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return j;
}

static void push_request(struct journal *j, int64_t number, const char *id, const char *spec)
{
    struct journal_entry *x = journal_entry_new(clock_unix_ms());

    x->number = number;
    snprintf(x->id, sizeof x->id, "%s", id);
    str_puts(&x->spec, spec);
    journal_push(j, x);
}

/* The tokens of a request are ten times its number and what follows. */
static void push_tokens(struct journal *j, int64_t number, int32_t first, int n)
{
    struct journal_entry *x = journal_entry_new(clock_unix_ms());

    for (int i = 0; i < n; i++)
        assert_int_equal(journal_entry_add_token(x, number, first + i - 10 * number, first + i), 0);
    journal_push(j, x);
}

static void push_end(struct journal *j, int64_t number, enum reason reason, int n_tokens)
{
    struct journal_entry *x = journal_entry_new(clock_unix_ms());
    struct journal_end end = { .number = number, .reason = reason, .n_tokens = n_tokens };

    end.tokens = calloc((size_t)n_tokens + 1, sizeof *end.tokens);
    for (int i = 0; i < n_tokens; i++)
        end.tokens[i] = 100 + i;
    snprintf(end.message, sizeof end.message, "because");
    assert_int_equal(journal_entry_add_end(x, &end), 0);
    journal_push(j, x);
}

/* The rows that a walk gives. */
struct rows {
    int n;
    int64_t numbers[8], n_tokens[8];
    int32_t last_token[8];
    enum reason reasons[8];
    char ids[8][32], spec[8][32];
};

static int note_row(void *arg, const struct journal_row *row)
{
    struct rows *r = arg;
    int i = r->n++;

    r->numbers[i] = row->number;
    r->n_tokens[i] = row->n_tokens;
    r->last_token[i] = row->n_tokens ? row->tokens[row->n_tokens - 1] : -1;
    r->reasons[i] = row->reason;
    snprintf(r->ids[i], sizeof r->ids[i], "%s", row->id);
    snprintf(r->spec[i], sizeof r->spec[i], "%.*s", (int)row->n_spec, (const char *)row->spec);
    return 0;
}

#define DAY_MS (24LL * 3600 * 1000)

static void what_was_recorded_is_read_back(void **state)
{
    struct seen s = { .lock = PTHREAD_MUTEX_INITIALIZER };
    struct rows live = { 0 }, found = { 0 };
    struct journal *j = open_journal("back", DAY_MS, 1 << 30);
    char value[32];
    (void)state;

    assert_int_equal(journal_next_number(j), 1);
    assert_int_equal(journal_read_live(j, note_row, &live, NULL), ERR_OK);
    assert_int_equal(live.n, 0);
    assert_int_equal(journal_start(j, settled, &s, NULL), ERR_OK);
    journal_set_meta(j, "model_hash", "abc");
    push_request(j, 1, "one", "spec one");
    push_request(j, 2, "two", "spec two");
    await(&s, &s.requests, 2); /* before that nobody knows of them */
    push_tokens(j, 1, 10, 3);
    push_tokens(j, 2, 20, 2);
    push_tokens(j, 1, 13, 2);
    push_end(j, 2, REASON_STOP, 2);
    await(&s, &s.ends, 1);
    assert_int_equal(s.tokens, 7);
    assert_int_equal(journal_find(j, "two", note_row, &found), 1);
    assert_int_equal(found.reasons[0], REASON_STOP);
    assert_int_equal(found.n_tokens[0], 2);
    assert_int_equal(found.last_token[0], 101);
    assert_int_equal(journal_find(j, "three", note_row, &found), 0);
    journal_close(&j);

    j = open_journal("back", DAY_MS, 1 << 30);
    journal_get_meta(j, "model_hash", value, sizeof value);
    assert_string_equal(value, "abc");
    assert_int_equal(journal_next_number(j), 3);
    assert_int_equal(journal_read_live(j, note_row, &live, NULL), ERR_OK);
    assert_int_equal(live.n, 1);
    assert_int_equal(live.numbers[0], 1);
    assert_string_equal(live.ids[0], "one");
    assert_string_equal(live.spec[0], "spec one");
    assert_int_equal(live.n_tokens[0], 5);
    assert_int_equal(live.last_token[0], 14);
    journal_close(&j);
}

static void a_number_is_never_given_twice(void **state)
{
    struct seen s = { .lock = PTHREAD_MUTEX_INITIALIZER };
    struct journal *j = open_journal("numbers", -1, 1 << 30); /* keeps nothing that has ended */
    struct rows found = { 0 };
    (void)state;

    assert_int_equal(journal_start(j, settled, &s, NULL), ERR_OK);
    push_request(j, 1, "one", "x");
    await(&s, &s.requests, 1);
    push_end(j, 1, REASON_LENGTH, 0);
    await(&s, &s.ends, 1);
    journal_close(&j);
    j = open_journal("numbers", -1, 1 << 30);
    assert_int_equal(journal_start(j, settled, &s, NULL), ERR_OK);
    for (int i = 0; i < PATIENCE_MS && journal_find(j, "one", note_row, &found); i++) {
        found.n = 0;
        usleep(1000); /* forgotten soon */
    }
    assert_int_equal(journal_find(j, "one", note_row, &found), 0);
    journal_close(&j);
    j = open_journal("numbers", -1, 1 << 30);
    assert_int_equal(journal_next_number(j), 2);
    journal_close(&j);
}

static void a_second_process_is_refused(void **state)
{
    struct journal *j = open_journal("locked", DAY_MS, 1 << 30);
    int status;
    (void)state;

    pid_t pid = fork();
    if (pid == 0) {
        struct journal_options o = { .dir = "locked" };
        struct journal *other = NULL;
        struct err e = { 0 };
        enum err_code rc = journal_open(&other, &o, &e);
        _exit(rc == ERR_USAGE && strstr(e.msg, "another --state-dir") ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    journal_close(&j);
    j = open_journal("locked", DAY_MS, 1 << 30); /* the lock went with the process */
    journal_close(&j);
}

/* Writes over `n` bytes of a file from `at` on. */
static void damage(const char *path, off_t at, size_t n)
{
    int fd = open(path, O_WRONLY);
    char junk[4096];

    assert_true(fd >= 0);
    memset(junk, 0x5a, sizeof junk);
    for (size_t done = 0; done < n; done += sizeof junk)
        assert_true(pwrite(fd, junk, sizeof junk, at + (off_t)done) > 0);
    close(fd);
}

static int has_damaged(const char *dir)
{
    char command[128];

    snprintf(command, sizeof command, "ls %s | grep -q damaged", dir);
    return system(command) == 0;
}

static void a_damaged_file_is_set_aside(void **state)
{
    static const struct {
        off_t at;
        size_t n;
    } damages[] = {
        {0,     4096},
        { 4096, 8192},
        { 16,   1   },
    };
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        struct seen s = { .lock = PTHREAD_MUTEX_INITIALIZER };
        struct rows live = { 0 };
        char dir[32], path[64];
        snprintf(dir, sizeof dir, "damaged%zu", i);
        snprintf(path, sizeof path, "%s/journal.db", dir);
        struct journal *j = open_journal(dir, DAY_MS, 1 << 30);
        assert_int_equal(journal_start(j, settled, &s, NULL), ERR_OK);
        push_request(j, 1, "one", "x");
        await(&s, &s.requests, 1);
        journal_close(&j);
        damage(path, damages[i].at, damages[i].n);
        j = open_journal(dir, DAY_MS, 1 << 30);
        assert_true(has_damaged(dir));
        assert_int_equal(journal_read_live(j, note_row, &live, NULL), ERR_OK);
        assert_int_equal(live.n, 0);
        assert_int_equal(journal_start(j, settled, &s, NULL), ERR_OK);
        push_request(j, 1, "one", "x"); /* and it works */
        await(&s, &s.requests, 2);
        journal_close(&j);
    }
}

static void what_ended_goes_when_it_is_too_much(void **state)
{
    struct seen s = { .lock = PTHREAD_MUTEX_INITIALIZER };
    struct journal *j = open_journal("small", DAY_MS, 1 << 30);
    struct rows found = { 0 };
    static char spec[20001];
    (void)state;

    memset(spec, 'x', sizeof spec - 1);
    assert_int_equal(journal_start(j, settled, &s, NULL), ERR_OK);
    for (int i = 1; i <= 100; i++) { /* 2 MB */
        char id[32];
        snprintf(id, sizeof id, "r%d", i);
        push_request(j, i, id, spec);
    }
    push_request(j, 101, "lives", spec);
    await(&s, &s.requests, 101);
    for (int i = 1; i <= 100; i++)
        push_end(j, i, REASON_LENGTH, 0);
    await(&s, &s.ends, 100);
    journal_close(&j);
    j = open_journal("small", DAY_MS, 200 << 10);
    assert_int_equal(journal_start(j, settled, &s, NULL), ERR_OK);
    for (int i = 0; i < PATIENCE_MS && journal_find(j, "r1", note_row, &found); i++) {
        found.n = 0;
        usleep(1000);
    }
    found.n = 0;
    assert_int_equal(journal_find(j, "r1", note_row, &found), 0);
    assert_int_equal(journal_find(j, "lives", note_row, &found), 1);
    journal_close(&j);
}

/* Of the run that the tail of a journal is for. */
static uint64_t run_of_tail(const char *dir)
{
    uint64_t run = 0;
    char path[64];

    snprintf(path, sizeof path, "%s/journal.db-tail", dir);
    int fd = open(path, O_RDONLY);
    if (fd >= 0) {
        (void)!read(fd, &run, sizeof run);
        close(fd);
    }
    return run;
}

/* A process that shows tokens and dies before they can be committed. */
static void show_and_die(const char *dir, int32_t first)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        struct seen s = { .lock = PTHREAD_MUTEX_INITIALIZER };
        struct journal *j = open_journal(dir, DAY_MS, 1 << 30);
        struct rows live = { 0 };
        uint64_t before = run_of_tail(dir);

        if (journal_read_live(j, note_row, &live, NULL) != ERR_OK ||
            journal_start(j, settled, &s, NULL) != ERR_OK)
            _exit(1);
        if (live.n == 0) {
            push_request(j, 1, "one", "x");
            await(&s, &s.requests, 1);
        }
        while (run_of_tail(dir) == before) /* until what was found there is committed */
            usleep(1000);
        if (rename(dir, "hidden")) /* from here on nothing can be, however slow this process is */
            _exit(3);
        push_tokens(j, 1, first, 5);
        _exit(count(&s, &s.tokens) == 5 ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(rename("hidden", dir), 0);
    assert_int_equal(status, 0);
}

static void what_was_shown_survives_a_kill(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rows live = { 0 };
        show_and_die("killed", 10 + 5 * i);
        struct journal *j = open_journal("killed", DAY_MS, 1 << 30);
        assert_int_equal(journal_read_live(j, note_row, &live, NULL), ERR_OK);
        journal_close(&j); /* nothing was written: the next one finds the same */
        assert_int_equal(live.n, 1);
        assert_int_equal(live.n_tokens[0], 5 * (i + 1));
        assert_int_equal(live.last_token[0], 10 + 5 * (i + 1) - 1);
    }
}

/* The last three of five records: the first two count. */
static void half_a_record_is_none(void **state)
{
    struct rows live = { 0 };
    (void)state;

    show_and_die("torn", 10);
    damage("torn/journal.db-tail", 8 + 2 * 24 + 3, 1);
    struct journal *j = open_journal("torn", DAY_MS, 1 << 30);
    assert_int_equal(journal_read_live(j, note_row, &live, NULL), ERR_OK);
    assert_int_equal(live.n_tokens[0], 2);
    journal_close(&j);
}

static void a_tail_of_another_journal_is_none(void **state)
{
    struct rows live = { 0 };
    (void)state;

    show_and_die("first", 10);
    show_and_die("second", 10);
    assert_int_equal(rename("first/journal.db-tail", "second/journal.db-tail"), 0);
    struct journal *j = open_journal("second", DAY_MS, 1 << 30);
    assert_int_equal(journal_read_live(j, note_row, &live, NULL), ERR_OK);
    assert_int_equal(live.n_tokens[0], 0);
    journal_close(&j);
}

/* Who waits for the disk itself does not look at the tail. */
static void with_full_sync_tokens_wait(void **state)
{
    struct journal_options o = {
        .dir = "full", .sync_full = 1, .keep_ms = DAY_MS, .keep_bytes = 1 << 30
    };
    struct seen s = { .lock = PTHREAD_MUTEX_INITIALIZER };
    struct journal *j = NULL;
    (void)state;

    assert_int_equal(journal_open(&j, &o, NULL), ERR_OK);
    assert_int_equal(journal_start(j, settled, &s, NULL), ERR_OK);
    push_request(j, 1, "one", "x");
    await(&s, &s.requests, 1);
    assert_int_equal(rename("full", "elsewhere"), 0);
    push_tokens(j, 1, 10, 1);
    usleep(50 * 1000);
    assert_int_equal(count(&s, &s.tokens), 0);
    assert_int_equal(rename("elsewhere", "full"), 0);
    await(&s, &s.tokens, 1);
    journal_close(&j);
}

/* A file without a name takes writes that nobody finds again. */
static void a_file_that_is_gone_takes_nothing(void **state)
{
    struct seen s = { .lock = PTHREAD_MUTEX_INITIALIZER };
    struct journal *j = open_journal("gone", DAY_MS, 1 << 30);
    (void)state;

    assert_int_equal(journal_start(j, settled, &s, NULL), ERR_OK);
    push_request(j, 1, "one", "x");
    await(&s, &s.requests, 1);
    assert_int_equal(rename("gone", "away"), 0);
    push_request(j, 2, "two", "y");
    await(&s, &s.refused, 1);
    assert_int_equal(journal_ok(j, NULL, 0), 0);
    assert_int_equal(rename("away", "gone"), 0);
    for (int i = 0; i < PATIENCE_MS && !journal_ok(j, NULL, 0); i++)
        usleep(1000);
    push_request(j, 3, "three", "z");
    await(&s, &s.requests, 2);
    journal_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_recorded_is_read_back),
        cmocka_unit_test(a_number_is_never_given_twice),
        cmocka_unit_test(a_second_process_is_refused),
        cmocka_unit_test(a_damaged_file_is_set_aside),
        cmocka_unit_test(what_ended_goes_when_it_is_too_much),
        cmocka_unit_test(a_file_that_is_gone_takes_nothing),
        cmocka_unit_test(what_was_shown_survives_a_kill),
        cmocka_unit_test(half_a_record_is_none),
        cmocka_unit_test(a_tail_of_another_journal_is_none),
        cmocka_unit_test(with_full_sync_tokens_wait),
    };

    log_set_quiet(1);
    return cmocka_run_group_tests_name("daemon/journal", tests, temp_dir_enter, temp_dir_remove);
}
