/* SPDX-License-Identifier: MIT */
/* tests/model/presplit_test.c - the pre-tokenizers: published pieces, bytes that are not
 * text, texts that would make a careless matcher quadratic or deep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/tokenizer.h"
#include "tests/model/vectors.h"

static const char *const names[] = { "deepseek-llm", "deepseek-coder", "deepseek-v3", "kimi-k2",
                                     "glm4",         "gigachat",       "tekken",      "kanana2" };
enum { N_NAMES = sizeof names / sizeof names[0] };

struct pieces {
    size_t n, end, longest;
    int gap; /* a piece was empty or did not start where the last one ended */
    size_t length[64];
};

static void collect(void *arg, size_t at, size_t n)
{
    struct pieces *p = arg;

    if (n == 0 || at != p->end)
        p->gap = 1;
    if (p->n < 64)
        p->length[p->n] = n;
    if (n > p->longest)
        p->longest = n;
    p->n++;
    p->end = at + n;
}

static struct pieces split(const char *name, const char *text, size_t n)
{
    struct pieces p = { 0 };
    struct err e = { 0 };

    if (presplit(name, text, n, collect, &p, &e) != ERR_OK)
        fail_msg("%s: %s", name, e.msg);
    if (p.gap || p.end != n)
        fail_msg("%s: pieces do not cover %zu bytes of text", name, n);
    return p;
}

/* ---- Published pieces --------------------------------------------------- */

struct expected {
    const char *name;
    const char *text;
    const json_t *pieces;
    size_t n;
};

static void compare(void *arg, size_t at, size_t n)
{
    struct expected *x = arg;
    const json_t *piece = json_array_get(x->pieces, x->n++);

    if (!piece || json_string_length(piece) != n ||
        memcmp(json_string_value(piece), x->text + at, n) != 0)
        fail_msg("%s: piece %zu of \"%s\" is \"%.*s\", want \"%s\"", x->name, x->n - 1, x->text,
                 (int)n, x->text + at, piece ? json_string_value(piece) : "(none)");
}

static void check_vector(void *arg, const json_t *vector)
{
    const json_t *text = json_object_get(vector, "text");
    struct expected x = { arg, json_string_value(text), json_object_get(vector, "pieces"), 0 };
    struct err e = { 0 };

    if (presplit(arg, x.text, json_string_length(text), compare, &x, &e) != ERR_OK)
        fail_msg("%s: %s", x.name, e.msg);
    assert_int_equal(x.n, json_array_size(x.pieces));
}

static void published_pieces(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        char path[512];
        snprintf(path, sizeof path, TEST_DATA "/presplit/%s.jsonl", names[i]);
        assert_int_equal(each_vector(path, check_vector, (void *)names[i]), 66);
    }
}

static void expect(const char *name, const char *text, const char *const *pieces)
{
    struct pieces p = split(name, text, strlen(text));
    size_t n = 0, at = 0;

    for (; pieces[n]; at += strlen(pieces[n]), n++)
        if (n >= p.n || p.length[n] != strlen(pieces[n]) ||
            memcmp(text + at, pieces[n], p.length[n]) != 0)
            fail_msg("%s: piece %zu of \"%s\" is not \"%s\"", name, n, text, pieces[n]);
    assert_int_equal(p.n, n);
}
#define EXPECT(name, text, ...) expect(name, text, (const char *const[]){ __VA_ARGS__, NULL })

/* What the published files do not cover. */
static void corner_cases(void **state)
{
    (void)state;
    /* A case change starts a word only behind a small letter; Han never joins one. */
    EXPECT("kimi-k2", "HelloWORLDs don'T漢字kana", "Hello", "WORLDs", " don'T", "漢字", "kana");
    EXPECT("tekken", "HelloWORLDs don't", "Hello", "WORLDs", " don", "'t");
    EXPECT("kanana2", "HelloWORLDs don'T", "Hello", "WORLDs", " don'T");
    EXPECT("kimi-k2", "\u0301AA", "\u0301", "AA"); /* the mark is prefix, capital or small */
    /* Only glm4 takes contractions of either case, and only before letters. */
    EXPECT("glm4", "I'M we'Ll '", "I", "'M", " we", "'Ll", " '");
    EXPECT("gigachat", "I'M we'll", "I", "'", "M", " we", "'ll");
    /* Blanks: all but the last, up to a line end, at the end. */
    EXPECT("glm4", "a  \n  b   ", "a", "  \n", " ", " b", "   ");
    EXPECT("gigachat", "a  \n  b   ", "a", "  \n ", " b", "   ");
    EXPECT("deepseek-llm", "1  2  ", "1", "  ", "2", "  ");
    EXPECT("deepseek-llm", "   1\t\t", "   ", "1", "\t\t");
    /* U+180E stopped being a blank in Unicode 6.3, U+0085 is one. */
    EXPECT("gigachat", "\u180E\u180E\xC2\x85\xC2\x85", "\u180E\u180E", "\xC2\x85\xC2\x85");
    EXPECT("tekken", "a//\n/b", "a", "//\n/", "b");
    EXPECT("glm4", "a//\n/b", "a", "//\n", "/b");
    EXPECT("deepseek-v3", "12345カ・タ.com x=1", "123", "45", "カ", "・", "タ", ".com", " x", "=",
           "1");
}

static void aliases_split_the_same(void **state)
{
    static const char *const pairs[][2] = {
        {"deepseek-v3",  "joyai-llm"    },
        { "deepseek-v3", "hunyuan-dense"},
        { "glm4",        "chatglm-bpe"  },
        { "gigachat",    "gpt-2"        },
        { "kanana2",     "gpt-4o"       }
    };
    const char text[] = "HelloWorld 12345 I'M  here/\n/漢字 don't";
    (void)state;

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct pieces a = split(pairs[i][0], text, sizeof text - 1);
        struct pieces b = split(pairs[i][1], text, sizeof text - 1);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.length, b.length, a.n * sizeof a.length[0]);
    }
}

static void unknown_names_are_told_the_known_ones(void **state)
{
    static const char *const unknown[] = { "",  "default", "llama-bpe",      "deepseek",
                                           " ", "gpt-2 x", "gigachat gpt-2", "gpt",
                                           "v3" };
    (void)state;

    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        struct pieces p = { 0 };
        struct err e = { 0 };
        assert_int_equal(presplit(unknown[i], "a", 1, collect, &p, &e), ERR_USAGE);
        for (int k = 0; k < N_NAMES; k++)
            assert_non_null(strstr(e.msg, names[k]));
        assert_non_null(strstr(e.msg, "give one of"));
    }
}

/* ---- Any bytes ---------------------------------------------------------- */

/* An invalid byte is a symbol of its own, as U+FFFD would be; a NUL is no letter. */
static void invalid_bytes_are_symbols(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        /* truncated, overlong, surrogate, too high, stray */
        const char bad[] = "ab\xE4\xBD cd\xC0\x80\xED\xA0\x80\xF4\x90\x80\x80\x80 e\xFF";
        const char good[] = "ab\uFFFD\uFFFD cd\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
                            "\uFFFD\uFFFD e\uFFFD";
        struct pieces a = split(names[i], bad, sizeof bad - 1);
        struct pieces b = split(names[i], good, sizeof good - 1);
        assert_int_equal(a.n, b.n);
        for (size_t k = 0, at = 0; k < a.n; at += b.length[k++]) {
            size_t n = b.length[k];
            for (size_t c = at; c + 2 < at + b.length[k]; c++)
                n -= memcmp(good + c, "\uFFFD", 3) == 0 ? 2 : 0;
            assert_int_equal(a.length[k], n);
        }
        split(names[i], "a\0b\0\0 \0", 7);
    }
}

static void random_bytes_are_covered(void **state)
{
    /* Bytes that meet the branches of the expressions; the rest are random. */
    static const char spice[] = "aA1 \n\r\t'./\xE4\xB8\xAD\xC3\xBC\xCC\x81\0";
    uint64_t seed = 1;
    char text[256];
    (void)state;

    for (int round = 0; round < 4000; round++) {
        size_t n = 0;
        while (n < sizeof text && (n == 0 || seed >> 60)) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[n++] = seed >> 63 ? (char)(seed >> 40) : spice[(seed >> 40) % sizeof spice];
        }
        split(names[round % N_NAMES], text, n);
    }
}

/* ---- Long texts --------------------------------------------------------- */

/* Quadratic time would take minutes for each of these, and recursion the stack. */
enum { LONG = 1 << 17, LONGER = 2 << 20 };

static void long_runs(void **state)
{
    static const char *const units[] = {
        "a",   "A",   " ",    "\n", " \n", "中",  "1",      "'",  "'s", "\u0301", "Aa",   "aA",
        "中A", "A中", "\xFF", "カ", " a",  "\t1", "\u3000", "\r", "/",  "'s ",    "ー・", "é"
    };
    static const char *const ends[] = { "", "1", "\n", "a", "\xFF" };
    char *text = malloc(LONG + 16);
    (void)state;

    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        size_t unit = strlen(units[u]), n = LONG / unit * unit;
        for (size_t at = 0; at < n; at += unit)
            memcpy(text + at, units[u], unit);
        for (size_t k = 0; k < sizeof ends / sizeof ends[0]; k++) {
            size_t length = n + strlen(ends[k]);
            if (n < length)
                memcpy(text + n, ends[k], length - n);
            split(names[(u + k) % N_NAMES], text, length);
        }
    }
    free(text);
}

/* Every pre-tokenizer on the three runs that real texts have. */
static void long_letters_and_blanks(void **state)
{
    char *text = malloc(LONGER + 1);
    (void)state;

    for (int i = 0; i < N_NAMES; i++) {
        memset(text, 'a', LONGER);
        assert_int_equal(split(names[i], text, LONGER).longest, LONGER);
        memset(text, ' ', LONGER);
        assert_int_equal(split(names[i], text, LONGER).longest, LONGER);
        text[LONGER] = '1';
        assert_true(split(names[i], text, LONGER + 1).longest >= LONGER - 1);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_pieces),
        cmocka_unit_test(corner_cases),
        cmocka_unit_test(aliases_split_the_same),
        cmocka_unit_test(unknown_names_are_told_the_known_ones),
        cmocka_unit_test(invalid_bytes_are_symbols),
        cmocka_unit_test(random_bytes_are_covered),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(long_letters_and_blanks),
    };
    return cmocka_run_group_tests_name("model/presplit", tests, NULL, NULL);
}
