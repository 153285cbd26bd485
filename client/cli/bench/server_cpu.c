#include "client/cli/bench/server_cpu.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STATE_LISTEN = 0x0a, UNIX_LISTEN = 0x10000 };

/* The inode of the listening TCP socket of a port; 0: none. See proc(5), /proc/net/tcp. */
static unsigned long tcp_inode(const char *table, unsigned port)
{
    FILE *file = fopen(table, "re");
    unsigned long inode = 0, found = 0;
    char line[256];
    unsigned at, state;

    while (file != NULL && found == 0 && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, " %*u: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %lu",
                   &at, &state, &inode) == 3 &&
            at == port && state == STATE_LISTEN)
            found = inode;
    if (file != NULL)
        (void)fclose(file);
    return found;
}

/* Likewise of a unix socket's path. */
static unsigned long unix_inode(const char *path)
{
    FILE *file = fopen("/proc/net/unix", "re");
    unsigned long inode, found = 0;
    char line[512], name[256];
    unsigned flags;

    while (file != NULL && found == 0 && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "%*x: %*x %*x %x %*x %*x %lu %255s", &flags, &inode, name) == 3 &&
            (flags & UNIX_LISTEN) != 0 && strcmp(name, path) == 0)
            found = inode;
    if (file != NULL)
        (void)fclose(file);
    return found;
}

/* Whether the process has the socket open. */
static bool has_socket(const char *process, const char *socket)
{
    char path[PATH_MAX], link[64];
    struct dirent *entry;
    bool is_found = false;
    DIR *fds;

    (void)snprintf(path, sizeof path, "/proc/%s/fd", process);
    fds = opendir(path);
    while (fds != NULL && !is_found && (entry = readdir(fds)) != NULL) {
        ssize_t len = readlinkat(dirfd(fds), entry->d_name, link, sizeof link - 1);

        if (len > 0) {
            link[len] = '\0';
            is_found = strcmp(link, socket) == 0;
        }
    }
    if (fds != NULL)
        (void)closedir(fds);
    return is_found;
}

static int process_of(unsigned long inode)
{
    struct dirent *entry;
    char socket[64];
    int process = 0;
    DIR *all;

    (void)snprintf(socket, sizeof socket, "socket:[%lu]", inode);
    all = opendir("/proc");
    while (all != NULL && process == 0 && (entry = readdir(all)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]) && has_socket(entry->d_name, socket))
            process = (int)strtol(entry->d_name, NULL, 10);
    if (all != NULL)
        (void)closedir(all);
    return process;
}

static bool is_here(const char *host, size_t len)
{
    static const char *const names[] = {"localhost", "[::1]", "::1"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == len && strncmp(host, names[i], len) == 0)
            return true;
    return strncmp(host, "127.", 4) == 0;
}

int server_process(const char *address)
{
    const char *colon = address == NULL ? NULL : strrchr(address, ':');
    unsigned long inode = 0;

    if (address == NULL)
        return 0;
    if (strncmp(address, "unix:", 5) == 0) {
        inode = unix_inode(address + 5);
    } else if (colon != NULL && is_here(address, (size_t)(colon - address))) {
        unsigned port = (unsigned)strtoul(colon + 1, NULL, 10);

        inode = tcp_inode("/proc/net/tcp", port);
        if (inode == 0)
            inode = tcp_inode("/proc/net/tcp6", port);
    }
    return inode == 0 ? 0 : process_of(inode);
}

double server_cpu_s(int process)
{
    unsigned long long user, system;
    char path[64], line[1024] = "";
    const char *rest;
    FILE *file;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", process);
    file = process == 0 ? NULL : fopen(path, "re");
    if (file == NULL)
        return NAN;
    if (fgets(line, sizeof line, file) == NULL)
        line[0] = '\0';
    (void)fclose(file);
    rest = strrchr(line, ')'); /* the name may have any characters, also spaces and ')' */
    if (rest == NULL || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
                               &user, &system) != 2)
        return NAN;
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}
