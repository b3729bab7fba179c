/* SPDX-License-Identifier: MIT */
/* model/settings.c - see settings.h. */
#include "model/settings.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { INT, REAL, FLAG, WORD, SHOWN };
enum need { REFUSED, COMPLETED };

static const struct setting_row {
    const char *key;
    enum kind kind;
    double low, high;
    enum need need;
} rows[SETTING_COUNT] = {
#define X(KEY, key, kind, low, high, need) { key, kind, low, high, need },
#include "model/hparams.def"
#undef X
};

const char *settings_key(enum setting_key k)
{
    return rows[k].key;
}

/* ---- From the file ------------------------------------------------------ */

/* The one value of an array whose elements are all equal, as bytes. */
static int uniform_element(const struct gguf_value *array, struct gguf_value *out)
{
    struct gguf_value first, other;

    if (array->element == GGUF_STRING || array->count == 0 || gguf_element(array, 0, &first) != 0)
        return -1;
    for (uint64_t i = 1; i < array->count; i++) {
        double a, b;
        if (gguf_element(array, i, &other) != 0)
            return -1;
        if (gguf_as_f64(&first, &a) != 0 || gguf_as_f64(&other, &b) != 0 || !(a == b))
            return -1;
    }
    *out = first;
    return 0;
}

static enum err_code read_number(const struct setting_row *row, const struct gguf_value *v,
                                 struct setting *out, const char *where, struct err *e)
{
    double number = 0;

    if (row->kind == REAL) {
        if (gguf_as_f64(v, &out->real) != 0)
            return err_set(e, ERR_FORMAT, "%s: is not a number; the file is not usable", where);
        number = out->real;
    } else {
        if (gguf_as_i64(v, &out->integer) != 0)
            return err_set(e, ERR_FORMAT, "%s: is not an integer; the file is not usable", where);
        number = (double)out->integer;
    }
    if (!(number >= row->low && number <= row->high)) /* false for NaN */
        return err_set(e, ERR_FORMAT,
                       "%s: is %.12g, outside %.12g..%.12g; correct it with --override-kv", where,
                       number, row->low, row->high);
    return ERR_OK;
}

static enum err_code read_row(const struct setting_row *row, const struct gguf_value *v,
                              struct setting *out, const char *where, struct err *e)
{
    struct gguf_value scalar = *v;
    struct gguf_string text;
    int flag;

    if (v->type == GGUF_ARRAY && uniform_element(v, &scalar) != 0)
        return err_set(e, ERR_FORMAT, "%s: is an array whose elements differ; one value is needed",
                       where);
    switch (row->kind) {
    case FLAG:
        if (gguf_as_bool(&scalar, &flag) != 0)
            return read_number(row, &scalar, out, where, e);
        out->integer = flag;
        return ERR_OK;
    case WORD:
        if (gguf_as_string(&scalar, &text) != 0 || text.len >= sizeof out->word ||
            memchr(text.data, 0, text.len))
            return err_set(e, ERR_FORMAT, "%s: is not a short string; the file is not usable",
                           where);
        memcpy(out->word, text.data, text.len);
        return ERR_OK;
    default:
        return read_number(row, &scalar, out, where, e);
    }
}

enum err_code settings_read(struct settings *s, const struct gguf *g, struct err *e)
{
    memset(s, 0, sizeof *s);
    s->gguf = g;
    for (int k = 0; k < SETTING_COUNT; k++) {
        const struct setting_row *row = &rows[k];
        const struct gguf_kv *kv = row->kind == SHOWN ? NULL : gguf_find_arch(g, row->key);
        char where[384];

        (void)snprintf(where, sizeof where, "%.256s: %s.%s", gguf_part_path(g, 0),
                       gguf_architecture(g), row->key);
        if (!kv && row->need == REFUSED)
            return err_set(e, ERR_FORMAT, "%s: is missing; give it with --override-kv", where);
        if (!kv)
            continue;
        TRY(read_row(row, &kv->value, &s->at[k], where, e));
        s->at[k].known = 1;
        s->at[k].source = kv->overridden ? HPARAM_OVERRIDDEN : HPARAM_FILE;
    }
    return ERR_OK;
}

/* ---- From elsewhere ----------------------------------------------------- */

static struct setting *renew(struct settings *s, enum setting_key k, enum hparam_source source,
                             const char *why, va_list args)
{
    struct setting *at = &s->at[k];

    memset(at, 0, sizeof *at);
    at->known = 1;
    at->source = source;
    (void)vsnprintf(at->why, sizeof at->why, why, args);
    return at;
}

void settings_set_int(struct settings *s, enum setting_key k, int64_t value,
                      enum hparam_source source, const char *why, ...)
{
    va_list args;
    va_start(args, why);
    renew(s, k, source, why, args)->integer = value;
    va_end(args);
}

void settings_set_real(struct settings *s, enum setting_key k, double value,
                       enum hparam_source source, const char *why, ...)
{
    va_list args;
    va_start(args, why);
    renew(s, k, source, why, args)->real = value;
    va_end(args);
}

void settings_set_word(struct settings *s, enum setting_key k, const char *value,
                       enum hparam_source source, const char *why, ...)
{
    struct setting *at;
    va_list args;
    va_start(args, why);
    at = renew(s, k, source, why, args);
    (void)snprintf(at->word, sizeof at->word, "%s", value);
    va_end(args);
}

/* ---- For the user ------------------------------------------------------- */

/* The shortest digits that read back as the same number, taking numbers that a float
 * holds as floats: 1e-06, not 9.99999997e-07. */
static void print_real(char *out, size_t size, double v)
{
    if (v == trunc(v) && fabs(v) < 1e15) {
        (void)snprintf(out, size, "%.0f", v);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        double back;
        (void)snprintf(out, size, "%.*g", digits, v);
        back = strtod(out, NULL);
        if (back == v || (v == (double)(float)v && (float)back == (float)v))
            return;
    }
}

enum err_code settings_notes(const struct settings *s, struct hparam_note **notes, int *n,
                             struct err *e)
{
    struct hparam_note *list = calloc(SETTING_COUNT, sizeof *list);
    int count = 0;

    if (!list)
        return err_set(e, ERR_NOMEM, "no memory for the list of hyper-parameters");
    for (int k = 0; k < SETTING_COUNT; k++) {
        const struct setting *at = &s->at[k];
        struct hparam_note *note = &list[count];
        if (!at->known)
            continue;
        (void)snprintf(note->key, sizeof note->key, "%s", rows[k].key);
        (void)snprintf(note->why, sizeof note->why, "%s", at->why);
        note->source = at->source;
        if (rows[k].kind == REAL)
            print_real(note->value, sizeof note->value, at->real);
        else if (rows[k].kind == INT)
            (void)snprintf(note->value, sizeof note->value, "%lld", (long long)at->integer);
        else
            (void)snprintf(note->value, sizeof note->value, "%s",
                           rows[k].kind == FLAG ? (at->integer ? "true" : "false") : at->word);
        count++;
    }
    *notes = list;
    *n = count;
    return ERR_OK;
}
