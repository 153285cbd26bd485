#include "client/cli/bench/server_cpu.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/address_holder.h"

static bool is_here(const char *host, size_t len)
{
    static const char *const names[] = {"localhost", "[::1]", "::1"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == len && strncmp(host, names[i], len) == 0)
            return true;
    return strncmp(host, "127.", 4) == 0;
}

int server_process(const char *address)
{
    const char *colon = address == NULL ? NULL : strrchr(address, ':');
    struct address_holder by;

    if (colon == NULL ||
        (address_unix_path(address) == NULL && !is_here(address, (size_t)(colon - address))))
        return 0;
    return address_holder_find(&by, address) ? (int)by.pid : 0;
}

double server_cpu_s(int process)
{
    unsigned long long user, system;
    char path[64], line[1024] = "";
    const char *rest;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", process);
    file = process == 0 ? NULL : fopen(path, "re");
    if (file == NULL)
        return NAN;
    if (fgets(line, sizeof(line), file) == NULL)
        line[0] = '\0';
    (void)fclose(file);
    rest = strrchr(line, ')'); /* the name may have any characters, also spaces and ')' */
    if (rest == NULL || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
                               &user, &system) != 2)
        return NAN;
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}
