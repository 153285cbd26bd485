/* The limits of this process's control groups (a container's, a systemd unit's): the least of its
 * own group's and all its ancestors'. Versions 1 and 2. */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

#include <stddef.h>

/* The CPU quota as a number of processors; INFINITY for no quota. root is the prefix of /proc and
 * /sys: "" except in tests. */
double cgroup_cpus(const char *root);
/* SIZE_MAX for no limit. */
size_t cgroup_memory_bytes(const char *root);

#endif
