/* SPDX-License-Identifier: MIT */
/* tests/rank/numeric_test.c - a weight that is no number ends the run and names its place.
 *
 * One value of a copy of a small model is replaced at a time.  Most meet a sum that is
 * checked anyway; those of the router only decide which expert loses, and those of the
 * output meet no sum at all.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "rank/engine.h"
#include "tests/support/temp_dir.h"

#define MODEL TEST_DATA "/models/tiny-v3-q4_k_m.gguf"

static const struct row {
    const char *tensor; /* of type F32 */
    float value;
    const char *place; /* in the message */
} rows[] = {
    {"blk.0.attn_norm.weight",       NAN,       "layer 0"   },
    { "blk.1.attn_kv_a_norm.weight", INFINITY,  "layer 1"   },
    { "blk.2.ffn_norm.weight",       NAN,       "layer 2"   },
    { "blk.1.ffn_gate_inp.weight",   NAN,       "layer 1"   },
    { "blk.1.ffn_gate_inp.weight",   INFINITY,  "layer 1"   },
    { "blk.2.exp_probs_b.bias",      NAN,       "layer 2"   },
    { "blk.2.exp_probs_b.bias",      INFINITY,  "layer 2"   },
    { "blk.2.exp_probs_b.bias",      -INFINITY, "layer 2"   },
    { "output_norm.weight",          NAN,       "the output"},
};

static const char path[] = "copy.gguf";

static int make_copy(void **state)
{
    char buf[1 << 16];
    size_t n;
    FILE *from = fopen(MODEL, "rbe"), *to = NULL;

    if (!from || temp_dir_enter(state) != 0 || !(to = fopen(path, "wbe")))
        return 1;
    while ((n = fread(buf, 1, sizeof buf, from)) > 0)
        if (fwrite(buf, 1, n, to) != n)
            return 1;
    (void)fclose(from);
    return fclose(to);
}

/* Writes the tensor's first value; gives what was there. */
static float poke(const char *tensor, float value)
{
    struct gguf *g = NULL;
    const struct gguf_tensor *t;
    float before;
    FILE *f = fopen(path, "r+be");

    assert_non_null(f);
    assert_int_equal(gguf_open(&g, path, 0, NULL), ERR_OK);
    t = gguf_tensor_find(g, tensor);
    assert_non_null(t);
    assert_int_equal(t->type, QUANT_F32);
    assert_int_equal(fseek(f, (long)t->offset, SEEK_SET), 0);
    assert_int_equal(fread(&before, sizeof before, 1, f), 1);
    assert_int_equal(fseek(f, (long)t->offset, SEEK_SET), 0);
    assert_int_equal(fwrite(&value, sizeof value, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    gguf_close(&g);
    return before;
}

static void ignore(void *arg, int64_t pos, const float *logits)
{
    (void)arg;
    (void)pos;
    (void)logits;
}

/* Loads the copy and feeds four tokens. */
static enum err_code feed(int exact, int check, enum cache_type cache, struct err *e)
{
    static const int32_t tokens[4] = { 0, 77, 78, 5 };
    struct engine_options o;
    struct model *m = NULL;
    struct engine *engine = NULL;
    enum err_code rc;

    engine_options_default(&o);
    o.n_threads = 2;
    o.n_context = 64;
    o.exact_math = exact;
    o.check_tensors = check;
    o.cache_type = cache;
    rc = model_open(&m, path, 0, NULL, 0, e);
    if (rc == ERR_OK)
        rc = engine_create(&engine, m, &o, e);
    if (rc == ERR_OK) {
        engine_begin(engine, 0, 4);
        rc = engine_feed(engine, 0, tokens, 4, ENGINE_LAST, ignore, NULL, e);
    }
    engine_free(&engine);
    model_close(&m);
    return rc;
}

static void assert_says(const struct err *e, const char *text, const struct row *r)
{
    if (!strstr(e->msg, text))
        fail_msg("%s = %g: '%s' lacks '%s'", r->tensor, (double)r->value, e->msg, text);
}

static void place_is_named(void **state)
{
    struct err e = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *r = &rows[i];
        float before = poke(r->tensor, r->value);
        assert_int_equal(feed(0, 0, CACHE_F16, &e), ERR_NUMERIC);
        assert_says(&e, r->place, r);
        assert_int_equal(feed(0, 0, CACHE_Q8_0, &e), ERR_NUMERIC);
        assert_int_equal(feed(1, 0, CACHE_F32, &e), ERR_NUMERIC);
        assert_says(&e, r->place, r);
        assert_int_equal(feed(0, 1, CACHE_F32, &e), ERR_FORMAT);
        assert_says(&e, r->tensor, r);
        (void)poke(r->tensor, before);
    }
    assert_int_equal(feed(0, 1, CACHE_F16, &e), ERR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(place_is_named),
    };
    return cmocka_run_group_tests(tests, make_copy, temp_dir_remove);
}
