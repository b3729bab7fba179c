/* SPDX-License-Identifier: MIT */
/* tests/placement/docs_test.c - the tables of docs/placement.md against those they are made of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/str.h"
#include "placement/efficiency.h"

static struct str page;

static int read_page(void **state)
{
    char piece[4096];
    size_t n;
    FILE *f = fopen(TEST_DATA "/../../docs/placement.md", "r");

    (void)state;
    if (!f)
        return -1;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        str_append(&page, piece, n);
    return fclose(f);
}

static int drop_page(void **state)
{
    (void)state;
    str_free(&page);
    return 0;
}

static void page_has(const char *line)
{
    const char *at = strstr(page.data, line);

    if (!at || at[-1] != '\n')
        fail_msg("docs/placement.md lacks the line '%s'", line);
}

/* ---- Devices ------------------------------------------------------------- */

static void gpu_rows(void **state)
{
    static const struct {
        const char *name;
        int n[7];
    } rows[] = {
#define GPU(name, ...) { name, { __VA_ARGS__ } },
#define MEM(name, rate)
#include "placement/devices.def"
#undef GPU
#undef MEM
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str line = { 0 };
        str_printf(&line, "| %s |", rows[i].name);
        for (int k = 0; k < 7; k++)
            str_printf(&line, " %d |", rows[i].n[k]);
        str_puts(&line, "\n");
        page_has(line.data);
        str_free(&line);
    }
}

static void memory_kinds(void **state)
{
    struct str line = { 0 };

    (void)state;
#define GPU(name, ...)
#define MEM(name, rate) str_printf(&line, ", %s %.1f", name, rate);
#include "placement/devices.def"
#undef GPU
#undef MEM
    assert_non_null(strstr(page.data, line.data + 2));
    str_free(&line);
}

/* ---- Engines --------------------------------------------------------------- */

static const char *const engines[] = {
#define ENGINE(name, ...) name,
#include "placement/efficiency.def"
#undef ENGINE
};

static void engine_row(const char *what, const char *format, size_t offset)
{
    struct str line = { 0 };

    str_printf(&line, "| %s |", what);
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        const char *engine = (const char *)efficiency_by_name(engines[i]);
        char cell[16];
        double value;
        memcpy(&value, engine + offset, sizeof value);
        snprintf(cell, sizeof cell, format, value);
        str_printf(&line, " %s |", cell);
    }
    str_puts(&line, "\n");
    page_has(line.data);
    str_free(&line);
}

static void engine_rows(void **state)
{
#define ROW(what, format, field) engine_row(what, format, offsetof(struct efficiency, field))
    (void)state;
    ROW("host bandwidth", "%.2f", host_bw);
    ROW("of what further NUMA nodes add", "%.2f", numa);
    ROW("int8 rate, one column", "%.2f", host_few);
    ROW("int8 rate, 64 columns and more", "%.2f", host_many);
    ROW("of one column, codebook types", "%.2f", codebook);
    ROW("int8 rate, attention on the host", "%.2f", attention);
    ROW("GPU bandwidth", "%.2f", gpu_bw);
    ROW("GPU bf16 rate", "%.2f", gpu_rate);
    ROW("us a layer, host", "%.0f", host_us);
    ROW("us a layer, GPU", "%.0f", gpu_us);
    ROW("us a crossing", "%.0f", crossing_us);
#undef ROW
}

static void engine_choices(void **state)
{
    struct str names = { 0 }, serial = { 0 }, upload = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        const struct efficiency *x = efficiency_by_name(engines[i]);
        str_printf(&names, " %s |", engines[i]);
        str_printf(&serial, " %s |", x->serial ? "yes" : "no");
        if (x->upload)
            str_printf(&upload, " %d |", x->upload);
        else
            str_puts(&upload, " never |");
    }
    assert_non_null(strstr(page.data, names.data));
    assert_non_null(strstr(page.data, serial.data));
    assert_non_null(strstr(page.data, upload.data));
    str_free(&names);
    str_free(&serial);
    str_free(&upload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpu_rows),
        cmocka_unit_test(memory_kinds),
        cmocka_unit_test(engine_rows),
        cmocka_unit_test(engine_choices),
    };
    return cmocka_run_group_tests_name("placement/docs", tests, read_page, drop_page);
}
