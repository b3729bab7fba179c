/* SPDX-License-Identifier: MIT */
/* tests/model/vectors.h - reads golden vectors: one JSON object a line. */
#ifndef TESTS_MODEL_VECTORS_H
#define TESTS_MODEL_VECTORS_H

#include <jansson.h>
#include <stdio.h>

/* Calls check(arg, object) for every line of the file; returns how many there were, or -1
 * if the file cannot be read. */
static inline int each_vector(const char *path, void (*check)(void *arg, const json_t *vector),
                              void *arg)
{
    FILE *f = fopen(path, "r");
    json_error_t error;
    json_t *vector;
    int n = 0;

    if (!f)
        return -1;
    while ((vector = json_loadf(f, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &error))) {
        check(arg, vector);
        json_decref(vector);
        n++;
    }
    fclose(f);
    return n;
}

#endif
