/* SPDX-License-Identifier: MIT */
/* model/gguf_override.c - replaces or adds single metadata records: `KEY=TYPE:VALUE`.
 *
 * A new value is spelled as it would lie in a file, in a small allocation that the
 * gguf keeps, so that nobody who reads it sees a difference but the flag.
 */
#include "model/gguf.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "model/gguf_part.h"

struct gguf_override {
    struct gguf_override *next;
    char bytes[]; /* the value, then the key */
};

/* ---- The text ----------------------------------------------------------- */

/* A number in file form.  ERR_USAGE if `text` is none. */
static enum err_code parse_int(const char *text, uint8_t *out)
{
    char *end;

    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || isspace((unsigned char)*text))
        return ERR_USAGE;
    memcpy(out, &v, sizeof v);
    return ERR_OK;
}

static enum err_code parse_float(const char *text, uint8_t *out)
{
    char *end;

    errno = 0;
    double v = strtod(text, &end);
    if (errno == ERANGE || end == text || *end || isspace((unsigned char)*text) || !(v - v == 0))
        return ERR_USAGE;
    memcpy(out, &v, sizeof v);
    return ERR_OK;
}

static enum err_code parse_bool(const char *text, uint8_t *out)
{
    *out = strcmp(text, "true") == 0;
    return *out || strcmp(text, "false") == 0 ? ERR_OK : ERR_USAGE;
}

struct kind {
    const char *name;
    enum gguf_type type;
    enum err_code (*parse)(const char *text, uint8_t *out); /* NULL: the text itself */
    const char *want;
};

static const struct kind kinds[] = {
    {"int",    GGUF_I64,    parse_int,   "a whole number"},
    { "float", GGUF_F64,    parse_float, "a number"      },
    { "bool",  GGUF_BOOL,   parse_bool,  "true or false" },
    { "str",   GGUF_STRING, NULL,        NULL            },
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* KEY=TYPE:VALUE, borrowed from the text. */
struct spec {
    struct gguf_string key;
    const struct kind *kind;
    const char *value;
};

static enum err_code parse_spec(const char *text, struct spec *out, struct err *e)
{
    const char *equals = strchr(text, '='), *colon = equals ? strchr(equals, ':') : NULL;
    int k = 0;

    if (!equals || equals == text || !colon)
        return err_set(e, ERR_USAGE,
                       "override %s: want KEY=TYPE:VALUE with type int, float, bool or str",
                       gguf_quote(gguf_text(text)).text);
    size_t len = (size_t)(colon - equals - 1);
    while (k < N_KINDS &&
           (strlen(kinds[k].name) != len || memcmp(equals + 1, kinds[k].name, len) != 0))
        k++;
    if (k == N_KINDS)
        return err_set(e, ERR_USAGE, "override %s: unknown type %s; want int, float, bool or str",
                       gguf_quote(gguf_text(text)).text,
                       gguf_quote((struct gguf_string){ equals + 1, len }).text);
    *out = (struct spec){
        {text, (size_t)(equals - text)},
        &kinds[k], colon + 1
    };
    return ERR_OK;
}

/* Keys that were used up when the file was opened. */
static int describes_file(struct gguf_string key)
{
    static const char alignment[] = "general.alignment", split[] = "split.";

    return (key.len == sizeof alignment - 1 && memcmp(key.data, alignment, key.len) == 0) ||
           (key.len >= sizeof split - 1 && memcmp(key.data, split, sizeof split - 1) == 0);
}

/* ---- The records -------------------------------------------------------- */

/* An empty record for `key`, which must outlive it.  NULL: no memory. */
static struct gguf_kv *add_record(struct gguf_part *p, struct gguf_string key)
{
    size_t n = (size_t)p->n_kv + 1;
    struct gguf_kv *kv = realloc(p->kv, n * sizeof *kv);
    if (kv)
        p->kv = kv;
    struct gguf_name *keys = realloc(p->keys, n * sizeof *keys);
    if (keys)
        p->keys = keys;
    if (!kv || !keys)
        return NULL;

    int at = -1 - gguf_names_find(keys, p->n_kv, key);
    memmove(keys + at + 1, keys + at, (size_t)(p->n_kv - at) * sizeof *keys);
    keys[at] = (struct gguf_name){ key, p->n_kv };
    kv[p->n_kv] = (struct gguf_kv){ .key = key };
    return &kv[p->n_kv++];
}

/* The value in file form and the key, kept by g.  NULL: no memory. */
static struct gguf_override *keep(struct gguf *g, const struct spec *s, struct gguf_string *key)
{
    size_t len = strlen(s->value), value_bytes = sizeof(uint64_t) + (s->kind->parse ? 0 : len);
    struct gguf_override *o = malloc(sizeof *o + value_bytes + s->key.len);

    if (!o)
        return NULL;
    o->next = g->overrides;
    g->overrides = o;
    if (!s->kind->parse) {
        uint64_t stored = len;
        memcpy(o->bytes, &stored, sizeof stored);
        memcpy(o->bytes + sizeof stored, s->value, len);
    }
    memcpy(o->bytes + value_bytes, s->key.data, s->key.len);
    *key = (struct gguf_string){ o->bytes + value_bytes, s->key.len };
    return o;
}

enum err_code gguf_override(struct gguf *g, const char *spec, struct err *e)
{
    struct gguf_quoted shown = gguf_quote(gguf_text(spec));
    struct gguf_string key;
    struct spec s = { gguf_text(spec), kinds, "" };

    TRY(parse_spec(spec, &s, e));
    if (describes_file(s.key))
        return err_set(e, ERR_USAGE,
                       "override %s: this key describes the file and can't be changed", shown.text);
    struct gguf_override *o = keep(g, &s, &key);
    if (!o)
        return err_set(e, ERR_NOMEM, "override %s: no memory", shown.text);
    if (s.kind->parse && s.kind->parse(s.value, (uint8_t *)o->bytes))
        return err_set(e, ERR_USAGE, "override %s: the value is not %s", shown.text, s.kind->want);

    struct gguf_kv *kv = gguf_part_find(&g->parts[0], key);
    if (!kv) {
        if (!(kv = add_record(&g->parts[0], key)))
            return err_set(e, ERR_NOMEM, "override %s: no memory", shown.text);
        log_info("override %s: the file has no such key, so it is added", shown.text);
    }
    kv->value = (struct gguf_value){ .type = s.kind->type, .data = (const uint8_t *)o->bytes };
    kv->overridden = 1;
    if (gguf_set_architecture(g, NULL))
        return err_set(e, ERR_USAGE, "override %s: this is not the name of an architecture",
                       shown.text);
    return ERR_OK;
}

void gguf_free_overrides(struct gguf *g)
{
    while (g->overrides) {
        struct gguf_override *o = g->overrides;
        g->overrides = o->next;
        free(o);
    }
}
