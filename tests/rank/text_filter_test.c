/* SPDX-License-Identifier: MIT */
/* tests/rank/text_filter_test.c - what comes out depends on the bytes, not on how they are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "rank/text_filter.h"

#define FFFD "\xEF\xBF\xBD"

struct one {
    const char *stops[4];
    const char *text, *want;
    int stopped;
};

static int count(const char *const *stops)
{
    int n = 0;

    while (n < 4 && stops[n])
        n++;
    return n;
}

static struct text_filter *filter_of(const char *const *stops)
{
    struct text_filter *f = NULL;

    assert_int_equal(text_filter_create(&f, stops, count(stops), NULL), ERR_OK);
    return f;
}

static int is_whole(const char *text, size_t n)
{
    /* Only called on output that is valid in full: it is cut well if no character is open. */
    size_t i = 0;

    while (i < n) {
        uint8_t c = (uint8_t)text[i];
        i += c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    }
    return i == n;
}

/* Runs the text cut after a and after b bytes, checking what is shown after each push. */
static void run_cut(const struct one *c, size_t n, size_t a, size_t b)
{
    struct text_filter *f = filter_of(c->stops);
    const size_t at[] = { 0, a, b, n };
    struct str shown = { 0 };
    int stopped = 0;

    for (int i = 0; i < 3; i++) {
        stopped = text_filter_push(f, c->text + at[i], at[i + 1] - at[i], &shown);
        assert_true(is_whole(shown.data, shown.len));
        assert_true(shown.len <= strlen(c->want));
    }
    text_filter_flush(f, &shown);
    assert_int_equal(stopped, c->stopped);
    assert_int_equal(shown.len, strlen(c->want));
    assert_memory_equal(shown.data, c->want, shown.len);
    str_free(&shown);
    text_filter_free(&f);
}

static const struct one cases[] = {
    {{ 0 },                   "plain",                                 "plain",                                 0},
    { { 0 },                  "\xE4\xBD\xA0\xF0\x9F\x91\x8D\xD1\x89!", "\xE4\xBD\xA0\xF0\x9F\x91\x8D\xD1\x89!", 0},
 /* maximal parts: a lone continuation, cut characters, overlong, surrogate, beyond the end */
    { { 0 },                  "a\x80z",                                "a" FFFD "z",                            0},
    { { 0 },                  "a\xF0\x9F\x91",                         "a" FFFD,                                0},
    { { 0 },                  "\xE2\x5C",                              FFFD "\\",                               0},
    { { 0 },                  "\xC0\xAF",                              FFFD FFFD,                               0},
    { { 0 },                  "\xE0\x80\xAF",                          FFFD FFFD FFFD,                          0},
    { { 0 },                  "\xED\xA0\x80",                          FFFD FFFD FFFD,                          0},
    { { 0 },                  "\xF4\x90\x80\x80",                      FFFD FFFD FFFD FFFD,                     0},
    { { 0 },                  "\xF1\x80\x80\xE1\x80\xC2\x62",          FFFD FFFD FFFD "b",                      0},
    { { 0 },                  "\xF0\xF0\x9F\x91\x8D\xFF",              FFFD "\xF0\x9F\x91\x8D" FFFD,            0},
 /* stop strings */
    { { "END" },              "the END of it",                         "the ",                                  1},
    { { "END" },              "the EEND",                              "the E",                                 1},
    { { "END" },              "the EN",                                "the EN",                                0},
    { { "aab" },              "aaaaab.",                               "aaa",                                   1},
    { { "abab" },             "abaabab",                               "aba",                                   1},
    { { "\n", "Alice:" },     " Alice!",                               " Alice!",                               0},
    { { "TRE\nAAAAAAAA" },    "UNO DUE TRE",                           "UNO DUE TRE",                           0},
 /* the one that is complete first; at the same byte the longest */
    { { "abcdef", "cd" },     "xabcdef",                               "xab",                                   1},
    { { "d", "bcd", "cd" },   "abcd",                                  "a",                                     1},
    { { "abcX", "bcd" },      "abcd",                                  "a",                                     1},
    { { "abcX", "cY" },       "ababcZ",                                "ababcZ",                                0},
 /* characters that share a beginning with one of the stop string */
    { { "\xD1\x89\xD1\x91" }, "\xD1\x8A\xD1\x89\xD1\x91!",             "\xD1\x8A",                              1},
    { { "\xD1\x89\xD1\x91" }, "\xD1\x89\xD1\x89",                      "\xD1\x89\xD1\x89",                      0},
    { { "\xF0\x9F\x91\x8D" }, "\xF0\x9F\x91\x8E\xF0\x9F",              "\xF0\x9F\x91\x8E" FFFD,                 0},
    { { FFFD "." },           "a\x80.b",                               "a",                                     1},
};

static void every_cut_shows_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].text);
        for (size_t a = 0; a <= n; a++)
            for (size_t b = a; b <= n; b++)
                run_cut(&cases[i], n, a, b);
    }
}

static void nul_bytes_are_text(void **state)
{
    const char *stop[] = { "x" };
    struct text_filter *f = NULL;
    struct str shown = { 0 };

    (void)state;
    assert_int_equal(text_filter_create(&f, stop, 1, NULL), ERR_OK);
    assert_int_equal(text_filter_push(f, "a\0b\0x", 5, &shown), 1);
    assert_int_equal(shown.len, 4);
    assert_memory_equal(shown.data, "a\0b\0", 4);
    str_free(&shown);
    text_filter_free(&f);
}

static void text_comes_out_at_once_where_it_can(void **state)
{
    const char *stop[] = { "STOP", NULL, NULL, NULL };
    struct text_filter *f = filter_of(stop);
    struct str shown = { 0 };

    (void)state;
    text_filter_push(f, "go\xC3", 3, &shown);
    assert_int_equal(shown.len, 2);
    text_filter_push(f, "\xA9ST", 3, &shown);
    assert_int_equal(shown.len, 4); /* the character is whole; ST may become STOP */
    text_filter_push(f, "A", 1, &shown);
    assert_int_equal(shown.len, 7);
    text_filter_push(f, "STO", 3, &shown);
    assert_int_equal(shown.len, 7);
    assert_int_equal(text_filter_push(f, "P!", 2, &shown), 1);
    assert_int_equal(text_filter_push(f, "more", 4, &shown), 1);
    text_filter_flush(f, &shown);
    assert_int_equal(shown.len, 7);
    assert_memory_equal(shown.data, "go\xC3\xA9STA", 7);
    str_free(&shown);
    text_filter_free(&f);
}

/* The stop string stands at every place of a text over two letters, which is full of near
 * hits; the expected end is searched naively. */
static void stops_are_found_at_every_place(void **state)
{
    const char *const stops[] = { "abaab", "bbab", "aabb", NULL };
    char text[41];

    (void)state;
    srand(7);
    for (int round = 0; round < 2000; round++) {
        for (int i = 0; i < 40; i++)
            text[i] = (char)('a' + (rand() >> 8 & 1));
        text[40] = 0;
        size_t end = 41, begin = 40;
        for (int s = 0; s < 3; s++) {
            const char *hit = strstr(text, stops[s]);
            size_t len = strlen(stops[s]);
            if (!hit)
                continue;
            size_t at = (size_t)(hit - text);
            if (at + len < end || (at + len == end && at < begin)) {
                end = at + len;
                begin = at;
            }
        }
        struct text_filter *f = filter_of(stops);
        struct str shown = { 0 };
        int stopped = 0;
        for (size_t i = 0; i < 40;) {
            size_t n = 1 + (size_t)rand() % 6;
            n = n < 40 - i ? n : 40 - i;
            stopped = text_filter_push(f, text + i, n, &shown);
            i += n;
        }
        text_filter_flush(f, &shown);
        assert_int_equal(stopped, end <= 40);
        assert_int_equal(shown.len, begin);
        assert_memory_equal(shown.data, text, begin);
        str_free(&shown);
        text_filter_free(&f);
    }
}

/* 4 MB of one letter, a stop string of 100 kB that is always nearly there, one byte a push. */
static void a_long_near_hit_is_linear(void **state)
{
    enum { STOP = 100000, TEXT = 4000000 };
    char *stop = malloc(STOP + 1);
    struct text_filter *f = NULL;
    struct str shown = { 0 };
    clock_t begin = clock();

    (void)state;
    assert_non_null(stop);
    memset(stop, 'a', STOP);
    stop[STOP - 1] = 'b';
    stop[STOP] = 0;
    const char *stops[] = { stop };
    assert_int_equal(text_filter_create(&f, stops, 1, NULL), ERR_OK);
    for (int i = 0; i < TEXT; i++)
        text_filter_push(f, "a", 1, &shown);
    assert_int_equal(shown.len, TEXT - (STOP - 1));
    assert_int_equal(text_filter_push(f, "b", 1, &shown), 1);
    assert_int_equal(shown.len, TEXT - (STOP - 1));
    /* 0.1 s as built for release; a quadratic one needs minutes. */
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 20);
    str_free(&shown);
    text_filter_free(&f);
    free(stop);
}

static void bad_stops_are_refused(void **state)
{
    const char *const empty[] = { "ok", "", NULL, NULL };
    const char *const broken[] = { "ok\xC3", NULL, NULL, NULL };
    struct text_filter *f = NULL;
    struct err e;

    (void)state;
    assert_int_equal(text_filter_create(&f, empty, 2, &e), ERR_USAGE);
    assert_int_equal(text_filter_create(&f, broken, 1, &e), ERR_USAGE);
    assert_null(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_shows_the_same),
        cmocka_unit_test(nul_bytes_are_text),
        cmocka_unit_test(text_comes_out_at_once_where_it_can),
        cmocka_unit_test(stops_are_found_at_every_place),
        cmocka_unit_test(a_long_near_hit_is_linear),
        cmocka_unit_test(bad_stops_are_refused),
    };
    return cmocka_run_group_tests_name("rank/text_filter", tests, NULL, NULL);
}
