/* SPDX-License-Identifier: MIT */
/* tests/fuzz/tokenizer_fuzz.c - any bytes, cut into pieces and encoded with every pre-tokenizer.
 *
 * The first byte chooses the pre-tokenizer (3 bits) and the flags of encoding; the rest
 * is the text.  Pieces must cover it, and the ids of a small vocabulary that knows every
 * byte must decode to it; control tokens may come only where they are asked for.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/support/small_vocab.h"

static const char *const names[] = { "deepseek-llm", "deepseek-coder", "deepseek-v3", "kimi-k2",
                                     "glm4",         "gigachat",       "tekken",      "kanana2" };
enum { N_NAMES = sizeof names / sizeof names[0] };

static const char *const merges[] = {
    "a a",  "aa aa", "Ġ a", "Ġ Ġ",  "ĠĠ ĠĠ", "t h", "th e", "Ġ the", "Ċ Ċ", "1 2",
    "12 3", "Ã ¼",   "ä ¸", "ä¸ Ń", "' s",   "s '", "x y",  "xy z",  "y z", NULL,
};
static const struct small_token more[] = {
    {"<s>",        3},
    { "</s>",      3},
    { "<|user|>",  4},
    { "<think>",   4},
    { "ü",        4},
    { "<|user|>x", 3},
    { "xyzzy",     4},
    { "zzyx",      4},
    { "<unk>",     2},
    { NULL,        0},
};

static void count_piece(void *arg, size_t at, size_t n)
{
    size_t *end = arg;

    if (at != *end || n == 0)
        abort();
    *end = at + n;
}

static struct tokenizer *open_vocabulary(const char *pre)
{
    struct tokenizer *t = NULL;
    struct small_vocab v = { .pre = pre, .merges = merges, .more = more };
    char path[64];
    int fd = memfd_create("vocabulary", MFD_CLOEXEC);

    log_set_quiet(1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || small_vocab_open(&t, &v, path, NULL))
        abort();
    close(fd);
    return t;
}

static void round_trip(const struct tokenizer *t, const char *text, size_t n, unsigned flags)
{
    int control = (flags & TOKENIZE_SPECIAL) && !(flags & TOKENIZE_LITERAL);
    struct token_list l = { 0 };
    struct str back = { 0 };

    if (tokenizer_encode(t, text, n, flags, &l, NULL))
        abort();
    for (size_t i = 0; i < l.n; i++) {
        if (l.ids[i] < 0 || l.ids[i] >= tokenizer_size(t))
            abort();
        /* What is control shows nothing here, so that the text would come out shorter. */
        tokenizer_decode(t, l.ids[i], control, &back);
    }
    if (back.len != n || (n && memcmp(back.data, text, n) != 0))
        abort();
    str_free(&back);
    token_list_free(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *tokenizers[N_NAMES];
    size_t end = 0;

    if (size == 0)
        return 0;
    int k = data[0] % N_NAMES;
    const char *text = (const char *)data + 1;
    if (!tokenizers[k])
        tokenizers[k] = open_vocabulary(names[k]);
    if (presplit(names[k], text, size - 1, count_piece, &end, NULL) || end != size - 1)
        abort();
    round_trip(tokenizers[k], text, size - 1, data[0] / N_NAMES % 8);
    return 0;
}
