#include "client/cli/server_hint.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether a server at the address would be on this machine. */
static bool is_local(const char *address)
{
    static const char *const local[] = {"127.", "localhost", "[::1]", "::1", "unix:"};

    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
        if (strncmp(address, local[i], strlen(local[i])) == 0)
            return true;
    return false;
}

/* The folder of this program; false: it is not known. */
static bool own_folder(char out[PATH_MAX])
{
    ssize_t len = readlink("/proc/self/exe", out, PATH_MAX - 1);
    char *slash;

    if (len <= 0)
        return false;
    out[len] = '\0';
    slash = strrchr(out, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    return true;
}

static bool is_in_path(const char *folder)
{
    const char *at = getenv("PATH");
    const size_t len = strlen(folder);

    while (at != NULL && *at != '\0') {
        size_t n = strcspn(at, ":");

        if (n == len && strncmp(at, folder, n) == 0)
            return true;
        at += n + (at[n] == ':');
    }
    return false;
}

static bool is_unit_installed(void)
{
    return access("/lib/systemd/system/parleyd.service", F_OK) == 0 ||
           access("/usr/lib/systemd/system/parleyd.service", F_OK) == 0;
}

void server_hint(char *out, size_t size, const char *address)
{
    char folder[PATH_MAX], program[PATH_MAX + 16];

    if (!is_local(address)) {
        *out = '\0';
        return;
    }
    if (!own_folder(folder)) {
        (void)snprintf(out, size, "'parleyd FILE.gguf' starts a server");
        return;
    }
    (void)snprintf(program, sizeof(program), "%s/parleyd", folder);
    if (access(program, X_OK) != 0)
        (void)snprintf(out, size, "there is no parleyd in %s, where parley is", folder);
    else if (strcmp(folder, "/usr/bin") == 0 && is_unit_installed())
        (void)snprintf(out, size, "'sudo systemctl start parleyd' starts the server");
    else
        (void)snprintf(out, size, "'%s FILE.gguf' starts a server",
                       is_in_path(folder) ? "parleyd" : program);
}
