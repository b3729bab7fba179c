/* SPDX-License-Identifier: MIT */
/* tests/daemon/kills_test.c - SIGKILL of the daemon, of a rank, of a client, and a journal that
 * cannot be written, at random moments: every token is seen once, and the text is the undisturbed
 * one.
 *
 * usage: kills_test LATENTD KILLS, or $LATENTD_KILLS if that is set
 *
 * The daemon is a child that writes the events it shows into a pipe.  The test is the client: it
 * keeps the cursors, and gives them to the next child.  Where clients are killed, the child is one,
 * of a daemon that lives all the time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "proto/latent.h"
#include "tests/daemon/rig.h"
#include "tests/support/temp_dir.h"

enum { CLIENTS = 6, RECORD_TOKENS = 100, RECORD_TEXT = 3000, PATIENCE_S = 120 };

/* Client k asks for some more than FEWEST tokens after k times WORDS words. */
#ifdef __SANITIZE_ADDRESS__ /* ten times as slow */
enum { FEWEST = 16, MORE = 4, WORDS = 3 };
#else
enum { FEWEST = 40, MORE = 10, WORDS = 9 };
#endif

enum harm { NO_HARM, KILL_DAEMON, KILL_RANK, FULL_DISK };

static const char *daemon_program;
static char rank_program[4096];
static int n_kills;
static const char model[] = TEST_DATA "/models/tiny-v3-q4_k_m.gguf";
static char *words[] = { "-c", "2048", "--reuse", "strict", "-np", "4", NULL };

/* Events of one request, small enough that the pipe takes them whole. */
struct record {
    int client, n_tokens, n_text, ended, reason;
    int64_t from, cursor;
    int32_t tokens[RECORD_TOKENS];
    char text[RECORD_TEXT];
};

/* What a client has. */
struct client {
    int64_t cursor;
    int32_t tokens[512];
    int n, ended, reason;
    struct str text;
};

/* ---- The daemon ----------------------------------------------------------- */

static void write_prompt(char *text, size_t size, int k)
{
    *text = 0;
    for (int i = 0; i <= k * WORDS; i++)
        (void)snprintf(text + strlen(text), size - strlen(text), "%d and %d, ", i, k);
}

static void submit_all(struct rig *r, int round)
{
    for (int k = 0; k < CLIENTS; k++) {
        struct token_list prompt = { 0 };
        struct err e = { 0 };
        char id[32], text[1024];
        write_prompt(text, sizeof text, k);
        (void)snprintf(id, sizeof id, "r%d-c%d", round, k);
        if (tokenizer_encode(r->core.tokenizer, text, strlen(text), TOKENIZE_BOS, &prompt, &e))
            _exit(3);
        struct request_spec spec = { .id = id,
                                     .client = k & 1 ? "a" : "b",
                                     .prompt = prompt.ids,
                                     .n_prompt = (int64_t)prompt.n,
                                     .max_tokens = FEWEST + MORE * k,
                                     .has_seed = 1,
                                     .ignore_eos = 1 };
        sampling_default(&spec.sampling);
        spec.sampling.seed = (uint64_t)round * 10 + (uint64_t)k;
        enum answer a;
        while ((a = rig_submit(r, &spec, &e)) == ANSWER_JOURNAL_FULL)
            (void)rig_turn(r, &e);
        if (a != ANSWER_OK) {
            fprintf(stderr, "%s: %s\n", id, e.msg);
            _exit(4);
        }
        token_list_free(&prompt);
    }
}

/* Writes what is new of request k.  Returns 1 once it has ended. */
static int show(struct rig *r, int round, int k, int64_t *cursor, int out)
{
    struct request_events ev;
    struct record rec = { .client = k, .from = *cursor };
    struct err e = { 0 };
    char id[32];

    (void)snprintf(id, sizeof id, "r%d-c%d", round, k);
    if (requests_next(r->core.book, id, *cursor, NULL, &ev, &e) != ANSWER_OK ||
        ev.n_tokens > RECORD_TOKENS || ev.text.len > RECORD_TEXT)
        _exit(5);
    if (ev.cursor > *cursor) {
        rec.n_tokens = ev.n_tokens;
        rec.n_text = (int)ev.text.len;
        rec.cursor = *cursor = ev.cursor;
        rec.ended = ev.ended;
        rec.reason = (int)ev.view.reason;
        memcpy(rec.tokens, ev.tokens, (size_t)ev.n_tokens * sizeof *ev.tokens);
        if (ev.text.len)
            memcpy(rec.text, ev.text.data, ev.text.len);
        if (write(out, &rec, sizeof rec) != sizeof rec)
            _exit(6);
    }
    int ended = ev.ended;
    request_events_free(&ev);
    return ended;
}

/* When harm is done: some time after the beginning, or after the first that comes of it, which on a
 * slow machine is later than any such time. */
struct moment {
    int after_first;
    double pause_s, at;
};

static struct moment some_moment(int most_ms)
{
    struct moment m = { .after_first = rand() % 2, .pause_s = 0.001 * (rand() % most_ms) };

    m.at = clock_seconds() + m.pause_s;
    return m;
}

/* come: something has come. */
static int is_due(struct moment *m, int come)
{
    double now = clock_seconds();

    if (m->after_first && !come)
        m->at = now + m->pause_s;
    m->after_first &= !come;
    return now > m->at;
}

/* For a while no file may grow, as on a full disk. */
static void limit_files(int full)
{
    struct rlimit l;

    (void)getrlimit(RLIMIT_FSIZE, &l);
    l.rlim_cur = full ? 4096 : l.rlim_max;
    (void)setrlimit(RLIMIT_FSIZE, &l);
}

static void run_daemon(int round, const struct client *have, int out, enum harm harm, unsigned seed)
{
    struct rig r;
    struct err e = { 0 };
    int64_t cursors[CLIENTS];
    int left = CLIENTS, come = 0;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGXFSZ, SIG_IGN);
    srand(seed);
    struct moment harm_at = some_moment(300);
    for (int k = 0; k < CLIENTS; k++)
        cursors[k] = have[k].cursor;
    if (rig_open(&r, rank_program, model, "state", words, &e) != ERR_OK) {
        fprintf(stderr, "%s\n", e.msg);
        _exit(2);
    }
    submit_all(&r, round);
    while (left > 0) {
        if (rig_turn(&r, &e) != ERR_OK)
            _exit(7);
        int due = is_due(&harm_at, come);
        if (harm == KILL_RANK && due && ranks_pid(r.core.ranks) > 0) {
            (void)kill(ranks_pid(r.core.ranks), SIGKILL);
            harm = NO_HARM;
        }
        if (harm == FULL_DISK && due)
            limit_files(clock_seconds() < harm_at.at + 1.5);
        left = 0;
        for (int k = 0; k < CLIENTS; k++) {
            left += !show(&r, round, k, &cursors[k], out);
            come |= cursors[k] > have[k].cursor;
        }
    }
    limit_files(0);
    rig_close(&r);
    _exit(0);
}

/* ---- The client ----------------------------------------------------------- */

static void take(struct client *c, const struct record *r)
{
    assert_int_equal(r->from, c[r->client].cursor); /* no gap, no repeat */
    c = &c[r->client];
    assert_int_equal(r->cursor, r->from + r->n_tokens + r->ended);
    memcpy(c->tokens + c->n, r->tokens, (size_t)r->n_tokens * sizeof *r->tokens);
    c->n += r->n_tokens;
    str_append(&c->text, r->text, (size_t)r->n_text);
    c->cursor = r->cursor;
    c->ended = r->ended;
    c->reason = r->reason;
}

/* One life of a daemon.  Returns 1 if it went to the end. */
static int live_once(int round, struct client *c, enum harm harm)
{
    struct record rec;
    int fd[2], status, come = 0;
    unsigned seed = (unsigned)rand();
    struct moment kill_at = some_moment(500);

    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(fd[0]);
        run_daemon(round, c, fd[1], harm, seed);
    }
    close(fd[1]);
    double until = clock_seconds() + PATIENCE_S;
    for (;;) {
        struct pollfd p = { .fd = fd[0], .events = POLLIN };
        (void)poll(&p, 1, 5);
        if (harm == KILL_DAEMON && is_due(&kill_at, come)) {
            (void)kill(pid, SIGKILL);
            harm = NO_HARM;
        }
        if (clock_seconds() > until)
            fail_msg("no end after %d s", PATIENCE_S);
        if (!p.revents)
            continue;
        ssize_t n = read(fd[0], &rec, sizeof rec);
        if (n != sizeof rec)
            break; /* the end of the pipe */
        take(c, &rec);
        come = 1;
    }
    close(fd[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        fail_msg("the daemon left with status %d", WEXITSTATUS(status));
    return WIFEXITED(status);
}

/* All requests of a round, over as many lives as it takes.  Returns the kills. */
static int run_round(int round, struct client *c, enum harm harm, int most)
{
    int kills = 0, left;

    do {
        int whole = live_once(round, c, kills < most ? harm : NO_HARM);
        kills += harm != NO_HARM && (!whole || harm != KILL_DAEMON);
        left = 0;
        for (int k = 0; k < CLIENTS; k++)
            left += !c[k].ended;
        if (whole)
            break;
    } while (left > 0);
    assert_int_equal(left, 0);
    return kills;
}

static void clients_free(struct client *c)
{
    for (int k = 0; k < CLIENTS; k++)
        str_free(&c[k].text);
    memset(c, 0, CLIENTS * sizeof *c);
}

static void same_streams(const struct client *harmed, const struct client *calm)
{
    for (int k = 0; k < CLIENTS; k++) {
        assert_int_equal(harmed[k].reason, calm[k].reason);
        assert_int_equal(harmed[k].n, calm[k].n);
        assert_int_equal(harmed[k].n, FEWEST + MORE * k);
        assert_memory_equal(harmed[k].tokens, calm[k].tokens,
                            (size_t)calm[k].n * sizeof *calm[k].tokens);
        assert_int_equal(harmed[k].text.len, calm[k].text.len);
        assert_memory_equal(harmed[k].text.data, calm[k].text.data, calm[k].text.len);
    }
}

static void survives(enum harm harm, int kills)
{
    static struct client calm[CLIENTS], harmed[CLIENTS];
    static int round;

    srand(7);
    for (int done = 0; done < kills;) {
        (void)run_round(round, calm, NO_HARM, 0);
        (void)system("rm -rf state"); /* so that the same ids are new again */
        done += run_round(round, harmed, harm, kills - done);
        (void)system("rm -rf state");
        same_streams(harmed, calm);
        clients_free(calm);
        clients_free(harmed);
        round++;
    }
}

static void a_killed_daemon_loses_nothing(void **state)
{
    (void)state;
    survives(KILL_DAEMON, n_kills);
}

static void a_killed_rank_loses_nothing(void **state)
{
    (void)state;
    survives(KILL_RANK, n_kills);
}

static void a_full_disk_loses_nothing(void **state)
{
    (void)state;
    survives(FULL_DISK, n_kills / 5);
}

/* ---- Clients that die ------------------------------------------------------ */

static const char endpoint[] = "ipc://clients";

static pid_t start_daemon(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)execl(daemon_program, daemon_program, "-q", "-m", model, "--listen", endpoint,
                    "--state-dir", "state", "-t", "1", words[0], words[1], words[2], words[3],
                    words[4], words[5], (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* Reads a stream on and tells of it.  Returns 1 once it has ended. */
static int tell(struct latent *c, struct latent_stream *s, int k, int out)
{
    struct record rec = { .client = k, .from = (int64_t)s->cursor };
    struct latent_error e;
    struct latent_chunk chunk;

    s->wait_ms = 20;
    if (latent_next(c, s, &chunk, &e) || chunk.n_tokens > RECORD_TOKENS ||
        chunk.text_len > RECORD_TEXT)
        _exit(5);
    rec.cursor = (int64_t)s->cursor;
    rec.n_tokens = (int)chunk.n_tokens;
    rec.n_text = (int)chunk.text_len;
    rec.ended = chunk.ended;
    rec.reason = chunk.ended ? (int)chunk.reason : 0;
    memcpy(rec.tokens, chunk.tokens ? chunk.tokens : rec.tokens,
           chunk.n_tokens * sizeof *chunk.tokens);
    memcpy(rec.text, chunk.text, chunk.text_len);
    if (rec.cursor > rec.from && write(out, &rec, sizeof rec) != sizeof rec)
        _exit(6);
    return chunk.ended;
}

static void run_client(int life, const struct client *have, int out)
{
    struct latent_options o = { .endpoint = endpoint, .connect_ms = 1000 * PATIENCE_S };
    struct latent_stream streams[CLIENTS];
    struct latent_error e;
    struct latent *c;

    if (latent_connect(&c, &o, &e))
        _exit(2);
    for (int k = 0; k < CLIENTS; k++) {
        struct latent_request r;
        char id[32], text[1024];
        write_prompt(text, sizeof text, k);
        (void)snprintf(id, sizeof id, "life%d-c%d", life, k);
        latent_request_init(&r);
        r.id = id;
        r.text = text;
        r.text_len = strlen(text);
        r.max_tokens = FEWEST + MORE * k;
        r.has_seed = r.ignore_eos = 1;
        r.seed = (uint64_t)k; /* as in round 0 */
        if (latent_submit(c, &r, NULL, &e))
            _exit(4);
        latent_stream_init(&streams[k], id, (uint64_t)have[k].cursor);
    }
    for (int left = CLIENTS; left > 0;) {
        left = 0;
        for (int k = 0; k < CLIENTS; k++)
            left += !tell(c, &streams[k], k, out);
    }
    _exit(0);
}

/* One life of a client, which is killed at some moment if it may be.  Returns 1 if it was. */
static int client_life(int life, struct client *c, int may_kill)
{
    struct record rec;
    int fd[2], status, all = CLIENTS, come = 0;
    struct moment kill_at = some_moment(60);
    double until = clock_seconds() + PATIENCE_S;

    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(fd[0]);
        run_client(life, c, fd[1]);
    }
    close(fd[1]);
    while (all > 0) {
        struct pollfd p = { .fd = fd[0], .events = POLLIN };
        (void)poll(&p, 1, 2);
        if (may_kill && is_due(&kill_at, come))
            (void)kill(pid, SIGKILL);
        if (clock_seconds() > until)
            fail_msg("no end of a client after %d s", PATIENCE_S);
        if (p.revents && read(fd[0], &rec, sizeof rec) != sizeof rec)
            break;
        if (p.revents) {
            take(c, &rec);
            come = 1;
        }
        all = 0;
        for (int k = 0; k < CLIENTS; k++)
            all += !c[k].ended;
    }
    close(fd[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        fail_msg("a client left with status %d", WEXITSTATUS(status));
    return WIFSIGNALED(status);
}

static void a_killed_client_loses_nothing(void **state)
{
    static struct client calm[CLIENTS], harmed[CLIENTS];
    int status;
    (void)state;

    srand(7);
    (void)run_round(0, calm, NO_HARM, 0);
    (void)system("rm -rf state");
    pid_t pid = start_daemon();
    for (int done = 0, life = 0; done < n_kills; life++) {
        for (int left = CLIENTS; left > 0;) {
            done += client_life(life, harmed, done < n_kills);
            left = 0;
            for (int k = 0; k < CLIENTS; k++)
                left += !harmed[k].ended;
        }
        same_streams(harmed, calm);
        clients_free(harmed);
    }
    (void)kill(pid, SIGTERM);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    clients_free(calm);
    (void)system("rm -rf state");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_daemon_loses_nothing),
        cmocka_unit_test(a_killed_rank_loses_nothing),
        cmocka_unit_test(a_full_disk_loses_nothing),
        cmocka_unit_test(a_killed_client_loses_nothing),
    };

    if (argc != 3)
        return 2;
    daemon_program = argv[1];
    (void)snprintf(rank_program, sizeof rank_program, "%s-rank", daemon_program);
    const char *count = getenv("LATENTD_KILLS");
    n_kills = atoi(count ? count : argv[2]);
    log_set_program("latentd");
    log_set_quiet(getenv("LATENTD_TEST_LOG") == NULL);
    return cmocka_run_group_tests_name("daemon/kills", tests, temp_dir_enter, temp_dir_remove);
}
