/* SPDX-License-Identifier: MIT */
/* placement/report_explain.c - one tensor: which rule or reason, and all its parts. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "placement/report_parts.h"

static int find_tensor(const struct plan *p, const char *name)
{
    for (int i = 0; i < p->n_tensors; i++)
        if (!strcmp(p->tensors[i].t->name, name))
            return i;
    return -1;
}

static const char *nearest_name(const struct plan *p, const char *name)
{
    const char *best = "";
    int least = INT_MAX;

    for (int i = 0; i < p->n_tensors; i++) { /* ".weight" is often left out */
        int begins = *name && strncmp(p->tensors[i].t->name, name, strlen(name)) == 0;
        int d = begins ? 0 : str_distance(name, p->tensors[i].t->name);
        if (d < least) {
            least = d;
            best = p->tensors[i].t->name;
        }
    }
    return best;
}

static void put_rules_of(struct str *out, const struct report *r, int tensor)
{
    int taken = r->match->rule_of[tensor];
    char label[256];

    for (int i = 0; i < r->rules->n; i++) {
        if (!match_alone(r->match, i, tensor))
            continue;
        rule_label(r->rules, i, label, sizeof label);
        str_puts(out, "  matches   ");
        str_printable(out, label, strlen(label), 84);
        if (i == taken && r->rules->v[i].origin == RULE_HOT) {
            str_puts(out, "\n            and leaves it to the planner, frequent experts first\n");
            continue;
        }
        str_puts(out, i == taken ? "\n            and takes it: it is the first that matches\n"
                                 : "\n            too late: an earlier rule has the tensor\n");
        if (i == taken && r->plan->tensors[tensor].rule != i)
            str_puts(out, "            but it is not obeyed here, for the reason below\n");
    }
    if (taken < 0)
        str_puts(out, "  no rule matches it: the planner chooses\n");
}

static void put_parts(struct str *out, const struct plan *p, int tensor)
{
    char file[32], memory[32];
    int64_t total = 0;
    int n = 0;

    for (int i = 0; i < p->n_parts; i++) {
        const struct plan_part *part = &p->parts[i];
        const struct plan_device *d = &p->devices[part->device];
        struct str slice = { 0 };
        if (part->tensor != tensor)
            continue;
        if (n++ == 0)
            str_printf(out, "  %-10s %5s %5s %10s %10s  %s\n", "device", "host", "rank", "in file",
                       "in memory", "slice");
        report_slice(&slice, p, part);
        str_printf(out, "  %-10s %5d %5d %10s %10s  %.48s%s\n", d->name, d->host, d->rank,
                   str_bytes(file, sizeof file, (double)part->file_bytes),
                   str_bytes(memory, sizeof memory, (double)part->memory_bytes),
                   slice.data ? slice.data : "", slice.len > 48 ? " .." : "");
        str_free(&slice);
        total += part->memory_bytes;
    }
    if (n == 0)
        str_puts(out, "  it is not loaded\n");
    else
        str_printf(out, "  %d part%s, %" PRId64 " bytes in memory\n", n, n == 1 ? "" : "s", total);
}

enum err_code report_explain(struct str *out, const struct report *r, const char *tensor,
                             struct err *e)
{
    const struct plan *p = r->plan;
    int i = find_tensor(p, tensor);

    if (i < 0)
        return err_set(e, ERR_USAGE,
                       "--explain %.100s: the file has no such tensor; the nearest "
                       "name is %.100s",
                       tensor, nearest_name(p, tensor));
    const struct plan_tensor *t = &p->tensors[i];
    str_printable(out, t->t->name, strlen(t->t->name), 90);
    str_printf(out, "\n  %s, %s [", report_group_names[report_group_of(t)],
               quant_info[t->t->type].name);
    for (int d = 0; d < t->t->n_dims; d++)
        str_printf(out, d ? " x %" PRId64 : "%" PRId64, t->t->dim[d]);
    str_printf(out, "], %" PRId64 " bytes in the file\n", (int64_t)t->t->bytes);
    put_rules_of(out, r, i);
    str_puts(out, "  placed    ");
    str_printf(out, "%s\n", t->reason);
    put_parts(out, p, i);
    return ERR_OK;
}
