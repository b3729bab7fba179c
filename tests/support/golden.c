/* SPDX-License-Identifier: MIT */
#include "tests/support/golden.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int npy_read(struct npy *out, const char *path)
{
    FILE *f = fopen(path, "rb");
    unsigned char head[10];
    char text[4096] = "";
    long long rows, cols;
    int rc = -1;

    *out = (struct npy){ 0 };
    if (!f)
        return -1;
    if (fread(head, 1, 10, f) != 10 || memcmp(head, "\x93NUMPY\x01\x00", 8) != 0)
        goto out;
    size_t n = (size_t)head[8] | (size_t)head[9] << 8;
    if (n >= sizeof text || fread(text, 1, n, f) != n || !strstr(text, "'<f4'"))
        goto out;
    const char *shape = strstr(text, "'shape': (");
    if (!shape || sscanf(shape, "'shape': (%lld, %lld)", &rows, &cols) != 2)
        goto out;
    out->rows = rows;
    out->cols = cols;
    out->data = malloc((size_t)(rows * cols) * sizeof(float));
    if (!out->data ||
        fread(out->data, sizeof(float), (size_t)(rows * cols), f) != (size_t)(rows * cols))
        goto out;
    rc = 0;
out:
    fclose(f);
    if (rc) {
        free(out->data);
        out->data = NULL;
    }
    return rc;
}

double relative_error(const float *a, const float *b, int64_t n)
{
    double diff = 0, norm = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        diff += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(diff / norm);
}

int32_t *prompt_read(const char *name, int64_t *n)
{
    json_t *root = json_load_file(TEST_DATA "/logits/prompts.json", 0, NULL);
    json_t *ids = root ? json_object_get(root, name) : NULL;
    int32_t *out = NULL;

    *n = (int64_t)json_array_size(ids);
    if (*n > 0)
        out = malloc((size_t)*n * sizeof *out);
    for (int64_t i = 0; out && i < *n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    json_decref(root);
    return out;
}

static const char *find_fixture(const char *own, const char *shared, const char *name)
{
    static char paths[4][1024];
    static int next;
    char *path = paths[next++ % 4];
    const char *fixtures = getenv("LATENTD_FIXTURES");

    snprintf(path, sizeof paths[0], "%s/%s/%s", TEST_DATA, own, name);
    if (access(path, R_OK) == 0)
        return path;
    if (!fixtures)
        return NULL;
    snprintf(path, sizeof paths[0], "%s/%s/%s", fixtures, shared, name);
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *fixture_model(const char *name)
{
    return find_fixture("models", "models", name);
}

const char *fixture_golden(const char *name)
{
    return find_fixture(".", "golden", name);
}
