/* SPDX-License-Identifier: MIT */
#include "base/sysmem.h"

#include <stdio.h>
#include <string.h>

/* The sum of the numbers that stand behind these words in lines "WORD[:] NUMBER", in front of which
 * `before` words are left out.  -1: the file or all of the words are not there. */
static int64_t sum_of_words(const char *path, int before, const char *const *words)
{
    char line[256];
    int64_t sum = -1;
    FILE *f = fopen(path, "re");

    while (f && fgets(line, sizeof line, f)) {
        char word[64];
        long long v;
        int got = before ? sscanf(line, "%*s %*s %63[^: ]%*[: ]%lld", word, &v)
                         : sscanf(line, "%63[^: ]%*[: ]%lld", word, &v);
        for (int i = 0; got == 2 && words[i]; i++)
            if (strcmp(word, words[i]) == 0)
                sum = (sum < 0 ? 0 : sum) + v;
    }
    if (f)
        fclose(f);
    return sum;
}

/* "max" has no digits: no limit. */
static int64_t read_limit(const char *folder, const char *name)
{
    char path[1024];
    long long v = INT64_MAX;
    FILE *f;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "re");
    if (f && fscanf(f, "%lld", &v) != 1)
        v = INT64_MAX;
    if (f)
        fclose(f);
    return v;
}

/* How the two versions of control groups call the same things. */
static const struct dialect {
    const char *mark, *folder; /* of a line of /proc/self/cgroup; below its root */
    const char *max, *high, *current;
    const char *file_words[3];
} dialects[] = {
    {"0::",
     "",        "memory.max",
     "memory.high",           "memory.current",
     { "active_file", "inactive_file" }            },
    { ":memory:",
     "/memory", "memory.limit_in_bytes",
     "memory.limit_in_bytes", "memory.usage_in_bytes",
     { "total_active_file", "total_inactive_file" }},
};

static int64_t group_available(const struct dialect *d, const char *folder)
{
    int64_t max = read_limit(folder, d->max), high = read_limit(folder, d->high);
    int64_t used = read_limit(folder, d->current);
    char path[1024];

    max = high < max ? high : max;
    if (max == INT64_MAX || used == INT64_MAX)
        return INT64_MAX;
    (void)snprintf(path, sizeof path, "%s/memory.stat", folder);
    int64_t files = sum_of_words(path, 0, d->file_words);
    used -= files < 0 ? 0 : files < used ? files : used;
    return max > used ? max - used : 0;
}

int64_t sysmem_groups_available(const char *list, const char *root)
{
    char line[512], folder[768];
    int64_t least = INT64_MAX;
    FILE *f = fopen(list, "re");

    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        line[strcspn(line, "\n")] = 0;
        for (size_t i = 0; colon && i < sizeof dialects / sizeof *dialects; i++) {
            const struct dialect *d = &dialects[i];
            const char *at = d->mark[0] == ':' ? colon : line;
            if (strncmp(at, d->mark, strlen(d->mark)) != 0)
                continue;
            (void)snprintf(folder, sizeof folder, "%s%s%s", root, d->folder, at + strlen(d->mark));
            size_t top = strlen(root) + strlen(d->folder);
            for (char *end = folder + strlen(folder); end; end = strrchr(folder + top, '/')) {
                *end = 0;
                int64_t left = group_available(d, folder);
                least = left < least ? left : least;
            }
        }
    }
    if (f)
        fclose(f);
    return least;
}

int64_t sysmem_available(void)
{
    static const char *const word[] = { "MemAvailable", NULL };
    int64_t kib = sum_of_words("/proc/meminfo", 0, word);
    int64_t groups = sysmem_groups_available("/proc/self/cgroup", "/sys/fs/cgroup");
    int64_t machine = kib < 0 ? INT64_MAX : kib * 1024;

    return machine < groups ? machine : groups;
}

int64_t sysmem_node_available(int node)
{
    static const char *const words[] = { "MemFree", "Active(file)", "Inactive(file)",
                                         "SReclaimable", NULL };
    char path[64];

    (void)snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", node);
    int64_t kib = sum_of_words(path, 1, words);
    return kib < 0 ? 0 : kib * 1024;
}
