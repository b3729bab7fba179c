/* SPDX-License-Identifier: MIT */
/* placement/hot.c - see hot.h. */
#include "placement/hot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum err_code read_line(struct hot *h, unsigned char *seen, const char *path, int number,
                               const char *line, struct err *e)
{
    int layer, expert, end = 0;
    int64_t count;

    line += strspn(line, " \t\r\n");
    if (!*line || *line == '#')
        return ERR_OK;
    if (sscanf(line, "%d %d %" SCNd64 " %n", &layer, &expert, &count, &end) != 3 || line[end] ||
        count < 0)
        return err_set(e, ERR_USAGE, "%s:%d: not 'layer expert count'", path, number);
    if (layer < 0 || layer >= h->n_layers || expert < 0 || expert >= h->n_experts)
        return err_set(e, ERR_USAGE,
                       "%s:%d: no expert %d in layer %d; the model has %d layers of %d experts",
                       path, number, expert, layer, h->n_layers, h->n_experts);
    int64_t at = (int64_t)layer * h->n_experts + expert;
    if (seen[at]++)
        return err_set(e, ERR_USAGE, "%s:%d: expert %d of layer %d stands twice", path, number,
                       expert, layer);
    h->count[at] = count;
    return ERR_OK;
}

static enum err_code read_lines(struct hot *h, unsigned char *seen, const char *path, FILE *f,
                                struct err *e)
{
    char line[256];

    for (int number = 1; fgets(line, sizeof line, f); number++)
        TRY(read_line(h, seen, path, number, line, e));
    return ferror(f) ? err_sys(e, "%s: cannot be read", path) : ERR_OK;
}

enum err_code hot_read(struct hot *h, const char *path, int n_layers, int n_experts, struct err *e)
{
    size_t n = (size_t)n_layers * (size_t)(n_experts > 0 ? n_experts : 1);
    FILE *f = fopen(path, "r");

    *h = (struct hot){ .n_layers = n_layers, .n_experts = n_experts };
    if (!f)
        return err_sys(e, "%s: cannot open the expert frequencies", path);
    unsigned char *seen = calloc(n, 1);
    h->count = calloc(n, sizeof *h->count);
    enum err_code rc = seen && h->count ? read_lines(h, seen, path, f, e)
                                        : err_set(e, ERR_NOMEM, "no memory for expert frequencies");
    fclose(f);
    free(seen);
    if (rc != ERR_OK)
        hot_free(h);
    return rc;
}

void hot_free(struct hot *h)
{
    free(h->count);
    *h = (struct hot){ 0 };
}
