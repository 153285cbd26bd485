#include "base/cgroup.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"

static char root[] = "/tmp/parley-cgroup-XXXXXX";
static char made[64]
                [256]; /* [n_made] files and folders, to be removed from the last to the first */
static size_t n_made;

static char *note(const char *path)
{
    ck_assert_uint_lt(n_made, 64);
    (void)snprintf(made[n_made], sizeof(made[0]), "%s", path);
    return made[n_made++];
}

static void put(const char *at, const char *text)
{
    char path[256];
    FILE *out;

    (void)snprintf(path, sizeof(path), "%s/%s", root, at);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) == 0)
            (void)note(path);
        else
            ck_assert_int_eq(errno, EEXIST);
        *slash = '/';
    }
    out = fopen(note(path), "we");
    ck_assert_ptr_nonnull(out);
    ck_assert_int_ge(fputs(text, out), 0);
    ck_assert_int_eq(fclose(out), 0);
}

static void begin(const char *groups)
{
    memcpy(root + sizeof(root) - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(root));
    n_made = 0;
    (void)note(root);
    put("proc/self/cgroup", groups);
}

static void end(void)
{
    while (n_made > 0)
        ck_assert_int_eq(remove(made[--n_made]), 0);
}

/* A systemd unit's quota, seen from outside a cgroup namespace. */
START_TEST(own_group)
{
    begin("0::/system.slice/parleyd.service\n");
    put("sys/fs/cgroup/system.slice/parleyd.service/cpu.max", "150000 100000\n");
    put("sys/fs/cgroup/system.slice/parleyd.service/memory.max", "1073741824\n");
    put("sys/fs/cgroup/system.slice/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/system.slice/memory.max", "max\n");
    ck_assert_double_eq(cgroup_cpus(root), 1.5);
    ck_assert_uint_eq(cgroup_memory_bytes(root), (size_t)1 << 30);
    end();
}
END_TEST

/* The least limit of all ancestors counts, at any level. */
START_TEST(least_of_all_above)
{
    begin("0::/a/b/c\n");
    put("sys/fs/cgroup/a/cpu.max", "400000 100000\n");
    put("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    put("sys/fs/cgroup/a/b/c/cpu.max", "200000 100000\n");
    put("sys/fs/cgroup/a/memory.max", "1000000\n");
    put("sys/fs/cgroup/a/b/c/memory.max", "3000000\n");
    ck_assert_double_eq(cgroup_cpus(root), 0.5);
    ck_assert_uint_eq(cgroup_memory_bytes(root), 1000000);
    end();
}
END_TEST

/* In a namespace of its own the group is the root. */
START_TEST(own_namespace)
{
    begin("0::/\n");
    put("sys/fs/cgroup/cpu.max", "300000 100000\n");
    put("sys/fs/cgroup/memory.max", "5000\n");
    ck_assert_double_eq(cgroup_cpus(root), 3);
    ck_assert_uint_eq(cgroup_memory_bytes(root), 5000);
    end();
}
END_TEST

/* Version 1: a hierarchy for each controller. */
START_TEST(version_1)
{
    begin("12:memory:/user/deep\n4:cpu,cpuacct:/user/deep\n3:cpuset:/\n1:name=systemd:/user\n");
    put("sys/fs/cgroup/cpu/user/deep/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/user/deep/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu/user/cpu.cfs_quota_us", "250000\n");
    put("sys/fs/cgroup/cpu/user/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/memory/user/deep/memory.limit_in_bytes", "70000\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    ck_assert_double_eq(cgroup_cpus(root), 2.5);
    ck_assert_uint_eq(cgroup_memory_bytes(root), 70000);
    end();
}
END_TEST

/* A container that sees its host's names, but only the files of its own group. */
START_TEST(names_of_the_host)
{
    begin("5:cpuacct,cpu:/docker/0123\n0::/docker/0123\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    ck_assert_double_eq(cgroup_cpus(root), 0.5);
    end();
}
END_TEST

/* No limit, no file, and a file of another format. */
START_TEST(no_limit)
{
    begin("0::/a\n");
    put("sys/fs/cgroup/a/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/a/memory.max", "max\n");
    ck_assert_double_eq(cgroup_cpus(root), (double)INFINITY);
    ck_assert_uint_eq(cgroup_memory_bytes(root), SIZE_MAX);
    end();
    begin("nonsense\n4:cpu\n::\n0::/a\n");
    put("sys/fs/cgroup/a/cpu.max", "");
    put("sys/fs/cgroup/a/memory.max", "many\n");
    put("sys/fs/cgroup/cpu.max", "100000\n");
    ck_assert_double_eq(cgroup_cpus(root), (double)INFINITY);
    ck_assert_uint_eq(cgroup_memory_bytes(root), SIZE_MAX);
    end();
    ck_assert_double_eq(cgroup_cpus("/nowhere/at/all"), (double)INFINITY);
    ck_assert_uint_eq(cgroup_memory_bytes("/nowhere/at/all"), SIZE_MAX);
}
END_TEST

SUITE_MAIN("cgroup", own_group, least_of_all_above, own_namespace, version_1, names_of_the_host,
           no_limit)
