/* SPDX-License-Identifier: MIT */
/* tests/daemon/pages_test.c - references, the tree of contents, eviction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/pages.h"

static struct page_content content(int first, int n, int form)
{
    struct page_content c = { .n = n };

    for (int i = 0; i < n; i++) {
        c.tokens[i] = first + i;
        c.forms[i] = (uint8_t)form;
    }
    return c;
}

static int32_t take(struct pages *p)
{
    int must_zero;
    int32_t page = pages_take(p, &must_zero);

    assert_int_equal(must_zero, 0);
    return page;
}

static void a_page_is_free_again_without_references(void **state)
{
    struct pages *p = NULL;
    int z;
    (void)state;

    assert_int_equal(pages_create(&p, 2, 0, NULL), ERR_OK);
    int32_t a = take(p), b = take(p);
    assert_int_not_equal(a, b);
    assert_int_equal(pages_take(p, &z), -1);
    pages_hold(p, a);
    pages_drop(p, a);
    assert_int_equal(pages_available(p), 0);
    pages_drop(p, a);
    assert_int_equal(pages_available(p), 1);
    assert_int_equal(pages_cached(p), 0);
    assert_int_equal(take(p), a);
    pages_free(&p);
}

static void contents_are_found_along_the_path(void **state)
{
    struct pages *p = NULL;
    struct page_content first = content(0, 64, 0), second = content(100, 64, 0), w;
    int n;
    (void)state;

    assert_int_equal(pages_create(&p, 4, 0, NULL), ERR_OK);
    int32_t a = take(p), b = take(p);
    assert_int_equal(pages_enter(p, a, -1, &first), a);
    assert_int_equal(pages_enter(p, b, a, &second), b);
    pages_drop(p, b);
    pages_drop(p, a);
    assert_int_equal(pages_cached(p), 2);
    assert_int_equal(pages_find(p, -1, &first, &n), a);
    assert_int_equal(n, 64);
    assert_int_equal(pages_find(p, -1, &second, &n), -1); /* not at the root */
    w = content(100, 10, 0);
    assert_int_equal(pages_find(p, a, &w, &n), b);
    assert_int_equal(n, 10);
    w.tokens[7] = 5;
    assert_int_equal(pages_find(p, a, &w, &n), b);
    assert_int_equal(n, 7);
    w.tokens[0] = 5;
    assert_int_equal(pages_find(p, a, &w, &n), -1);
    pages_free(&p);
}

static void strict_reuse_compares_forms(void **state)
{
    struct page_content c = content(0, 64, 0), other = content(0, 64, 1);
    int n;
    (void)state;

    for (int strict = 0; strict < 2; strict++) {
        struct pages *p = NULL;
        assert_int_equal(pages_create(&p, 4, strict, NULL), ERR_OK);
        int32_t a = take(p);
        pages_enter(p, a, -1, &c);
        assert_int_equal(pages_find(p, -1, &other, &n), strict ? -1 : a);
        pages_free(&p);
    }
}

static void what_two_computed_is_kept_once(void **state)
{
    struct pages *p = NULL;
    struct page_content c = content(0, 64, 0), part = content(0, 20, 0);
    (void)state;

    assert_int_equal(pages_create(&p, 4, 0, NULL), ERR_OK);
    int32_t a = take(p), b = take(p), d = take(p);
    assert_int_equal(pages_enter(p, a, -1, &c), a);
    assert_int_equal(pages_enter(p, b, -1, &c), a); /* b is given back, a has two references */
    assert_int_equal(pages_used(p), 2);
    assert_int_equal(pages_enter(p, d, -1, &part), d);
    pages_drop(p, d);
    assert_int_equal(pages_cached(p), 0); /* it added nothing */
    pages_drop(p, a);
    assert_int_equal(pages_used(p), 1);
    pages_drop(p, a);
    assert_int_equal(pages_cached(p), 1);
    pages_free(&p);
}

static void the_oldest_leaf_goes_first(void **state)
{
    struct pages *p = NULL;
    struct page_content c = content(0, 64, 0), d = content(100, 64, 0), other = content(200, 64, 0);
    int n;
    (void)state;

    assert_int_equal(pages_create(&p, 3, 0, NULL), ERR_OK);
    int32_t a = take(p), b = take(p), x = take(p);
    pages_enter(p, a, -1, &c);
    pages_enter(p, b, a, &d);
    pages_enter(p, x, -1, &other);
    pages_drop(p, b);
    pages_drop(p, a);
    pages_drop(p, x);
    assert_int_equal(take(p), b); /* the child */
    assert_int_equal(pages_find(p, a, &d, &n), -1);
    assert_int_equal(pages_find(p, -1, &c, &n), a);
    assert_int_equal(take(p), a);
    assert_int_equal(pages_find(p, -1, &other, &n), x);
    pages_free(&p);
}

static void what_is_spoiled_is_never_found_and_zeroed(void **state)
{
    struct pages *p = NULL;
    struct page_content c = content(0, 64, 0), d = content(100, 64, 0);
    int n, zero_a, zero_b;
    (void)state;

    assert_int_equal(pages_create(&p, 2, 0, NULL), ERR_OK);
    int32_t a = take(p), b = take(p);
    pages_enter(p, a, -1, &c);
    pages_enter(p, b, a, &d);
    pages_spoil(p, a);
    assert_int_equal(pages_find(p, -1, &c, &n), -1);
    assert_int_equal(pages_enter(p, a, -1, &c), a); /* has no effect */
    assert_int_equal(pages_find(p, -1, &c, &n), -1);
    pages_drop(p, b);
    pages_drop(p, a);
    assert_int_equal(pages_cached(p), 0);
    int32_t first = pages_take(p, &zero_a), second = pages_take(p, &zero_b);
    assert_int_equal(first == a ? zero_a : zero_b, 1);
    assert_int_equal(second == a ? zero_a : zero_b, 0);
    pages_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_free_again_without_references),
        cmocka_unit_test(contents_are_found_along_the_path),
        cmocka_unit_test(strict_reuse_compares_forms),
        cmocka_unit_test(what_two_computed_is_kept_once),
        cmocka_unit_test(the_oldest_leaf_goes_first),
        cmocka_unit_test(what_is_spoiled_is_never_found_and_zeroed),
    };
    return cmocka_run_group_tests_name("daemon/pages", tests, NULL, NULL);
}
