/* SPDX-License-Identifier: MIT */
/* tests/placement/plan_support.h - a model, a machine and rules, planned. */
#ifndef TESTS_PLACEMENT_PLAN_SUPPORT_H
#define TESTS_PLACEMENT_PLAN_SUPPORT_H

#include "placement/lint.h"
#include "placement/plan.h"
#include "support.h"

struct case_plan {
    struct model *model;
    struct inventory inventory;
    struct rules rules;
    struct match match;
    struct named_tensor *names;
    struct findings findings;
    struct plan_input in;
    struct plan plan;
};

static inline struct plan_options support_options(void)
{
    return (struct plan_options){
        .n_context = 4096, .n_sequences = 1, .ubatch = 512, .amb_mib = 256, .batch = 1
    };
}

/* Skips the test where a fixture is not there. */
static inline const char *support_fixture(const char *name, char *path, size_t size)
{
    const char *root = getenv("LATENTD_FIXTURES");

    if (!root) {
        print_message("skipped: LATENTD_FIXTURES is not set\n");
        skip();
    }
    snprintf(path, size, "%s/%s", root, name);
    return path;
}

static inline void support_open(struct case_plan *c, const char *path, const char *devices,
                                const char *rules)
{
    struct err e = { 0 };

    *c = (struct case_plan){ 0 };
    if (model_open(&c->model, path, GGUF_HEADERS_ONLY, NULL, 0, &e) != ERR_OK ||
        inventory_read(&c->inventory, devices, &e) != ERR_OK ||
        (rules && rules_add_text(&c->rules, "-ot", rules, &e) != ERR_OK))
        fail_msg("%s", e.msg);
    int n = gguf_tensor_count(c->model->gguf);
    c->names = calloc((size_t)n, sizeof *c->names);
    for (int i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(c->model->gguf, i);
        c->names[i] = (struct named_tensor){ t->name, (int64_t)t->bytes };
    }
    assert_int_equal(match_rules(&c->match, &c->rules, c->names, n, &c->findings, &e), ERR_OK);
    c->in = (struct plan_input){ .model = c->model,
                                 .inventory = &c->inventory,
                                 .rules = &c->rules,
                                 .match = &c->match,
                                 .opt = support_options() };
}

static inline void support_plan(struct case_plan *c)
{
    struct err e = { 0 };

    if (plan_make(&c->plan, &c->in, &c->findings, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

static inline void support_close(struct case_plan *c)
{
    plan_free(&c->plan);
    findings_free(&c->findings);
    match_free(&c->match);
    rules_free(&c->rules);
    inventory_free(&c->inventory);
    free(c->names);
    model_close(&c->model);
}

/* Every part of every tensor: what is sliced is there once, whatever the devices. */
static inline void support_check_complete(const struct case_plan *c)
{
    const struct plan *p = &c->plan;
    int64_t *weights = calloc((size_t)p->n_devices, sizeof *weights);

    assert_non_null(weights);
    for (int t = 0, i = 0; t < p->n_tensors; t++) {
        int64_t rows = 0, bytes = 0;
        int n_sliced = 0;
        for (; i < p->n_parts && p->parts[i].tensor == t; i++) {
            const struct plan_part *part = &p->parts[i];
            weights[part->device] += part->memory_bytes;
            assert_true(part->file_bytes > 0 && part->memory_bytes > 0);
            if (part->axis == AXIS_ALL)
                continue;
            n_sliced++;
            bytes += part->file_bytes;
            for (int r = 0; r < part->n_ranges; r++)
                rows +=
                    p->ranges[part->first_range + r].end - p->ranges[part->first_range + r].begin;
        }
        if (n_sliced > 0 && p->tensors[t].role != ROLE_TOKEN_EMBD) {
            assert_true(rows > 0);
            /* A slice of columns repeats the headers of its rows. */
            const struct gguf_tensor *g = p->tensors[t].t;
            int64_t again = (n_sliced - 1) * g->dim[1] * quant_info[g->type].header;
            assert_true(bytes == (int64_t)g->bytes || bytes == (int64_t)g->bytes + again);
        }
    }
    for (int d = 0; d < p->n_devices; d++)
        assert_int_equal(weights[d], p->devices[d].weights_bytes);
    free(weights);
}

#endif
