/* SPDX-License-Identifier: MIT */
#include "base/sysmem.h"

#include <stdio.h>
#include <string.h>

static int64_t read_number(const char *path)
{
    long long v = -1;
    FILE *f = fopen(path, "re");

    if (!f)
        return -1;
    if (fscanf(f, "%lld", &v) != 1) /* "max" has no digits */
        v = -1;
    fclose(f);
    return v;
}

static int64_t meminfo_available(void)
{
    char line[256];
    long long kib = -1;
    FILE *f = fopen("/proc/meminfo", "re");

    if (!f)
        return INT64_MAX;
    while (kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld kB", &kib) != 1)
            kib = -1;
    fclose(f);
    return kib < 0 ? INT64_MAX : kib * 1024;
}

/* The memory controller's limit less its use, for the unified hierarchy (cgroup v2). */
static int64_t cgroup_available(void)
{
    char line[512], path[768];
    FILE *f = fopen("/proc/self/cgroup", "re");
    int64_t limit = -1, used = -1;

    if (!f)
        return INT64_MAX;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "0::", 3) != 0)
            continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", line + 3);
        limit = read_number(path);
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", line + 3);
        used = read_number(path);
    }
    fclose(f);
    return limit < 0 || used < 0 ? INT64_MAX : limit > used ? limit - used : 0;
}

int64_t sysmem_available(void)
{
    int64_t machine = meminfo_available(), group = cgroup_available();

    return machine < group ? machine : group;
}
