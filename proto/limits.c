/* SPDX-License-Identifier: MIT */
/* proto/limits.c - see limits.h. */
#include "proto/limits.h"

#include <string.h>

#include "proto/latentd.pb-c.h"

const struct field_limit field_limits[] = {
#define X(message, field, bytes, count) { &latentd__##message##__descriptor, #field, bytes, count },
#include "proto/limits.def"
#undef X
};
const int n_field_limits = sizeof field_limits / sizeof *field_limits;

const struct field_limit *field_limit_find(const ProtobufCMessageDescriptor *m,
                                           const ProtobufCFieldDescriptor *f)
{
    for (int i = 0; i < n_field_limits; i++)
        if (field_limits[i].message == m && strcmp(field_limits[i].field, f->name) == 0)
            return &field_limits[i];
    return NULL;
}
