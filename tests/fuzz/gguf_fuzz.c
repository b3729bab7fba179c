/* SPDX-License-Identifier: MIT */
/* tests/fuzz/gguf_fuzz.c - any bytes, read as a model file.
 *
 * The bytes lie in one memory file that every run rewrites.  They are opened as a whole
 * file and, the data then being allowed to be missing, as a header; whatever opens is
 * read completely, so that a length or offset that slipped through meets ASan.  At last
 * the vocabulary, the model's numbers and its tensors are looked for in it.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/model.h"
#include "model/tokenizer.h"

static unsigned sum; /* keeps the reads */

static void touch(const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum += ((const uint8_t *)data)[i];
}

static void read_value(const struct gguf_value *v)
{
    struct gguf_string s;
    int64_t whole;
    double number;
    int flag;

    if (gguf_as_i64(v, &whole) == 0)
        sum += (unsigned)whole;
    if (gguf_as_f64(v, &number) == 0)
        sum += number > 0;
    if (gguf_as_bool(v, &flag) == 0)
        sum += (unsigned)flag;
    if (gguf_as_string(v, &s) == 0)
        touch(s.data, s.len);
}

static void read_metadata(const struct gguf *g)
{
    for (int i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_value *v = &gguf_kv_at(g, i)->value;
        struct gguf_value element;
        read_value(v);
        if (v->type != GGUF_ARRAY)
            continue;
        const uint8_t *at = v->data;
        for (uint64_t k = 0; k < v->count && v->element == GGUF_STRING; k++) {
            struct gguf_string s = gguf_next_string(&at);
            touch(s.data, s.len);
        }
        if (v->count && gguf_element(v, v->count - 1, &element) == 0)
            read_value(&element);
    }
}

static void read_tensors(const struct gguf *g)
{
    uint8_t buf[64];

    for (int i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        uint64_t n = t->bytes < sizeof buf ? t->bytes : sizeof buf;
        if (gguf_tensor_find(g, t->name) != t)
            abort();
        if (gguf_read(g, t, t->bytes - n, buf, n, NULL) == ERR_OK)
            touch(buf, n);
    }
}

static void read_vocabulary(const struct gguf *g)
{
    static const char text[] = "Hello <s>\xFF 123";
    struct tokenizer *t = NULL;
    struct token_list l = { 0 };
    struct str back = { 0 };

    if (tokenizer_open(&t, g, NULL))
        return;
    tokenizer_encode(t, text, sizeof text, TOKENIZE_BOS | TOKENIZE_SPECIAL, &l, NULL);
    for (int id = -1; id <= tokenizer_size(t); id++)
        tokenizer_decode(t, id, 1, &back);
    str_free(&back);
    token_list_free(&l);
    tokenizer_close(&t);
}

static void read_file(const char *path, unsigned flags)
{
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (gguf_open(&g, path, flags, &e)) {
        if (e.msg[0] == 0 || strchr(e.msg, '\n'))
            abort();
        return;
    }
    read_metadata(g);
    read_tensors(g);
    read_vocabulary(g);
    gguf_override(g, "general.name=str:fuzz", NULL);
    gguf_override(g, "a=int:1", NULL);
    if (!gguf_find(g, "a"))
        abort();
    read_metadata(g);
    gguf_close(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char path[64];
    struct model *m = NULL;

    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);

    read_file(path, 0);
    read_file(path, GGUF_HEADERS_ONLY);
    model_open(&m, path, GGUF_HEADERS_ONLY, NULL, 0, NULL);
    model_close(&m);
    return 0;
}
