/* SPDX-License-Identifier: MIT */
/* placement/report_parts.h - what the forms of the report share; private to report_*.c. */
#ifndef PLACEMENT_REPORT_PARTS_H
#define PLACEMENT_REPORT_PARTS_H

#include "base/str.h"
#include "placement/cost.h"
#include "placement/report.h"

/* Kinds of tensors that people think in. */
enum report_group {
    GROUP_ATTENTION,
    GROUP_FFN,     /* dense */
    GROUP_SHARED,  /* shared experts */
    GROUP_EXPERTS, /* routed experts */
    GROUP_SMALL,   /* norms, routers */
    GROUP_ENDS,    /* embedding, output */
    GROUP_UNUSED,
    N_REPORT_GROUPS
};
extern const char *const report_group_names[N_REPORT_GROUPS];
enum report_group report_group_of(const struct plan_tensor *t);

/* The members of a device's account, in the order of the report. */
enum { N_DEVICE_PIECES = 6 };
extern const char *const report_piece_names[N_DEVICE_PIECES];
int64_t report_piece(const struct plan_device *d, int piece);

const char *report_phase_name(enum plan_phase phase);
double report_phase_us(const struct plan_predict *p, enum plan_phase phase);

/* "1.28 ms", "430 us"; returns buf. */
const char *report_time(char *buf, size_t size, double us);

/* "q8_0 0-15,32-47": the slice of a part. */
void report_slice(struct str *out, const struct plan *p, const struct plan_part *part);

/* The error text of rule r: its own, or the first finding about it; NULL if it has none. */
const char *report_rule_error(const struct report *r, int rule);

#endif
