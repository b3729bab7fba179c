/* SPDX-License-Identifier: MIT */
/* tests/model/tokenizer_test.c - the small models' ids, merging against a naive copy, tokens
 * inside text, bytes that are not text, files that are wrong.  Other vocabularies:
 * tokenizer_golden_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "tests/model/vectors.h"
#include "tests/support/small_vocab.h"
#include "tests/support/temp_dir.h"

static const char path[] = "vocab.gguf";

static struct tokenizer *open_small(const struct small_vocab *v)
{
    struct tokenizer *t = NULL;
    struct err e = { 0 };

    if (small_vocab_open(&t, v, path, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return t;
}

static struct tokenizer *open_tiny(void)
{
    struct tokenizer *t = NULL;
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (gguf_open(&g, TEST_DATA "/models/tiny-v3-q4_k_m.gguf", 0, &e) || tokenizer_open(&t, g, &e))
        fail_msg("%s", e.msg);
    gguf_close(&g); /* a tokenizer keeps nothing of it */
    return t;
}

static struct token_list encode(const struct tokenizer *t, const char *text, size_t n,
                                unsigned flags)
{
    struct token_list l = { 0 };
    struct err e = { 0 };

    if (tokenizer_encode(t, text, n, flags, &l, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return l;
}

static void expect(const struct tokenizer *t, const char *text, unsigned flags, const int32_t *ids,
                   size_t n)
{
    struct token_list l = encode(t, text, strlen(text), flags);

    for (size_t i = 0; i < l.n && i < n; i++)
        if (l.ids[i] != ids[i])
            fail_msg("token %zu of \"%s\" is %d, want %d", i, text, l.ids[i], ids[i]);
    assert_int_equal(l.n, n);
    token_list_free(&l);
}
#define EXPECT(t, text, flags, ...)                          \
    expect(t, text, flags, (const int32_t[]){ __VA_ARGS__ }, \
           sizeof((const int32_t[]){ __VA_ARGS__ }) / sizeof(int32_t))

static void expect_round_trip(const struct tokenizer *t, const char *text, size_t n)
{
    struct token_list l = encode(t, text, n, 0);
    struct str back = { 0 };

    for (size_t i = 0; i < l.n; i++)
        tokenizer_decode(t, l.ids[i], 0, &back);
    assert_int_equal(back.len, n);
    if (n)
        assert_memory_equal(back.data, text, n);
    str_free(&back);
    token_list_free(&l);
}

/* ---- The small models --------------------------------------------------- */

static void check_vector(void *arg, const json_t *vector)
{
    const json_t *text = json_object_get(vector, "text"), *ids = json_object_get(vector, "ids");
    struct token_list l = encode(arg, json_string_value(text), json_string_length(text), 0);

    assert_int_equal(l.n, json_array_size(ids));
    for (size_t i = 0; i < l.n; i++)
        if (l.ids[i] != json_integer_value(json_array_get(ids, i)))
            fail_msg("token %zu of \"%s\" is %d", i, json_string_value(text), l.ids[i]);
    token_list_free(&l);
    expect_round_trip(arg, json_string_value(text), json_string_length(text));
}

static void tiny_ids(void **state)
{
    struct tokenizer *t = open_tiny();
    (void)state;

    assert_int_equal(each_vector(TEST_DATA "/tokenizer/tiny.jsonl", check_vector, t), 66);
    assert_int_equal(tokenizer_size(t), 4096);
    assert_int_equal(tokenizer_bos(t), 0);
    assert_int_equal(tokenizer_eos(t), 1);
    assert_true(tokenizer_adds_bos(t));
    assert_string_equal(tokenizer_pre(t), "deepseek-v3");
    assert_int_equal(tokenizer_find(t, "<｜Assistant｜>"), 4092);
    assert_int_equal(tokenizer_find(t, "<｜Nobody｜>"), -1);
    assert_int_equal(tokenizer_find(t, ""), -1);
    tokenizer_close(&t);
    assert_null(t);
}

static void any_bytes_round_trip(void **state)
{
    struct tokenizer *t = open_tiny();
    uint64_t seed = 7;
    char text[300];
    (void)state;

    expect_round_trip(t, "", 0);
    for (int round = 0; round < 2000; round++) {
        size_t n = (size_t)(round % (int)sizeof text);
        for (size_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[i] = seed >> 62 ? (char)(seed >> 40) : "e t\n"[seed >> 60];
        }
        expect_round_trip(t, text, n);
    }
    tokenizer_close(&t);
}

/* Quadratic time would take hours. */
static void long_texts_round_trip(void **state)
{
    enum { LONG = 2 << 20 };
    static const char *const units[] = { "a", " ", "\n", "中", "\xFF", "e'\0 \xE4" };
    struct tokenizer *t = open_tiny();
    char *text = malloc(LONG);
    (void)state;

    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        size_t unit = u == 5 ? 5 : strlen(units[u]), n = LONG / unit * unit;
        for (size_t at = 0; at < n; at += unit)
            memcpy(text + at, units[u], unit);
        expect_round_trip(t, text, n);
    }
    free(text);
    tokenizer_close(&t);
}

/* ---- Merging ------------------------------------------------------------ */

static void merges_go_by_rank(void **state)
{
    /* 256: bc, 257: ab, 258: aa, 259: aaaa, 260: abc (never: ab comes after bc) */
    static const char *const merges[] = { "b c", "a b", "a a", "aa aa", "ab c", NULL };
    struct tokenizer *t = open_small(&(struct small_vocab){ .merges = merges });
    (void)state;

    EXPECT(t, "abc", 0, 'a', 256);
    assert_int_equal(tokenizer_find(t, "abc"), 260);
    EXPECT(t, "abd", 0, 257, 'd');
    EXPECT(t, "aaa", 0, 258, 'a'); /* leftmost first */
    EXPECT(t, "aaaaaaa", 0, 259, 258, 'a');
    EXPECT(t, "aab", 0, 'a', 257);
    tokenizer_close(&t);
}

/* The same by the book: the best pair of all, again and again. */
static size_t merge_naively(const char *const *merges, char (*symbol)[16], size_t n)
{
    for (;;) {
        size_t best = (size_t)-1, place = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            char pair[40];
            snprintf(pair, sizeof pair, "%.15s %.15s", symbol[i], symbol[i + 1]);
            for (size_t rank = 0; merges[rank] && rank < best; rank++)
                if (strcmp(merges[rank], pair) == 0) {
                    best = rank;
                    place = i;
                }
        }
        if (best == (size_t)-1)
            return n;
        memcpy(symbol[place] + strlen(symbol[place]), symbol[place + 1],
               strlen(symbol[place + 1]) + 1);
        memmove(symbol + place + 1, symbol + place + 2, (n - place - 2) * sizeof *symbol);
        n--;
    }
}

static void merging_is_as_by_the_book(void **state)
{
    static const char *const merges[] = { "a b", "b b",    "ab a", "c a",  "bb bb",
                                          "a a", "ca ca",  "b ab", "aa c", "ab c",
                                          "c c", "abc ab", "bb c", "cc a", NULL };
    struct tokenizer *t = open_small(&(struct small_vocab){ .merges = merges });
    uint64_t seed = 3;
    (void)state;

    for (int round = 0; round < 3000; round++) {
        char text[24] = "", symbol[24][16] = { "" };
        size_t n = (size_t)round % 23 + 1;
        for (size_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[i] = symbol[i][0] = "abc"[(seed >> 33) % 3];
        }
        struct token_list l = encode(t, text, n, 0);
        assert_int_equal(l.n, merge_naively(merges, symbol, n));
        for (size_t i = 0; i < l.n; i++)
            assert_int_equal(l.ids[i], tokenizer_find(t, symbol[i]));
        token_list_free(&l);
    }
    tokenizer_close(&t);
}

static void symbols_without_token_become_bytes(void **state)
{
    /* 257: the two bytes of é; 258: a second "aa" */
    static const char *const merges[] = { "a a", "Ã ©", NULL };
    static const char *const control[] = { "< s", "<s >", NULL };
    static const struct small_token more[] = {
        {"aa",  1},
        { NULL, 0}
    };
    struct tokenizer *t = open_small(&(struct small_vocab){ .merges = merges, .more = more });
    (void)state;

    EXPECT(t, "aaé", 0, 258, 257); /* of two tokens with one text the later counts */
    EXPECT(t, "\xC3", 0, 0xC3);
    EXPECT(t, "\xAD\xFF", 0, 0xAD, 0xFF);
    tokenizer_close(&t);

    /* Text never becomes a control token, not by merges either. */
    t = open_small(&(struct small_vocab){
        .pre = "gigachat",
        .merges = control,
        .more = (const struct small_token[]){{ "<s>", 3 }, { NULL, 0 }}
    });
    EXPECT(t, "<s>", 0, '<', 's', '>');
    tokenizer_close(&t);
}

/* Letters a to c, "abc" but not "ab", and merges over that gap. */
static void gaps_in_the_vocabulary(void **state)
{
    const struct gguf_string tokens[] = {
        {"a",    1},
        { "b",   1},
        { "c",   1},
        { "abc", 3}
    };
    const struct gguf_string merges[] = {
        {"a b",   3},
        { "ab c", 4}
    };
    struct tokenizer *t = NULL;
    struct gguf_writer *w = NULL;
    struct gguf *g = NULL;
    (void)state;

    assert_int_equal(gguf_writer_create(&w, path, NULL), ERR_OK);
    gguf_write_string(w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_write_string(w, "tokenizer.ggml.pre", "gpt-2", 5);
    gguf_write_strings(w, "tokenizer.ggml.tokens", tokens, 4);
    gguf_write_strings(w, "tokenizer.ggml.merges", merges, 2);
    assert_int_equal(gguf_writer_finish(&w, NULL), ERR_OK);
    assert_int_equal(gguf_open(&g, path, 0, NULL), ERR_OK);
    assert_int_equal(tokenizer_open(&t, g, NULL), ERR_OK);
    EXPECT(t, "abc", 0, 3);
    EXPECT(t, "abab", 0, 0, 1, 0, 1);
    EXPECT(t, "axb c", 0, 0, 1, 2); /* bytes that have no token are left out */
    tokenizer_close(&t);
    gguf_close(&g);
}

static void whole_pieces_come_first(void **state)
{
    /* 258: "abcd", which no merge makes */
    static const char *const merges[] = { "a b", "b c", NULL };
    static const struct small_token more[] = {
        {"abcd", 1},
        { "Ġ!", 3},
        { NULL,  0}
    };
    struct tokenizer *t =
        open_small(&(struct small_vocab){ .pre = "tekken", .merges = merges, .more = more });
    (void)state;

    EXPECT(t, "abcd", 0, 258);
    EXPECT(t, "abcde", 0, 256, 'c', 'd', 'e');
    EXPECT(t, " !", 0, ' ', '!'); /* but never as a control token */
    tokenizer_close(&t);
    t = open_small(&(struct small_vocab){ .merges = merges, .more = more });
    EXPECT(t, "abcd", 0, 256, 'c', 'd');
    tokenizer_close(&t);
}

/* ---- Tokens inside text ------------------------------------------------- */

enum { FIRST = 257 }; /* behind the letters and "aa" */

static void tokens_in_text(void **state)
{
    static const struct small_token more[] = {
        {"<ctl>",      3},
        { "<think>",   4},
        { "ü",        4},
        { "<|user|>",  4},
        { "xy",        4},
        { "xyz",       4},
        { "xyzw",      3},
        { "<unk>",     2},
        { "yza",       4},
        { "[PAD1]",    5},
        { "<｜U｜>", 4},
        { NULL,        0},
    };
    enum { CTL = FIRST, THINK, UE, USER, XY, XYZ, XYZW, UNK, YZA, PAD, WIDE };
    struct tokenizer *t = open_small(&(struct small_vocab){ .more = more });
    (void)state;

    /* User-defined always, also inside words; control where asked for. */
    EXPECT(t, "a<think>a", 0, 'a', THINK, 'a');
    EXPECT(t, "füa", 0, 'f', UE, 'a');
    EXPECT(t, "\xFC", 0, 0xFC); /* whose letter is ü, but not the token */
    EXPECT(t, "<ctl>", 0, '<', 'c', 't', 'l', '>');
    EXPECT(t, "<ctl><unk>", TOKENIZE_SPECIAL, CTL, UNK);
    EXPECT(t, "[PAD1]", TOKENIZE_SPECIAL, '[', 'P', 'A', 'D', '1', ']');
    /* Markers of turns not where a person wrote the text. */
    EXPECT(t, "<|user|><｜U｜>", 0, USER, WIDE);
    EXPECT(t, "<think><|user|>", TOKENIZE_LITERAL, THINK, '<', '|', 'u', 's', 'e', 'r', '|', '>');
    EXPECT(t, "<ctl>", TOKENIZE_LITERAL | TOKENIZE_SPECIAL, '<', 'c', 't', 'l', '>');
    /* The leftmost, and of those the longest that is allowed. */
    EXPECT(t, "xyzw", 0, XYZ, 'w');
    EXPECT(t, "xyzw", TOKENIZE_SPECIAL, XYZW);
    EXPECT(t, "xyza", 0, XYZ, 'a');
    EXPECT(t, "yxyza yza", 0, 'y', XYZ, 'a', ' ', YZA);
    EXPECT(t, "xx", 0, 'x', 'x');
    tokenizer_close(&t);
}

static void bos_as_the_file_says(void **state)
{
    static const struct small_token more[] = {
        {"<bos>", 3},
        { NULL,   0}
    };
    static const char *const add[] = { "tokenizer.ggml.bos_token_id=int:257",
                                       "tokenizer.ggml.add_bos_token=bool:true", NULL };
    static const char *const id_only[] = { "tokenizer.ggml.bos_token_id=int:257", NULL };
    static const char *const beyond[] = { "tokenizer.ggml.bos_token_id=int:258",
                                          "tokenizer.ggml.add_bos_token=bool:true", NULL };
    enum { BOS = FIRST };
    struct tokenizer *t = open_small(&(struct small_vocab){ .more = more, .keys = add });
    (void)state;

    EXPECT(t, "a", TOKENIZE_BOS, BOS, 'a');
    EXPECT(t, "", TOKENIZE_BOS, BOS);
    EXPECT(t, "a", 0, 'a');
    EXPECT(t, "<bos>a", TOKENIZE_BOS | TOKENIZE_SPECIAL, BOS, 'a'); /* not twice */
    EXPECT(t, "<bos>", TOKENIZE_BOS, BOS, '<', 'b', 'o', 's', '>');
    tokenizer_close(&t);

    t = open_small(&(struct small_vocab){ .more = more, .keys = id_only });
    EXPECT(t, "a", TOKENIZE_BOS, 'a');
    tokenizer_close(&t);
    t = open_small(&(struct small_vocab){ .pre = "tekken", .more = more, .keys = id_only });
    EXPECT(t, "a", TOKENIZE_BOS, BOS, 'a');
    tokenizer_close(&t);
    t = open_small(&(struct small_vocab){ .more = more, .keys = beyond });
    EXPECT(t, "a", TOKENIZE_BOS, 'a');
    assert_int_equal(tokenizer_bos(t), -1);
    assert_int_equal(tokenizer_eos(t), -1);
    tokenizer_close(&t);
}

static void ends(void **state)
{
    static const struct small_token more[] = {
        {"<e>",         3},
        { "<|im_end|>", 4},
        { "<|user|>",   3},
        { "<t>",        3},
        { "<f>",        3},
        { "<|other|>",  3},
        { NULL,         0}
    };
    static const char *const keys[] = { "tokenizer.ggml.eos_token_id=int:257",
                                        "tokenizer.ggml.eot_token_id=int:260",
                                        "tokenizer.ggml.fim_pad_token_id=int:261",
                                        "tokenizer.ggml.eom_token_id=int:-1", NULL };
    enum { EOS = FIRST, IM_END, USER, EOT, FIM, OTHER };
    struct tokenizer *t = open_small(&(struct small_vocab){ .more = more, .keys = keys });
    (void)state;

    assert_true(tokenizer_is_end(t, EOS));
    assert_true(tokenizer_is_end(t, IM_END));
    assert_true(tokenizer_is_end(t, EOT));
    assert_true(tokenizer_is_end(t, FIM));
    assert_false(tokenizer_is_end(t, USER));
    assert_false(tokenizer_is_end(t, OTHER));
    assert_false(tokenizer_is_end(t, 'a'));
    assert_false(tokenizer_is_end(t, -1));
    assert_false(tokenizer_is_end(t, 1000));
    /* What ends an answer is control, whatever the file calls it. */
    EXPECT(t, "<|im_end|>", TOKENIZE_SPECIAL, IM_END);
    struct token_list l = encode(t, "<|im_end|>", 10, 0);
    assert_int_equal(l.n, 10);
    token_list_free(&l);
    tokenizer_close(&t);

    t = open_small(&(struct small_vocab){ .pre = "chatglm-bpe", .more = more, .keys = keys });
    assert_true(tokenizer_is_end(t, USER));
    tokenizer_close(&t);
}

/* ---- Decoding ----------------------------------------------------------- */

static void expect_decoded(const struct tokenizer *t, int32_t id, int show, const char *text)
{
    struct str s = { 0 };

    tokenizer_decode(t, id, show, &s);
    assert_int_equal(s.len, strlen(text));
    if (s.len)
        assert_memory_equal(s.data, text, s.len);
    str_free(&s);
}

static void decoding_by_type(void **state)
{
    static const struct small_token more[] = {
        {"<ctl>",      3},
        { "ü",        4},
        { "[PAD]",     5},
        { "<0x0A>",    6},
        { "<0xZZ>",    6},
        { "Ġü漢",   1},
        { "<unk>",     2},
        { "undefined", 0},
        { "",          1},
        { NULL,        0}
    };
    struct tokenizer *t = open_small(&(struct small_vocab){ .more = more });
    int32_t id = FIRST;
    (void)state;

    expect_decoded(t, id, 0, "");
    expect_decoded(t, id++, 1, "<ctl>");
    expect_decoded(t, id++, 0, "ü");
    expect_decoded(t, id++, 1, "");
    expect_decoded(t, id++, 0, "\n");
    expect_decoded(t, id++, 0, "");
    expect_decoded(t, id++, 0, " \xFC漢"); /* letters; what is no letter stays */
    expect_decoded(t, id++, 0, "");
    expect_decoded(t, id++, 0, "undefined");
    expect_decoded(t, id++, 0, "");
    expect_decoded(t, id, 1, "");
    expect_decoded(t, -1, 1, "");
    expect_decoded(t, INT32_MAX, 1, "");
    tokenizer_close(&t);
}

/* ---- Files that are wrong ----------------------------------------------- */

static void refused(const char *const *keys, enum err_code code, const char *why)
{
    struct tokenizer *t = NULL;
    struct err e = { 0 };

    assert_int_equal(small_vocab_open(&t, &(struct small_vocab){ .keys = keys }, path, &e), code);
    assert_null(t);
    if (!strstr(e.msg, why))
        fail_msg("\"%s\" does not say \"%s\"", e.msg, why);
}
#define REFUSED(code, why, ...) refused((const char *const[]){ __VA_ARGS__, NULL }, code, why)

static void wrong_keys_are_refused(void **state)
{
    (void)state;
    REFUSED(ERR_UNSUPPORTED, "\"llama\": not in this version", "tokenizer.ggml.model=str:llama");
    REFUSED(ERR_FORMAT, "tokenizer.ggml.model", "tokenizer.ggml.model=int:1");
    REFUSED(ERR_FORMAT, "tokenizer.ggml.pre: not a string", "tokenizer.ggml.pre=int:1");
    REFUSED(ERR_UNSUPPORTED, "--override-kv tokenizer.ggml.pre=str:deepseek-v3",
            "tokenizer.ggml.pre=str:default");
    REFUSED(ERR_UNSUPPORTED, "known are deepseek-llm", "tokenizer.ggml.pre=str:llama-bpe");
    REFUSED(ERR_FORMAT, "tokens: not an array of strings", "tokenizer.ggml.tokens=str:a");
    REFUSED(ERR_FORMAT, "merges: not an array of strings", "tokenizer.ggml.merges=int:0");
    REFUSED(ERR_FORMAT, "not an array of 257 types", "tokenizer.ggml.token_type=int:1");
    REFUSED(ERR_FORMAT, "add_bos_token: not a bool", "tokenizer.ggml.add_bos_token=str:yes");
}

/* A vocabulary of n tokens "a", and of m types of which the last is a float or not. */
static void refused_arrays(uint64_t n, enum gguf_type element, uint64_t m, const char *why)
{
    struct gguf_string a[4] = {
        {"a",  1},
        { "b", 1},
        { "c", 1},
        { "d", 1}
    };
    const float types[4] = { 1.5f, 1.5f, 1.5f, 1.5f };
    struct tokenizer *t = NULL;
    struct gguf_writer *w = NULL;
    struct gguf *g = NULL;
    struct err e = { 0 };

    assert_int_equal(gguf_writer_create(&w, path, NULL), ERR_OK);
    gguf_write_string(w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_write_string(w, "tokenizer.ggml.pre", "gpt-2", 5);
    gguf_write_strings(w, "tokenizer.ggml.tokens", a, n);
    if (m)
        gguf_write_array(w, "tokenizer.ggml.token_type", element, types, m);
    assert_int_equal(gguf_writer_finish(&w, NULL), ERR_OK);
    assert_int_equal(gguf_open(&g, path, 0, NULL), ERR_OK);
    assert_int_equal(tokenizer_open(&t, g, &e), ERR_FORMAT);
    if (!strstr(e.msg, why))
        fail_msg("\"%s\" does not say \"%s\"", e.msg, why);
    gguf_close(&g);
}

static void wrong_arrays_are_refused(void **state)
{
    (void)state;
    refused_arrays(0, GGUF_I32, 0, "tokens: 0 strings");
    refused_arrays(3, GGUF_I32, 2, "token_type: not an array of 3 types");
    refused_arrays(3, GGUF_I32, 4, "token_type: not an array of 3 types");
    refused_arrays(3, GGUF_F32, 3, "token_type[0]: not an integer");
    refused_arrays(3, GGUF_I32, 0, "merges: missing");
}

static void odd_merges_are_left_out(void **state)
{
    /* No blank, nothing behind it, nothing at all; the fourth starts with one: " " and "b". */
    static const char *const merges[] = { "ab", "a ", "", "  b", "b c", NULL };
    struct tokenizer *t = open_small(&(struct small_vocab){ .merges = merges });
    (void)state;

    EXPECT(t, "abc", 0, 'a', 257);
    tokenizer_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_ids),
        cmocka_unit_test(any_bytes_round_trip),
        cmocka_unit_test(long_texts_round_trip),
        cmocka_unit_test(merges_go_by_rank),
        cmocka_unit_test(merging_is_as_by_the_book),
        cmocka_unit_test(symbols_without_token_become_bytes),
        cmocka_unit_test(gaps_in_the_vocabulary),
        cmocka_unit_test(whole_pieces_come_first),
        cmocka_unit_test(tokens_in_text),
        cmocka_unit_test(bos_as_the_file_says),
        cmocka_unit_test(ends),
        cmocka_unit_test(decoding_by_type),
        cmocka_unit_test(wrong_keys_are_refused),
        cmocka_unit_test(wrong_arrays_are_refused),
        cmocka_unit_test(odd_merges_are_left_out),
    };
    return cmocka_run_group_tests_name("model/tokenizer", tests, temp_dir_enter, temp_dir_remove);
}
