/* /proc/self/cgroup names the group of each hierarchy: one for version 2, without controllers, and
 * in version 1 one for each controller or two. In a container that sees its host's names the group
 * is the mount's own root; so groups that do not exist are skipped, up to that root. */
#include "base/cgroup.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FOLDER_MAX = 4096, LINE_MAX_BYTES = 4096 + 256 };

/* Reads the limit in a group's own files; INFINITY for no limit, or no file. */
typedef double (*limit_fn)(const char *folder, bool is_v2);

static bool cgroup_read_line(char *line, int size, const char *folder, const char *name)
{
    char path[FOLDER_MAX + 64];
    FILE *in;
    bool is_read;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    in = fopen(path, "re");
    is_read = in != NULL && fgets(line, size, in) != NULL;
    if (in != NULL)
        (void)fclose(in);
    return is_read;
}

/* INFINITY for no number or none above 0: "max", "-1". */
static double number(const char *text)
{
    char *end;
    double x = strtod(text, &end);

    return end > text && x > 0 ? x : (double)INFINITY;
}

static double cpus_of(const char *folder, bool is_v2)
{
    char allowed[64], period[64];
    const char *space;

    if (!cgroup_read_line(allowed, sizeof(allowed), folder, is_v2 ? "cpu.max" : "cpu.cfs_quota_us"))
        return (double)INFINITY;
    space = is_v2 ? strchr(allowed, ' ') : NULL;
    if (space != NULL)
        return number(allowed) / number(space);
    if (is_v2 || !cgroup_read_line(period, sizeof(period), folder, "cpu.cfs_period_us"))
        return (double)INFINITY;
    return number(allowed) / number(period);
}

static double memory_of(const char *folder, bool is_v2)
{
    char line[64];

    return cgroup_read_line(line, sizeof(line), folder,
                            is_v2 ? "memory.max" : "memory.limit_in_bytes")
               ? number(line)
               : (double)INFINITY;
}

/* controllers is a list: "cpu,cpuacct". */
static bool has_controller(const char *controllers, const char *name)
{
    const size_t len = strlen(name);

    for (const char *at = controllers; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, len) == 0 && (at[len] == ',' || at[len] == '\0'))
            return true;
    }
    return false;
}

static double least_above(char *folder, size_t mount_len, bool is_v2, limit_fn limit_of)
{
    double least = (double)INFINITY;
    char *slash;

    for (;;) {
        least = fmin(least, limit_of(folder, is_v2));
        slash = strrchr(folder + mount_len, '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

static double least_of(const char *root, const char *controller, limit_fn limit_of)
{
    char line[LINE_MAX_BYTES], folder[FOLDER_MAX], proc[FOLDER_MAX];
    double least = (double)INFINITY;
    FILE *in;

    (void)snprintf(proc, sizeof(proc), "%s/proc/self/cgroup", root);
    in = fopen(proc, "re");
    if (in == NULL)
        return least;
    while (fgets(line, sizeof(line), in) != NULL) { /* "4:cpu,cpuacct:/system.slice" */
        char *controllers = strchr(line, ':');
        char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        size_t mount_len, len;
        bool is_v2;

        if (group == NULL)
            continue;
        *controllers++ = *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        is_v2 = *controllers == '\0';
        if (!is_v2 && !has_controller(controllers, controller))
            continue;
        mount_len = (size_t)snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s%s", root,
                                     is_v2 ? "" : "/", is_v2 ? "" : controller);
        len = strlen(group);
        if (mount_len + len >= sizeof(folder))
            continue;
        memcpy(folder + mount_len, group, len + 1);
        least = fmin(least, least_above(folder, mount_len, is_v2, limit_of));
    }
    (void)fclose(in);
    return least;
}

double cgroup_cpus(const char *root)
{
    return least_of(root, "cpu", cpus_of);
}

size_t cgroup_memory_bytes(const char *root)
{
    double least = least_of(root, "memory", memory_of);

    return least < (double)SIZE_MAX ? (size_t)least : SIZE_MAX;
}
